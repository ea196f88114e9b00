from contextlib import suppress
from typing import Literal

import torch
from torch import Tensor, nn

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, register, setting
from fgmix.errors import UserError
from fgmix.functional.mixup import mixed_cross_entropy, sample_beta
from fgmix.networks.parts import change_output
from fgmix.networks.stages import stages


@register("manifold_mixup")
class ManifoldMixup(Algorithm):
    """Interpolate inputs, feature maps or codes, and their labels, at a random layer in each step.

        h_m ← λ·h_m + (1 − λ)·h_m[π],   L = λ·CE(y) + (1 − λ)·CE(y[π]),   λ ~ Beta(α, α), m uniform over the layers

    Verma et al., "Manifold Mixup: Better Representations by Interpolating Hidden States", 2019,
    https://arxiv.org/abs/1806.05236. Variant: the authors' code (one λ and one permutation π of the whole batch per
    step, nothing detached) with cross-entropy in place of its binary cross-entropy on softmax outputs.
    """

    label = "Manifold Mixup"
    family = "mixup"
    cost = 1.0
    targets = "soft"

    class Config(BaseConfig):
        alpha: float = setting(0.2, help="α of λ ~ Beta(α, α)", ge=1e-6)
        layers: Literal["all", "first"] = setting(
            "all", help="all: input, stages and code; first: input and first two stages, as in the authors' code"
        )

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        # names of the modules whose output may be mixed; the featurizer's own name is empty
        if config.layers == "first":
            self.layers = [stage.end.name for stage in stages(featurizer)[:2]]
            return
        self.layers = [""]
        with suppress(UserError):  # a network without stages, such as an MLP: only its code
            self.layers[:0] = [stage.end.name for stage in stages(featurizer)]

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        m = int(torch.randint(len(self.layers) + 1, ()))  # 0 is the input
        lam = sample_beta(self.config.alpha).to(x.device, non_blocking=True)
        pi = torch.randperm(len(y)).to(x.device, non_blocking=True)

        def mix(h: Tensor) -> Tensor:
            return (lam * h + (1 - lam) * h[pi]).to(h.dtype)

        if m == 0:
            logits = self.predict(mix(x))
        else:
            with change_output(self.featurizer.get_submodule(self.layers[m - 1]), mix):
                logits = self.predict(x)
        return {"loss": mixed_cross_entropy(logits, y, y[pi], lam), "lam": lam, "layer": torch.tensor(float(m))}
