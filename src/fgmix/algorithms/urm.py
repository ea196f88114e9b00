from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fgmix.algorithms._base import Algorithm, Batches, batch_of, descend
from fgmix.algorithms._config import BaseConfig, LogUniform, Searched, choice, search, setting, uniform
from fgmix.algorithms._registry import register

HIDDEN = 100  # width of DomainBed's discriminator


class Activated(nn.Module):
    """z = σ(g(x)).

    >>> Activated(nn.Flatten(), nn.ReLU())(torch.tensor([[-1.0, 2.0]])).tolist()
    [[0.0, 2.0]]
    """

    def __init__(self, net: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.activation = activation
        self.out_features: int | None = getattr(net, "out_features", None)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.activation(self.net(x))
        return z


@register("urm")
class URM(Algorithm):
    """Uniform risk minimization: codes that a discriminator cannot distinguish from uniform noise.

        g, h:  min  CE(h(z), y) + λ · l₁(D(z)),    z = σ(g(x))
        D:     min  l₁(D(u)) + λ · l₀(D(z)),       u ~ U[−1, 1)^d for σ = tanh, U[0, 1)^d for σ = ReLU

    updated in turn, with D the discriminator, l₁ and l₀ the mean binary cross-entropies against the labels 1 (noise)
    and 0 (codes), and z in both lines the codes from before the step. The activation σ becomes part of the featurizer.

    Krishnamachari et al., "Uniformly Distributed Feature Representations for Fair and Robust Learning", 2024,
    https://openreview.net/forum?id=PgLbS5yp8n. Variant: DomainBed's, which is the authors'.
    """

    label = "URM"
    family = "adversarial"
    cost = 1.0
    targets = "soft"
    domainbed_name = "URM"

    class Config(BaseConfig):
        lam: float = search(
            0.1, uniform(0.0, 0.2), help="weight λ of the adversarial loss", domainbed="urm_adv_lambda", ge=0
        )
        hidden_layers: int = search(
            1,
            choice(1, 2, 3),
            help="number of the discriminator's hidden layers after the first",
            domainbed="urm_discriminator_hidden_layers",
            ge=0,
            le=100,
        )
        activation: Literal["tanh", "relu"] = search(
            "tanh", choice("tanh", "relu"), help="activation σ of the codes", domainbed="urm_generator_output"
        )
        lr_d: float | None = setting(None, help="learning rate of the discriminator; none: that of the model", gt=0)

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        sigma = nn.Tanh() if config.activation == "tanh" else nn.ReLU()
        super().__init__(Activated(featurizer, sigma), classifier, n_domains, config)
        self.discriminator = noise_discriminator(self.code_size, config.hidden_layers)
        lr = config.lr if config.lr_d is None else config.lr_d
        self.discriminator_optimizer = self.build_optimizer(self.discriminator.parameters(), lr=lr)

    @classmethod
    def domainbed_space(cls, dataset: str, kind: str) -> Mapping[str, Searched]:  # noqa: ARG003 (the same for all)
        lr_d = (1e-3, LogUniform(-5.5, -3.5)) if kind != "images" else (5e-5, LogUniform(-6, -4.5))
        return {"lr_d": Searched("urm_discriminator_lr", *lr_d)}

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z: Tensor = self.featurizer(x)
        risk, fooled = cross_entropy(self.classifier(z), y), self.label_loss(1.0, z)
        loss = risk + self.config.lam * fooled
        descend(self.optimizer, loss)

        told = self.label_loss(1.0, self.noise(z)) + self.config.lam * self.label_loss(0.0, z.detach())
        descend(self.discriminator_optimizer, told)
        return {"loss": loss, "risk": risk, "adversary": fooled, "discriminator": told}

    def label_loss(self, label: float, v: Tensor) -> Tensor:
        """Compute the mean binary cross-entropy of D(v) against one label for all of v (n, d)."""
        o: Tensor = self.discriminator(v).squeeze(1)
        return binary_cross_entropy_with_logits(o, torch.full_like(o, label))

    def noise(self, z: Tensor) -> Tensor:
        """Sample u, uniform over [−1, 1) for tanh and [0, 1) for ReLU, of the shape of the codes z."""
        u = torch.rand_like(z)
        return 2 * u - 1 if self.config.activation == "tanh" else u


def noise_discriminator(d: int, hidden_layers: int) -> nn.Module:
    """Build D: codes (n, d) → one logit (n, 1), through 1 + `hidden_layers` layers of 100, LeakyReLU after each.

    >>> noise_discriminator(4, 1)(torch.zeros(2, 4)).shape
    torch.Size([2, 1])
    """
    sizes = [d, *[HIDDEN] * hidden_layers]
    hidden = [layer for size in sizes for layer in (nn.Linear(size, HIDDEN), nn.LeakyReLU())]
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, 1))
