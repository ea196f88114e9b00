"""The method RIDG."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Algorithm, Batches, batch_of
from fgmix.algorithms._config import BaseConfig, log_uniform, search
from fgmix.algorithms._registry import register
from fgmix.errors import UserError


@register("ridg")
class RIDG(Algorithm):
    """Rationale invariance: the contributions of features to logits should agree within a class.

        R_i = W ∘ z_i  (C, d),  whose rows sum up to the logits (without bias)
        R̄_c ← (1 − m) R̄_c + m · mean_{i: y_i = c} R_i,  initialised with the first such mean
        L = CE + α Σ_c mean_{i: y_i = c} 1/C Σ_j ‖R_{i,j} − R̄_{c,j}‖²

    with W the weight of the linear classifier, R_i the rationale of sample i (each row of W times z_i, elementwise) and
    R̄_c the mean rationale of class c, updated before the loss is computed and constant in it. The sum over c is over
    the classes in the batch, the sum over j over the rows of a rationale.

    Chen et al., "Domain Generalization via Rationale Invariance", 2023, equations 2 to 5,
    https://arxiv.org/abs/2308.11158. Variant: the authors' code, a sum over classes and a mean over the rows of a
    rationale.
    """

    label = "RIDG"
    year = 2023
    paper = "https://arxiv.org/abs/2308.11158"
    family = "penalty"
    cost = 1.0

    rationales: Tensor  # R̄ (C, C, d)
    seen: Tensor  # (C,), the classes whose R̄_c is initialised

    class Config(BaseConfig):
        alpha: float = search(
            0.01, None, paper=log_uniform(1e-2, 1e-1), help="weight α of the invariance of rationales", ge=0
        )
        momentum: float = search(
            0.001, None, paper=log_uniform(1e-4, 1e-1), help="share m of a batch in the mean rationales", ge=0, le=1
        )

    config: Config  # narrows the base's type

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: BaseConfig) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        if not isinstance(classifier, nn.Linear):
            raise UserError(
                "RIDG expects a linear classifier, whose weights make the rationales. Found "
                f"{type(classifier).__name__}. Use --head linear."
            )
        C, d = classifier.weight.shape
        self.register_buffer("rationales", torch.zeros(C, C, d, dtype=classifier.weight.dtype))
        self.register_buffer("seen", torch.zeros(C, dtype=torch.bool))

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z: Tensor = self.featurizer(x)
        risk = cross_entropy(self.classifier(z), y)
        W: Tensor = self.classifier.weight  # type: ignore[assignment]
        R = W * z.to(W.dtype)[:, None]  # (n, C, d)
        n_c = torch.zeros(len(W), dtype=W.dtype, device=W.device).index_add_(
            0, y, torch.ones_like(z[:, 0], dtype=W.dtype)
        )
        self._remember(R.detach(), y, n_c)
        apart = (R - self.rationales[y]).square().sum(2).mean(1)  # (n,)
        variance = (apart / n_c[y]).sum()
        return {"loss": risk + self.config.alpha * variance, "risk": risk, "variance": variance}

    def _remember(self, R: Tensor, y: Tensor, n_c: Tensor) -> None:
        """Update R̄_c of the classes in the batch, from R (n, C, d), labels y (n,) and samples per class n_c (C,)."""
        means = torch.zeros_like(self.rationales).index_add_(0, y, R) / n_c.clamp_min(1)[:, None, None]
        m = torch.where(self.seen, self.config.momentum, 1.0).to(R.dtype) * (n_c > 0)
        self.rationales = torch.lerp(self.rationales, means, m[:, None, None])
        self.seen = self.seen | (n_c > 0)
