from torch import Tensor

from fgmix.algorithms import Algorithm, BaseConfig, Batches, choice, descend_along, register_wrapper, search
from fgmix.algorithms.sam import compute_two_gradients


@register_wrapper("sagm")
class SAGM(Algorithm):
    """Sharpness-aware gradient matching: lower the loss at the weights and nearby, and align the two gradients.

        ε = (ρ/‖g‖ − α) g,  g = ∇L(w);    w ← Adam(w, (g + ∇L(w + ε))/2)

    which minimises L(w) + L(w + ρ g/‖g‖ − α g), ignoring the dependence of ε on w. w are the weights, and L is the
    objective of the wrapped method: that of ERM in `sagm`, that of CORAL in `sagm+coral`. A step needs two forward and
    two backward passes.

    Wang et al., "Sharpness-Aware Gradient Matching for Domain Generalization", 2023,
    https://arxiv.org/abs/2303.10353. Variant: the authors' code, which averages the two gradients; both passes use
    the same random numbers, and buffers keep the values of the first pass.
    """

    label = "SAGM"
    family = "flatness"
    cost = 2.0

    class Config(BaseConfig):
        sagm_rho: float = search(
            0.05, None, paper=choice(0.01, 0.02, 0.05, 0.1), help="radius ρ of the neighbourhood", ge=0
        )
        sagm_alpha: float = search(
            0.001, None, paper=choice(0.01, 0.02, 0.05, 0.1), help="weight α of the agreement of gradients", ge=0
        )

    def update(self, batches: Batches) -> dict[str, Tensor]:
        rho, alpha = self.config.sagm_rho, self.config.sagm_alpha
        terms, w, g, g_near = compute_two_gradients(self, batches, lambda norm: rho / norm - alpha)
        descend_along(self.optimizer, w, [(here + near) / 2 for here, near in zip(g, g_near, strict=True)])
        return terms
