"""Manifold Mixup: interpolate inputs, feature maps or codes, and their labels, at a layer drawn for every step.

    h_m ← λ·h_m + (1 − λ)·h_m[π],   L = λ·CE(y) + (1 − λ)·CE(y[π]),   λ ~ Beta(α, α), m uniform over the layers

Verma et al., "Manifold Mixup", 2019. Variant: the authors' code (one λ and one permutation π of the whole batch per
step, nothing detached) with cross-entropy in place of its binary cross-entropy on softmax outputs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from fgmix.algorithms._base import Algorithm, Batches, batch_of
from fgmix.algorithms._config import BaseConfig, setting
from fgmix.algorithms._registry import register
from fgmix.errors import UserError, bad_value
from fgmix.functional.mixup import mixed_cross_entropy, sample_beta
from fgmix.networks.hooks import changing_outputs
from fgmix.networks.stages import stages


@register("manifold_mixup")
class ManifoldMixup(Algorithm):
    """Mixup at a random depth.

    Example:
        >>> from torch import nn
        >>> from fgmix.algorithms import create
        >>> method = create("manifold_mixup", featurizer=nn.Flatten(), classifier=nn.Linear(4, 2), n_domains=1)
        >>> sorted(method.step([(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))]))
        ['lam', 'layer', 'loss']
    """

    label = "Manifold Mixup"
    year = 2019
    paper = "https://arxiv.org/abs/1806.05236"

    class Config(BaseConfig):
        alpha: float = setting(0.2, help="α of λ ~ Beta(α, α)")
        layers: Literal["all", "first"] = setting(
            "all", help="all: input, stages and code; first: input and the first two stages, as the authors' code"
        )

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.alpha > 0:
                raise bad_value("alpha", "positive", self.alpha)

    config: Config  # narrows the base's type

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.layers()  # refuses a network without the layers asked for before training starts

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        layers = self.layers()
        m = int(torch.randint(len(layers) + 1, ()))  # 0 is the input
        lam = sample_beta(self.config.alpha).to(x.device)
        pi = torch.randperm(len(y)).to(x.device)

        def mix(h: Tensor) -> Tensor:
            return (lam * h + (1 - lam) * h[pi]).to(h.dtype)

        if m == 0:
            logits = self.predict(mix(x))
        else:
            with changing_outputs([layers[m - 1]], mix):
                logits = self.predict(x)
        return {"loss": mixed_cross_entropy(logits, y, y[pi], lam), "lam": lam, "layer": torch.tensor(float(m))}

    def layers(self) -> list[nn.Module]:
        """Modules after which codes may be mixed. A network without stages, such as an MLP, has its code only."""
        if self.config.layers == "first":
            return stages(self.featurizer)[:2]
        try:
            return [*stages(self.featurizer), self.featurizer]
        except UserError:
            return [self.featurizer]
