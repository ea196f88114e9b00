import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, LogUniform, Searched, batch_of, register, setting
from fgmix.functional import numbers


@register("ermplusplus")
class ERMPlusPlus(Algorithm):
    """ERM that starts with a linear probe and predicts with a running average of the weights.

        step t = 1, 2, …:   w ← Adam(w, ∂CE/∂w),  the classifier only while t ≤ `linear_steps` + 1
                            θ ← w  while t < `average_start`,   θ ← (n θ + w)/(n + 1)  from then on

    with w the trained weights, θ those of g and h, which predict, and n = t + 1 − `average_start` the number of
    averaged steps, this one included. Running statistics of batch-norm are averaged like the weights; if batch-norm is
    not frozen, a forward pass of g then updates its statistics.

    Teterwak et al., "ERM++: An Improved Baseline for Domain Generalization", 2023, https://arxiv.org/abs/2304.01973.
    Variant: DomainBed's update. The schedule that follows the validation loss, the second training on all data and
    the paper's backbone are not part of the method here: see the docs page.
    """

    label = "ERM++"
    family = "averaging"
    cost = 1.0
    targets = "weighted"
    keeps = "an averaged copy"
    domainbed_name = "ERMPlusPlus"
    per_sample = True
    delayed = {"linear_steps": "training of the featurizer", "average_start": "the average"}

    class Config(BaseConfig):
        linear_lr: float | None = setting(None, help="learning rate of the linear probe; none: that of the model", gt=0)
        linear_steps: int = setting(500, help="the classifier alone trains in one step more than this many", ge=0)
        average_start: int = setting(600, help="step from which weights are averaged", ge=0)

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.trained = nn.Sequential(copy.deepcopy(featurizer), copy.deepcopy(classifier))  # w
        self.optimizer = self.build_model_optimizer([self.trained[0]], [self.trained[1]])
        rate = config.linear_lr or config.head_lr or config.lr
        self.linear_optimizer = self.build_optimizer(self.trained[1].parameters(), lr=rate)

    @classmethod
    def domainbed_space(cls, dataset: str, kind: str) -> Mapping[str, Searched]:  # noqa: ARG003 (the same for all)
        return {"linear_lr": Searched("linear_lr", 5e-5, LogUniform(-5, -3.5))}

    @classmethod
    def steps_before(cls, setting: str, config: Config) -> int:  # type: ignore[override]  # its own Config
        """Count as DomainBed: it compares `linear_steps` with its counter before the update, `average_start` after."""
        return config.linear_steps + 1 if setting == "linear_steps" else max(config.average_start, 1) - 1

    def update(self, batches: Batches) -> dict[str, Tensor]:
        if self.updates == 0:  # g and h may have changed since they were copied, by --warmup-head
            for w_p, theta_p in zip(numbers(*self.trained), numbers(self.featurizer, self.classifier), strict=True):
                w_p.copy_(theta_p)
        optimizer = self.linear_optimizer if self.probing else self.optimizer
        optimizer.zero_grad(set_to_none=True)
        terms = self.backward(batches)
        optimizer.step()
        self.average()
        if self.batch_norm_trains:
            with torch.no_grad():
                self.featurizer(batch_of(batches)[0])
        return terms

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        with torch.set_grad_enabled(not self.probing):
            z: Tensor = self.trained[0](x)
        return {"loss": cross_entropy(self.trained[1](z), y)}

    @property
    def probing(self) -> bool:
        """Whether this step trains the classifier alone."""
        return self.updates <= self.config.linear_steps and any(p.requires_grad for p in self.classifier.parameters())

    @torch.no_grad()
    def average(self) -> None:
        """Set θ ← w, or the running mean."""
        n = self.updates + 2 - max(self.config.average_start, 1)  # t = `updates` + 1
        for theta_p, w_p in zip(numbers(self.featurizer, self.classifier), numbers(*self.trained), strict=True):
            theta_p.lerp_(w_p, 1 / (n + 1) if n > 0 else 1.0)
