from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, register, setting
from fgmix.functional.mixup import mixup_loss, ring_pairs

Weights = dict[str, Tensor]


@register("metamixup")
class MetaMixup(Algorithm):
    """Mixup whose λ is learned from the loss on a held-out source domain after a virtual step.

        L_mix(w, λ) = λ·CE(f_w(x̃), y) + (1 − λ)·CE(f_w(x̃), y[π]),   x̃ = λ·x + (1 − λ)·x[π]
        w'(λ) = w − η·∇_w L_mix(w, λ)                    virtual step on k − 1 domains, η the model's learning rate
        λ ← Adam(dL_val(w'(λ))/dλ), clipped to [0, 1]    L_val: cross-entropy on the domain left out
        θ, φ ← Adam(∇ mixup loss at the new λ)           real step on all k domains, paired as in `mixup`

    f_w is the network with weights w. λ is one number, kept from step to step. Every step samples the domain left out
    and π, a permutation of the samples of the other domains.

    Mai et al., "MetaMixUp: Learning Adaptive Interpolation Policy of MixUp with Meta-Learning", 2019,
    https://arxiv.org/abs/1908.10059. Variant: the authors' code is not public. The scheme is that of Meta-Weight-Net
    (Shu et al., 2019, https://arxiv.org/abs/1902.07379), a source domain replaces the paper's validation split, and the
    virtual step updates the classifier φ only; `look_ahead="network"` updates θ as well.
    """

    label = "MetaMixup"
    family = "mixup"
    cost = 1.57
    targets = "soft"
    forms = {"exact": {"look_ahead": "network"}}
    min_domains = 2
    wrappable = True
    recomputable = False

    class Config(BaseConfig):
        lam: float = setting(0.7, help="initial λ; at 0.5 its gradient is zero on average over the pairs", ge=0, le=1)
        lam_lr: float = setting(1e-3, help="learning rate of λ (Adam)", gt=0)
        look_ahead: Literal["classifier", "network"] = setting(
            "classifier", help="what the virtual step moves: h alone, or g and h (exact, second order, costlier)"
        )

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.lam = nn.Parameter(torch.tensor(config.lam, device=next(classifier.parameters()).device))
        self.lam_optimizer = Adam([self.lam], lr=config.lam_lr)  # no weight decay, which would pull λ to 0

    def update(self, batches: Batches) -> dict[str, Tensor]:
        validation, self.lam.grad = self.meta_gradient(batches)
        self.lam_optimizer.step()
        with torch.no_grad():
            self.lam.clamp_(0, 1)
        return {**super().update(batches), "validation": validation, "lam": self.lam.clone()}

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        pairs = ring_pairs(batches)
        return {"loss": mixup_loss(self.predict, pairs, self.lam.detach().expand(len(pairs)))}

    def meta_gradient(self, batches: Batches) -> tuple[Tensor, Tensor]:
        """Compute L_val after the virtual step, and dL_val/dλ; samples the validation domain t, then π."""
        t = int(torch.randint(len(batches), ()))
        x_val, y_val = batches[t]
        x, y = batch_of(batches[:t] + batches[t + 1 :])
        pi = torch.randperm(len(y)).to(y.device, non_blocking=True)
        moving, fixed = self.look_ahead_weights()

        def network(w: Weights) -> Callable[[Tensor], Tensor]:
            return lambda inputs: functional_call(self, {**fixed, **w}, inputs)

        def L_mix(w: Weights, lam: Tensor) -> Tensor:
            return mixup_loss(network(w), [((x, y), (x[pi], y[pi]))], lam[None])

        def L_val(w: Weights) -> Tensor:
            return cross_entropy(network(w)(x_val), y_val)

        rates = {id(p): group["lr"] for group in self.optimizer.param_groups for p in group["params"]}
        eta = {name: rates[id(p)] for name, p in moving.items()}
        # If g moves, it is differentiated twice, for which the fused kernels of attention have no derivative.
        twice = any(name.startswith("featurizer.") for name in moving)
        with sdpa_kernel(SDPBackend.MATH) if twice else nullcontext():
            return look_ahead_gradient(L_mix, L_val, moving, self.lam, eta)

    def look_ahead_weights(self) -> tuple[Weights, Weights]:
        """Return weights that the virtual step updates, and all others as constants.

        Buffers are copied: the virtual step must not change batch-norm's running statistics.
        """
        on_head = self.config.look_ahead == "classifier" and any(p.requires_grad for p in self.classifier.parameters())
        movers = self.classifier if on_head else self  # of a frozen head, everything else
        ids = {id(p) for p in movers.parameters() if p.requires_grad and p is not self.lam}
        moving: Weights = {name: p for name, p in self.named_parameters() if id(p) in ids}
        fixed: Weights = {name: p.detach() for name, p in self.named_parameters() if id(p) not in ids}
        return moving, {**fixed, **{name: buffer.clone() for name, buffer in self.named_buffers()}}


def look_ahead_gradient(
    L_mix: Callable[[Weights, Tensor], Tensor],
    L_val: Callable[[Weights], Tensor],
    weights: Weights,
    lam: Tensor,
    eta: Mapping[str, float],
) -> tuple[Tensor, Tensor]:
    """Compute L_val(w'(λ)) and dL_val(w'(λ))/dλ = −η·∇L_val(w')·∂_λ∇_w L_mix(w, λ), with w'(λ) = w − η·∇_w L_mix(w, λ).

    L_mix(w, λ) is the loss of the virtual step, L_val(w) the loss that λ, which requires a gradient, should reduce. η
    is the learning rate of each weight, by name.

    >>> phi, lam = {"phi": torch.tensor(0.0, requires_grad=True)}, torch.tensor(2.0, requires_grad=True)
    >>> _, slope = look_ahead_gradient(lambda w, l: l * w["phi"], lambda w: 3 * w["phi"], phi, lam, eta={"phi": 0.1})
    >>> round(float(slope), 6)  # φ' = −0.1·λ
    -0.3
    """
    gradients = torch.autograd.grad(
        L_mix(weights, lam), list(weights.values()), create_graph=True, allow_unused=True, materialize_grads=True
    )
    ahead = {name: w - eta[name] * g for (name, w), g in zip(weights.items(), gradients)}
    validation = L_val(ahead)
    (derivative,) = torch.autograd.grad(validation, lam)
    return validation, derivative
