"""SAM, around any method whose update is one objective."""

from __future__ import annotations

from torch import Tensor

from fgmix.algorithms._base import Algorithm, Batches
from fgmix.algorithms._config import BaseConfig, choice, search
from fgmix.algorithms._registry import register_wrapper
from fgmix.algorithms._sharpness import descend, two_gradients


@register_wrapper("sam")
class SAM(Algorithm):
    """Sharpness-aware minimization: descend along the gradient at the nearby point of highest loss.

        ε̂ = ρ g/‖g‖,  g = ∇L(w);    w ← Adam(w, ∇L(w + ε̂))

    with w the trained weights and L the objective of the wrapped method: that of ERM in `sam`, that of CORAL in
    `sam+coral`. A step needs two forward and two backward passes.

    Foret et al., "Sharpness-Aware Minimization for Efficiently Improving Generalization", 2021,
    https://arxiv.org/abs/2010.01412. Variant: Adam instead of SGD; both passes use the same random numbers, and
    buffers keep the values of the first pass.
    """

    label = "SAM"
    year = 2021
    paper = "https://arxiv.org/abs/2010.01412"
    family = "flatness"
    cost = 2.0

    class Config(BaseConfig):
        sam_rho: float = search(
            0.05, None, paper=choice(0.01, 0.02, 0.05, 0.1), help="radius ρ of the neighbourhood", ge=0
        )

    config: Config  # narrows the base's type

    def update(self, batches: Batches) -> dict[str, Tensor]:
        terms, w, _, g_near = two_gradients(self, batches, lambda norm: self.config.sam_rho / norm)
        descend(self, w, g_near)
        return terms
