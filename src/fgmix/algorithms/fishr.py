from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, one_hot

from fgmix.algorithms import Algorithm, BaseConfig, Batches, log_uniform, register, search, uniform


@register("fishr")
class Fishr(Algorithm):
    """Match the variances of the classifier's per-sample gradients between the source domains.

        V_e = var_i ∂l(y_i, h_φ(z_i))/∂φ  (biased, per element)
        u_e ← V_e + γ u_e  (the old u_e constant, initially 0)
        L = CE + λ_t · 1/k Σ_e mean (u_e − ū)²,    ū = mean_e u_e

    λ_t = 0 before step `anneal`, λ from then on; at that step Adam is reset, because the magnitude of the gradients
    changes abruptly. The running sums u accumulate from the first step.

    For a linear head under cross-entropy a sample's gradient is r ⊗ [z, 1] with r = softmax − onehot, so over the
    n samples of a domain, with elementwise squares,

        V_W = (R²)ᵀ(Z²)/n − (RᵀZ/n)²,    V_b = mean R² − (mean R)²

    and no per-sample gradient is materialised. Other heads use `torch.func`.

    Ramé et al., "Fishr: Invariant Gradient Variances for Out-of-Distribution Generalization", 2022,
    https://arxiv.org/abs/2109.02934. Variant: DomainBed's, which is the authors': u is a running sum, not an
    average (which would be (1 − γ)·u), and the penalty is a mean over elements.
    """

    label = "Fishr"
    family = "gradient"
    cost = 1.0
    min_domains = 2
    domainbed_name = "Fishr"
    delayed = {"anneal": "the penalty"}
    restarts = ("anneal",)

    u: Tensor  # (k, P), P the number of the classifier's parameters

    class Config(BaseConfig):
        lam: float = search(1000.0, log_uniform(1e1, 1e4), help="penalty weight λ", domainbed="lambda", ge=0)
        anneal: int = search(
            1500,
            uniform(0.0, 5000.0, integer=True),
            help="step from which the weight is λ instead of 0",
            domainbed="penalty_anneal_iters",
            ge=0,
        )
        gamma: float = search(
            0.95, uniform(0.9, 0.99), help="decay γ of the variances' running sum", domainbed="ema", ge=0, lt=1
        )

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: BaseConfig) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.register_buffer("u", torch.zeros(n_domains, sum(p.numel() for p in classifier.parameters())))

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        z = self.encode(batches)  # k tensors (b, d)
        o = self.classifier(torch.cat(z))
        risk = cross_entropy(o, torch.cat([y for _, y in batches]))
        active = self.updates >= self.config.anneal
        with torch.set_grad_enabled(active):  # before step `anneal` u only accumulates: no graph is kept
            u = self.variances(z, o.split([len(z_e) for z_e in z]), batches) + self.config.gamma * self.u
            penalty = spread(u)
        self.u = u.detach()
        return {"loss": risk + self.config.lam * penalty if active else risk, "risk": risk, "penalty": penalty}

    def variances(self, z: Sequence[Tensor], o: Sequence[Tensor], batches: Batches) -> Tensor:
        """Compute V (k, P) of codes z and logits o, k tensors each."""
        h = self.classifier
        dtype = next(h.parameters()).dtype
        with torch.autocast(z[0].device.type, enabled=False):  # differences of near-equal numbers need full precision
            Z = [z_e.to(dtype) for z_e in z]
            if type(h) is not nn.Linear:
                return torch.stack([general_variance(h, Z_e, y) for Z_e, (_, y) in zip(Z, batches)])
            R = [o_e.to(dtype).softmax(1) - one_hot(y, h.out_features) for o_e, (_, y) in zip(o, batches)]
            return torch.stack([linear_variance(Z_e, R_e, h.bias is not None) for Z_e, R_e in zip(Z, R)])


def spread(u: Tensor) -> Tensor:
    """Compute 1/k Σ_e mean (u_e − ū)² of u (k, P), ū = mean_e u_e.

    >>> spread(torch.tensor([[1.0, 3.0], [3.0, 3.0]])).item()
    0.5
    """
    return (u - u.mean(0)).square().mean()


def linear_variance(Z: Tensor, R: Tensor, bias: bool = True) -> Tensor:
    """Compute V (P,) = [V_W, V_b]: the biased variance over n samples of a linear head's gradient, in closed form.

    Z (n, d) are codes and R (n, C) is softmax − onehot. Without a bias P = C·d, and V_b is left out.

    >>> linear_variance(torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [1.0]])).tolist()
    [1.0, 0.0]
    """
    n = len(Z)
    V_W = R.square().T @ Z.square() / n - (R.T @ Z / n).square()
    V_b = R.var(0, correction=0)
    return torch.cat([V_W.flatten(), V_b]) if bias else V_W.flatten()


def general_variance(h: nn.Module, Z: Tensor, y: Tensor) -> Tensor:
    """Compute V (P,) of any head h, from the gradients of the n samples; in the order of `h.parameters()`.

    Z (n, d) are codes, y (n,) their labels.

    >>> h, Z, y = nn.Linear(2, 3), torch.randn(4, 2), torch.tensor([0, 1, 2, 0])
    >>> R = h(Z).softmax(1) - torch.eye(3)[y]
    >>> torch.allclose(general_variance(h, Z, y), linear_variance(Z, R), atol=1e-6)
    True
    """

    def loss(phi: Mapping[str, Tensor], z: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(h, dict(phi), (z[None],)), y[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(dict(h.named_parameters()), Z, y)
    return torch.cat([g.var(0, correction=0).flatten() for g in gradients.values()])
