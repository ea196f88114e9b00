import copy
from collections import OrderedDict
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, l1_loss
from torch.optim import Optimizer

from fgmix.algorithms._base import Algorithm, Batches, batch_of, descend, domains_of
from fgmix.algorithms._config import BaseConfig, choice, search, setting
from fgmix.algorithms._registry import register
from fgmix.functional.transport import energy_distance, transport_cost
from fgmix.networks.generators import Generator, PixelRange, image_channels
from fgmix.networks.own import SmallCNN


@register("l2a_ot")
class L2AOT(Algorithm):
    """Train on generated novel domains that are far from the source domains and from each other.

        x̂_e = G(x_e, k+e)
        L_G = −λ_domain·(Σ_e d(D(x_e), D(x̂_e)) + mean_{i<j} d(D(x̂_i), D(x̂_j)))
              + λ_cycle·Σ_e mean|G(x̂_e, e) − x_e| + λ_CE·Σ_e CE(C(x̂_e), y_e)           for G only
        L_F = ½·CE(h(g(x)), y) + ½·CE(h(g(x̂)), y)                                      x̂ a constant; for g, h only

    The generator G translates the images of source domain e to novel domain k+e. d is the energy distance of optimal
    transport between codes of a domain critic D; a class critic C and a cycle loss preserve label and content. C and D
    are trained on the originals in a share `pretrain` of the steps, before G, and are frozen afterwards.

    Zhou et al., "Learning to Generate Novel Domains for Domain Generalization", 2020,
    https://arxiv.org/abs/2007.03304. Variant: the authors' code is not public; losses and order of updates follow the
    public re-implementation https://github.com/mousecpn/L2A-OT, with a debiased distance; differences are listed in
    docs/algorithms/l2a_ot.md.
    """

    label = "L2A-OT"
    family = "augmentation"
    cost = 3.69
    keeps = "a generator"
    at_work = {"pretrain": 0.0}
    min_domains = 2  # one novel domain has no diversity
    needs_stages = True

    class Config(BaseConfig):
        lambda_domain: float = search(
            1.0, None, paper=choice(0.5, 1.0, 2.0), help="weight λ_domain of novelty and diversity", ge=0
        )
        lambda_cycle: float = search(
            10.0, None, paper=choice(10.0, 20.0), help="weight λ_cycle of the cycle loss", ge=0
        )
        lambda_ce: float = setting(1.0, help="weight λ_CE of the generated images' class loss", ge=0)
        pretrain: float = setting(0.2, help="share of the steps that trains the critics C and D, before G", ge=0, lt=1)
        generated: int | None = setting(8, help="images generated per domain and step; none: the whole batch", ge=1)
        critics: Literal["small", "backbone"] = setting(
            "small", help="networks of C and D: a small CNN, or copies of the backbone"
        )
        width: int = setting(16, help="channels of G's first layer; StarGAN: 64", ge=1)
        lr_generator: float = setting(5e-4, help="learning rate of G; 1e-4 at StarGAN's width", gt=0)
        lr_critics: float = setting(1e-3, help="learning rate of C and D; 1e-4 for pre-trained backbones", gt=0)
        debiased: bool = setting(True, help="d = 2·W(a, b) − W(a, a') − W(b, b') of half batches, or W(a, b)")

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        channels = image_channels(featurizer)
        self.range = PixelRange(channels)
        self.G = Generator(channels, 2 * n_domains, config.width)
        self.D = self._critic(channels, n_domains)
        self.C = self._critic(channels, self.n_classes)
        self.optimizer_G = self._optimise(self.G, config.lr_generator)
        self.optimizer_D = self._optimise(self.D, config.lr_critics)
        self.optimizer_C = self._optimise(self.C, config.lr_critics)

    def update(self, batches: Batches) -> dict[str, Tensor]:
        self.range.observe(batch_of(batches)[0])
        if self.updates < int(self.config.pretrain * self.config.steps):
            return self.update_critics(batches)
        x_some, y_some = self._to_generate(batches)
        terms, x_novel = self.update_generator(x_some, y_some)
        return {"loss": self.update_model(*batch_of(batches), x_novel, y_some.flatten()), **terms}

    def update_critics(self, batches: Batches) -> dict[str, Tensor]:
        """Take one step of C on classes and of D on domains; the base model takes an ERM step."""
        x, y = batch_of(batches)
        terms = {
            "loss": cross_entropy(self.predict(x), y),
            "critic_class": cross_entropy(self.C(x), y),
            "critic_domain": cross_entropy(self.D(x), domains_of(batches)),
        }
        # disjoint parameters: one backward pass
        descend((self.optimizer, self.optimizer_C, self.optimizer_D), torch.stack(list(terms.values())).sum())
        return terms

    def update_generator(self, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Take one step of G on originals x (k, m, c, h, w), y (k, m); return the terms and images from before it."""
        terms, x_novel = self.generator_terms(x, y)
        descend(self.optimizer_G, self.generator_loss(terms), self.G)  # C and D are frozen
        return terms, x_novel.detach()

    def update_model(self, x: Tensor, y: Tensor, x_novel: Tensor, y_novel: Tensor) -> Tensor:
        """Take one step of the base model on originals and novel images; returns L_F."""
        # Two passes, so that batch-norm does not pool originals with images made to differ from them.
        loss = 0.5 * cross_entropy(self.predict(x), y) + 0.5 * cross_entropy(self.predict(x_novel), y_novel)
        descend(self.optimizer, loss)
        return loss

    def generator_terms(self, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the terms of L_G, and the novel images x̂ (k·m, c, h, w).

        x (k, m, c, h, w) are m originals of each source domain, y (k, m) their labels.
        """
        k, m = y.shape
        self.C.eval()
        self.D.eval()
        x = x.flatten(0, 1)
        e = torch.arange(k, device=x.device).repeat_interleave(m)
        u = self.range.to_unit(x)
        u_novel = self.G(u, k + e)
        x_novel = self.range.from_unit(u_novel)
        with torch.no_grad():
            z = self.D[0](x).unflatten(0, (k, m))
        z_novel = self.D[0](x_novel).unflatten(0, (k, m))
        d = energy_distance if self.config.debiased else transport_cost
        i, j = torch.triu_indices(k, k, offset=1, device=x.device)  # i < j
        # All distances in one call: many small operations are slower than one large one.
        between = d(torch.cat([z, z_novel[i]]), torch.cat([z_novel, z_novel[j]]))
        terms = {
            "novelty": between[:k].sum(),
            "diversity": between[k:].mean(),
            "cycle": k * l1_loss(self.G(u_novel, e), u),
            "class": k * cross_entropy(self.C(x_novel), y.flatten()),
        }
        return terms, x_novel

    def generator_loss(self, terms: dict[str, Tensor]) -> Tensor:
        """Compute L_G of its terms."""
        c = self.config
        novelty = -c.lambda_domain * (terms["novelty"] + terms["diversity"])
        loss: Tensor = novelty + c.lambda_cycle * terms["cycle"] + c.lambda_ce * terms["class"]
        return loss

    def _to_generate(self, batches: Batches) -> tuple[Tensor, Tensor]:
        """Return the first m images of every domain (k, m, c, h, w) and their labels (k, m)."""
        m = min(len(y) for _, y in batches)
        if self.config.generated is not None:
            m = min(m, self.config.generated)
        return torch.stack([x[:m] for x, _ in batches]), torch.stack([y[:m] for _, y in batches])

    def _critic(self, channels: int, n_outputs: int) -> nn.Sequential:
        """Build an image classifier, D of domains or C of classes."""
        small = self.config.critics == "small"
        features = SmallCNN(channels) if small else copy.deepcopy(self.featurizer)
        output = nn.Linear(SmallCNN.out_features if small else self.code_size, n_outputs)
        return nn.Sequential(OrderedDict(features=features, output=output))

    def _optimise(self, module: nn.Module, lr: float) -> Optimizer:
        return self.build_optimizer(module.parameters(), lr=lr, weight_decay=0.0, betas=(0.5, 0.999))
