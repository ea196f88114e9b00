"""Initial steps that runs of several methods share: they are trained once, and every method continues from there."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Algorithm, Batches, batch_of
from fgmix.algorithms._config import BaseConfig
from fgmix.mixing.prior import Prior


class Trunk(Algorithm):
    """ERM that also updates the prior of FGMix, the moving averages of the codes. Not registered.

    A method with positive `trunk_steps` trains g and h in these steps bit-identically.
    """

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: BaseConfig) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.prior = Prior(self.code_size)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z: Tensor = self.featurizer(x)
        self.prior.observe(z.detach())
        return {"loss": cross_entropy(self.classifier(z), y)}
