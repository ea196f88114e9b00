from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from fgmix.algorithms._base import Algorithm, Batches, Targets, batch_of, descend, domains_of
from fgmix.algorithms._config import BaseConfig, LogUniform, Searched, choice, log_uniform, search, setting
from fgmix.algorithms._registry import register
from fgmix.networks.own import build_discriminator


@register("dann")
class DANN(Algorithm):
    """Domain-adversarial network: codes from which a discriminator cannot predict the source domain.

        D:     min  A = mean_i l(e_i, D(z_i)) + ρ · mean_i ‖∂l(e_i, D(z_i))/∂z_i‖²
        g, h:  min  mean_i l(y_i, h(z_i)) − λ · A

    with e_i the domain of sample i and l the cross-entropy. Of every 1 + n steps (n = `d_steps`), n update D and one g
    and h: step t = 1, 2, … updates D if t mod (1 + n) < n.

    Ganin et al., "Domain-Adversarial Training of Neural Networks", 2016, https://arxiv.org/abs/1505.07818. Variant:
    DomainBed's, which alternates steps instead of the paper's gradient reversal.
    """

    label = "DANN"
    family = "adversarial"
    cost = 0.67
    targets: ClassVar[Targets] = "soft"
    domainbed_name = "DANN"
    min_domains = 2

    class Config(BaseConfig):
        lam: float = search(
            1.0, log_uniform(1e-2, 1e2), help="weight λ of the adversarial loss", domainbed="lambda", ge=0
        )
        d_steps: int = search(
            1,
            LogUniform(0, 3, base=2, integer=True),
            help="number n of the discriminator's steps for each step of the model",
            domainbed="d_steps_per_g_step",
            ge=1,
        )
        grad_penalty: float = search(
            0.0, log_uniform(1e-2, 1e1), help="weight ρ of the discriminator's gradient penalty", ge=0
        )
        beta1: float = search(0.5, choice(0.0, 0.5), help="β₁ of both Adam optimisers; β₂ is 0.9", ge=0, lt=1)
        lr_d: float | None = setting(None, help="learning rate of the discriminator; none: that of the model", gt=0)
        weight_decay_d: float = search(
            0.0, log_uniform(1e-6, 1e-2), help="weight decay of the discriminator's optimiser", ge=0
        )
        mlp_width: int = search(
            256, LogUniform(6, 10, base=2, integer=True), help="width of the discriminator", ge=1, le=65536
        )
        mlp_depth: int = search(3, choice(3, 4, 5), help="number of the discriminator's layers", ge=2, le=100)
        mlp_dropout: float = search(0.0, choice(0.0, 0.1, 0.5), help="dropout of the discriminator", ge=0, lt=1)

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.discriminator = build_discriminator(
            self.code_size, n_domains, config.mlp_width, config.mlp_depth, config.mlp_dropout
        )
        self.optimizer = self.build_model_optimizer(betas=(config.beta1, 0.9))
        self.adversary_optimizer = self.build_adversary_optimizer(self.discriminator)

    @classmethod
    def domainbed_space(cls, dataset: str, kind: str) -> Mapping[str, Searched]:  # noqa: ARG003 (the same for all)
        lr = (1e-3, LogUniform(-4.5, -2.5)) if kind != "images" else (5e-5, LogUniform(-5, -3.5))
        decay = None if kind == "small_images" else LogUniform(-6, -2)
        return {
            "lr": Searched("lr_g", *lr),
            "lr_d": Searched("lr_d", *lr),
            "weight_decay": Searched("weight_decay_g", 0.0, decay),
        }

    @classmethod
    def first_base_step(cls, config: Config) -> int:  # type: ignore[override]  # its own Config
        return config.d_steps - 1

    def build_adversary_optimizer(self, *modules: nn.Module) -> Optimizer:
        """Build the optimiser of the discriminator and what belongs to it."""
        config = self.config
        return self.build_optimizer(
            [p for module in modules for p in module.parameters()],
            lr=config.lr if config.lr_d is None else config.lr_d,
            weight_decay=config.weight_decay_d,
            betas=(config.beta1, 0.9),
        )

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        n = self.config.d_steps
        models_turn = (self.updates + 1) % (1 + n) == n
        with torch.set_grad_enabled(models_turn):  # a discriminator step needs no graph of g and h
            z = self.featurizer(x)
            risk = cross_entropy(self.classifier(z), y)
        told = self.discriminator_loss(z, y, domains_of(batches))
        loss = risk - self.config.lam * told
        if models_turn:
            descend(self.optimizer, loss)
        else:
            descend(self.adversary_optimizer, told)
        return {"loss": loss, "risk": risk, "discriminator": told}

    def discriminator_loss(self, z: Tensor, y: Tensor, domain: Tensor) -> Tensor:
        """Compute A = Σ_i w_i l(e_i, D(v_i)) + ρ · mean_i ‖∂l(e_i, D(v_i))/∂v_i‖²."""
        v = self.discriminator_input(z, y)
        v = v if v.requires_grad else v.requires_grad_()
        losses = cross_entropy(self.discriminator(v), domain, reduction="none")
        loss = self.average(losses, y)
        if self.config.grad_penalty > 0:
            (G,) = torch.autograd.grad(losses.sum(), v, create_graph=True)
            loss = loss + self.config.grad_penalty * G.square().sum(1).mean()
        return loss

    def discriminator_input(self, z: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 (CDANN's has the labels)
        """Return v, the discriminator's input, from codes z (n, d) and labels y (n,)."""
        return z

    def average(self, losses: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 (CDANN's has the labels)
        """Compute Σ_i w_i l_i of the samples' losses l (n,)."""
        return losses.mean()


@register("cdann")
class CDANN(DANN):
    """Conditional DANN: a discriminator that knows the class cannot predict the source domain from the code.

        D, u:  min  A = Σ_i w_i l(e_i, D(v_i)) + ρ · mean_i ‖∂l(e_i, D(v_i))/∂v_i‖²,    v_i = z_i + u_{y_i}
        g, h:  min  mean_i l(y_i, h(z_i)) − λ · A

    with u_c a learned embedding of class c and w_i = 1 / (number of classes · samples of class y_i): every class has
    the same weight. D and u take n = `d_steps` steps for each step of g and h.

    Li et al., "Deep Domain Generalization via Conditional Invariant Adversarial Networks", 2018,
    https://doi.org/10.1007/978-3-030-01267-0_38. Variant: DomainBed's, one discriminator that receives the class
    instead of one per class; the number of classes in w_i is 1 + the highest label in the batch.
    """

    label = "CDANN"
    targets = "classes"
    domainbed_name = "CDANN"

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: DANN.Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.class_embeddings = nn.Embedding(self.n_classes, self.code_size)  # u
        self.adversary_optimizer = self.build_adversary_optimizer(self.discriminator, self.class_embeddings)

    def discriminator_input(self, z: Tensor, y: Tensor) -> Tensor:
        v: Tensor = z + self.class_embeddings(y)
        return v

    def average(self, losses: Tensor, y: Tensor) -> Tensor:
        return (class_weights(y, self.n_classes) * losses).sum()


def class_weights(y: Tensor, n_classes: int) -> Tensor:
    """Compute w_i = 1 / ((1 + max y) · samples of class y_i), for labels y (n,) below `n_classes`.

    >>> class_weights(torch.tensor([0, 0, 1]), n_classes=5).tolist()
    [0.25, 0.25, 0.5]
    """
    ones = torch.ones_like(y, dtype=torch.float32)
    counts = ones.new_zeros(n_classes).index_add_(0, y, ones)
    return 1 / (counts[y] * (1 + y.max()))
