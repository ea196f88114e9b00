import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, register, search, uniform


@register("rsc")
class RSC(Algorithm):
    """Representation self-challenging: mask the features that the classifier relies on most, and train on the rest.

        G = ∂ h(z)_y / ∂z
        keep_f = G < the (1 − f)-quantile of G within the sample
        Δ = p_y(z) − p_y(z · keep_f),    keep_b = Δ < the (1 − b)-quantile of Δ over the batch
        L = mean l(y, h(z · (keep_f or keep_b)))

    with h(z)_y and p_y(z) the logit and the probability of the true class y. In each sample the share f of features
    with the largest G is masked, but only in the share b of samples whose true-class probability falls most by it. No
    gradient flows through the masks. A step needs one forward pass of the featurizer and three of the classifier.

    Huang et al., "Self-Challenging Improves Cross-Domain Generalization", 2020, equations 1 to 5,
    https://arxiv.org/abs/2007.02454. Variant: DomainBed's, on the pooled code.
    """

    label = "RSC"
    family = "masking"
    cost = 1.0
    domainbed_name = "RSC"

    class Config(BaseConfig):
        f: float = search(
            1 / 3, uniform(0.0, 0.5), help="share of features masked", domainbed="rsc_f_drop_factor", ge=0, le=1
        )
        b: float = search(
            1 / 3, uniform(0.0, 0.5), help="share of samples masked", domainbed="rsc_b_drop_factor", ge=0, le=1
        )

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z: Tensor = self.featurizer(x)  # (k·b, d)
        keep = self._keep(z.detach(), y)
        return {"loss": cross_entropy(self.classifier(z * keep), y), "kept": keep.float().mean()}

    def _keep(self, z: Tensor, y: Tensor) -> Tensor:
        """Compute keep_f or keep_b: which features of which samples are kept, boolean (n, d)."""
        z = z.requires_grad_()  # the caller's z is detached: a new leaf, so no gradient reaches the featurizer
        logits = self.classifier(z)
        (G,) = torch.autograd.grad(_of_true_class(logits, y).sum(), z)
        with torch.no_grad():
            keep_f = _below_quantile(G, 1 - self.config.f)
            p_y = _of_true_class(logits.softmax(1), y)
            p_y_masked = _of_true_class(self.classifier(z * keep_f).softmax(1), y)
            keep_b = _below_quantile(p_y - p_y_masked, 1 - self.config.b)  # (n,)
        return keep_f | keep_b[:, None]


def _of_true_class(values: Tensor, y: Tensor) -> Tensor:
    """Compute values_{i, y_i}, (n,)."""
    return values.gather(1, y[:, None]).squeeze(1)


def _below_quantile(values: Tensor, q: float) -> Tensor:
    """Return which values lie below the interpolated q-quantile of the last dimension.

    The position (d − 1)·q is often an integer up to rounding (d = 256, q = 2/3), and rounding would then decide whether
    one more feature is masked. Interpolated in float64 and rounded back, the quantile is the value at that position.
    """
    return values < torch.quantile(values.double(), q, dim=-1, keepdim=True).to(values.dtype)
