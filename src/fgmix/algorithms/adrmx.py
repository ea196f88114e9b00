import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Algorithm, Batches, batch_of, descend, domains_of
from fgmix.algorithms._config import BaseConfig, Searched, choice, search, setting
from fgmix.algorithms._registry import register
from fgmix.functional.losses import supervised_contrast
from fgmix.networks.build import build_classifier
from fgmix.networks.own import build_discriminator


@register("adrmx")
class ADRMX(Algorithm):
    """Additive disentanglement: subtract domain features from label features, and remix them between samples.

        z = g(x),   d = g'(x),   u = z − d
        model:          min  CE(h(z), y) + CE(h''(u), y) + λ_d CE(h'(d), e) + λ_c (SC(z) + SC(u)) + λ_r R − λ_a A
        discriminator:  min  A = CE(D(u), e)
        R = 1/C Σ_c CE(h(u_i + d_j), y_i),    one random pair i ≠ j for each class c with n_c ≥ 2 samples

    with e the sample's domain, g' a second featurizer, h, h' and h'' nonlinear heads and SC the supervised contrastive
    loss. Of every 1 + n steps (n = `d_steps`), n update the discriminator and one updates the model: step t = 1, 2, …
    updates the discriminator if t mod (1 + n) < n. The model predicts by h(g(x)).

    Demirel et al., "ADRMX: Additive Disentanglement of Domain Features with Remix Loss", 2023,
    https://arxiv.org/abs/2308.06624. Variant: DomainBed's, which is the authors'. The pair of class c is meant to come
    from its n_c samples; as in that code, i and j are two of the first n_c samples of the batch.
    """

    label = "ADRMX"
    family = "adversarial"
    cost = 1.13
    min_domains = 2
    keeps = "a second network"
    domainbed_name = "ADRMX"

    class Config(BaseConfig):
        cnt_lam: float = setting(1.0, help="weight λ_c of the contrastive losses", domainbed="cnt_lambda", ge=0)
        dclf_lam: float = setting(1.0, help="weight λ_d of the domain's cross-entropy", domainbed="dclf_lambda", ge=0)
        disc_lam: float = setting(0.75, help="weight λ_a of the adversarial loss", domainbed="disc_lambda", ge=0)
        rmxd_lam: float = setting(1.0, help="weight λ_r of the remixed features", domainbed="rmxd_lambda", ge=0)
        d_steps: int = setting(
            2,
            help="number n of the discriminator's steps for each step of the model",
            domainbed="d_steps_per_g_step",
            ge=1,
        )
        beta1: float = setting(0.5, help="β₁ of both Adam optimisers; β₂ is 0.9", ge=0, lt=1)
        mlp_width: int = setting(256, help="width of the discriminator", ge=1, le=65536)
        mlp_depth: int = search(9, choice(8, 9, 10), help="number of the discriminator's layers", ge=2, le=100)

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        d, C = self.code_size, self.n_classes
        self.classifier = build_classifier("mlp", d, C)  # h
        self.domain_featurizer = copy.deepcopy(featurizer)  # g'
        self.domain_head = build_classifier("mlp", d, n_domains)  # h'
        self.invariant_head = build_classifier("mlp", d, C)  # h''
        self.discriminator = build_discriminator(d, n_domains, config.mlp_width, config.mlp_depth)
        featurizers = (featurizer, self.domain_featurizer)
        heads, betas = (self.classifier, self.invariant_head, self.domain_head), (config.beta1, 0.9)
        self.optimizer = self.build_model_optimizer(featurizers, heads, betas=betas)
        self.discriminator_optimizer = self.build_optimizer(self.discriminator.parameters(), betas=betas)

    @classmethod
    def domainbed_space(cls, dataset: str, kind: str) -> Mapping[str, Searched]:  # noqa: ARG003 (the same for all)
        rates = (3e-5, choice(2e-5, 3e-5, 4e-5, 5e-5)) if kind == "images" else (3e-3, choice(5e-4, 1e-3, 2e-3, 3e-3))
        # DomainBed samples a weight decay but passes it to neither optimiser.
        return {"lr": Searched("lr", *rates), "weight_decay": Searched("weight_decay", 0.0, None)}

    @classmethod
    def first_base_step(cls, config: Config) -> int:  # type: ignore[override]  # its own Config
        return config.d_steps - 1

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        e, n = domains_of(batches), self.config.d_steps
        models_turn = (self.updates + 1) % (1 + n) == n
        with torch.set_grad_enabled(models_turn):  # a discriminator step needs no graph of the model
            z, d = self.featurizer(x), self.domain_featurizer(x)
            risk = cross_entropy(self.classifier(z), y)
        told = cross_entropy(self.discriminator(z - d), e)
        if models_turn:
            loss = risk + self.other_terms(z, d, y, e) - self.config.disc_lam * told
            descend(self.optimizer, loss)
        else:
            loss = told
            descend(self.discriminator_optimizer, told)
        return {"loss": loss, "risk": risk, "discriminator": told}

    def other_terms(self, z: Tensor, d: Tensor, y: Tensor, e: Tensor) -> Tensor:
        """Return the model's loss without CE(h(z), y) and the adversarial term."""
        u, config = z - d, self.config
        i, j = remix_pairs(y, self.n_classes)
        remixed = cross_entropy(self.classifier(u[i] + d[j]), y[i], reduction="sum") / self.n_classes
        terms: Tensor = (
            cross_entropy(self.invariant_head(u), y)
            + config.dclf_lam * cross_entropy(self.domain_head(d), e)
            + config.cnt_lam * (supervised_contrast(z, y) + supervised_contrast(u, y))
            + config.rmxd_lam * remixed
        )
        return terms


def remix_pairs(y: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Draw i and j: for every class with n_c ≥ 2 samples in the batch, two different ones of the first n_c samples.

    The class counts are copied to the host, where the pairs are sampled.

    >>> i, j = remix_pairs(torch.tensor([0, 2, 2]), n_classes=3)
    >>> sorted([i.item(), j.item()])
    [0, 1]
    """
    drawn = [torch.randperm(n_c)[:2] for n_c in torch.bincount(y, minlength=n_classes).tolist()]
    pairs = [pair for pair in drawn if len(pair) == 2]
    ij = torch.stack(pairs) if pairs else torch.empty(0, 2, dtype=torch.long)
    i, j = ij.to(y.device, non_blocking=True).unbind(1)
    return i, j
