"""FGMix as a module for custom training loops: it needs only codes, classes, domain ids and a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Adam

from fgmix.errors import UserError
from fgmix.mixing._checks import check_batch, check_head, count_classes
from fgmix.mixing._heads import block_sizes, logits_of
from fgmix.mixing.effect import METRICS, measure_effect
from fgmix.mixing.flatness import flat_loss, margins, measure_noise, relative_gamma
from fgmix.mixing.prior import Discriminator, Prior, is_finite, sample_gaussian
from fgmix.mixing.scores import (
    Compatibility,
    LinearGradients,
    Vectors,
    classifier_gradients,
    cosine_scores,
    hash_classes,
)
from fgmix.mixing.tuples import IGNORED, distinct_samples, draw_tuples
from fgmix.mixing.weights import dirichlet_weights, entropy, extrapolated_share, mixing_matrix, scale_and_shift
from fgmix.records.options import check_value

Weights = Literal["learned", "cosine", "dirichlet", "uniform"]
Inputs = Literal["gradients", "codes"]
Scale = Literal["raw", "rms"]


@dataclass(frozen=True)
class Mixed:
    """The result of one call of `FGMix`.

    Gradients of `z` reach the featurizer and not the policy; those of `policy_loss` reach only the policy, and those of
    `discriminator_loss` only the discriminator. The losses can be ignored if the module has its own optimiser. They
    depend on no parameter if nothing was mixed or nothing is learned.
    """

    z: Tensor  # mixed codes (n, d); zeros if the batch was skipped; if no class is shared, (0, d), on a GPU zeros
    y: Tensor  # their classes (n,); −100 for codes of zeros, which `cross_entropy` ignores
    policy_loss: Tensor
    discriminator_loss: Tensor
    metrics: dict[str, Tensor]  # detached scalars, see `FGMix.idle_metrics`
    weights: Tensor  # ã of each mixed code (n, k), detached; a negative weight means extrapolation


class FGMix(nn.Module):
    """Mix codes of the same class from different domains, with weights of a policy that is trained for flat minima.

        s_i = Σ_{j≠i} A_ω(g_i, g_j),  a = softmax(s),  ã_i = λ a_i − (λ−1)/k,  z_mix = Σ ã_i z_i
        policy (ω, λ): (1−α)·L_flat + α·mean log(1 − d(z_mix))
        discriminator: −α·mean[log d(ẑ) + log(1 − d(z_mix))],  ẑ ~ N(μ, diag σ²) with moving averages of the codes

    Peng and Pan, "Learning Gradient-based Mixup with Extrapolation toward Flatter Minima for Domain Generalization",
    https://arxiv.org/abs/2209.14742. `docs/algorithms/fgmix.md` lists every choice that the paper leaves open.

    Call it on the codes of a batch and train the base model on codes and mixed codes together. Without `lr`, optimise
    the parameters of this module yourself: backpropagate `policy_loss + discriminator_loss` in the same step. With
    `lr`, each call in training mode also updates them with Adam, whose state is part of `state_dict()`. The mixed codes
    that a call returns are computed before this update.

    A batch is skipped if codes, mixed codes, losses or (with `lr`) gradients are not finite: the state of this module
    does not change, the metric `skipped` is 1, and mixed codes are zeros of class −100, which `cross_entropy` ignores.
    The two losses are then zero with zero gradients, unless only gradients are not finite. This does not synchronise
    with a GPU.

    Args:
        code_size: d, the width of the latent codes.
        classifier: the head whose gradients are compared, or its number of classes if it is one Linear layer with a
            bias. Only its size is used here; each call is passed the head again, with its current parameters.
        n: number of mixed codes per call.
        weights: "learned" (A_ω and λ are learned), "cosine" (summed cosines, λ fixed), "dirichlet" (random, λ fixed) or
            "uniform" (1/k).
        inputs: what the scores compare: "gradients" of the classifier's loss, or "codes".
        scale: "raw", or "rms" to divide each input of A_ω by its root mean square.
        sketch: q < C for A_ω on hashed gradients of one Linear layer: each class is assigned to one of q numbers with a
            random sign, so that g_i has q(d + 1) instead of C(d + 1) elements and inner products are kept on average.
            With 345 classes, A_ω is most of the time of a step. None for the gradients themselves.
        lam: λ, the initial value if it is learned; 1 for no scaling.
        gamma: γ, the distance of the perturbed classifiers in L_flat, in the paper's units (norm of a step in φ). None
            sets it in the first training-mode call that mixes, such that the noise of the logits is half the median
            margin of the batch; the value is part of the state.
        alpha: α, weight of the adversarial loss; 0 for no discriminator.
        directions: number of perturbed classifiers per call.
        domains_per_tuple: k', number of domains in each mixed code; None for all domains of the batch.
        lr: learning rate of the module's own optimiser; None for no optimiser.

    >>> classifier = nn.Linear(8, 4)
    >>> fgmix = FGMix(8, classifier, lr=1e-3)
    >>> z, y, domains = torch.randn(12, 8), torch.arange(12) % 4, torch.arange(3).repeat_interleave(4)
    >>> mixed = fgmix(z, y, domains, classifier)
    >>> loss = nn.functional.cross_entropy(classifier(torch.cat([z, mixed.z])), torch.cat([y, mixed.y]))
    >>> mixed.z.shape
    torch.Size([32, 8])
    """

    def __init__(
        self,
        code_size: int,
        classifier: nn.Module | int,
        *,
        n: int = 32,
        weights: Weights = "learned",
        inputs: Inputs = "gradients",
        scale: Scale = "raw",
        sketch: int | None = None,
        lam: float = 3.0,
        gamma: float | None = None,
        alpha: float = 0.1,
        directions: int = 100,
        domains_per_tuple: int | None = None,
        lr: float | None = None,
    ) -> None:
        super().__init__()
        check_head(classifier)
        self.code_size: int = check_value("code_size", int, code_size, ge=1, le=1_000_000)
        self.n: int = check_value("n", int, n, ge=1, le=1_000_000)
        self.weights: Weights = check_value("weights", Weights, weights)
        self.inputs: Inputs = check_value("inputs", Inputs, inputs)
        self.scale: Scale = check_value("scale", Scale, scale)
        self.alpha: float = check_value("alpha", float, alpha, ge=0, le=1)
        self.directions: int = check_value("directions", int, directions, ge=1, le=1_000_000)
        self.domains_per_tuple: int | None = check_value("domains_per_tuple", int | None, domains_per_tuple, ge=2)
        sketch = check_value("sketch", int | None, sketch, ge=2)
        lam, lr = check_value("lam", float, lam), check_value("lr", float | None, lr, gt=0)
        gamma = check_value("gamma", float | None, gamma, gt=0)

        learned = weights == "learned"
        self.lam: Tensor  # a parameter if λ is learned, else a buffer
        if learned:
            self.lam = nn.Parameter(torch.tensor(lam))
        else:
            self.register_buffer("lam", torch.tensor(lam))
        self.gamma: Tensor
        self.register_buffer("gamma", torch.tensor(0.0 if gamma is None else gamma))  # 0: not set yet
        if sketch is not None and (not learned or inputs != "gradients"):
            raise UserError("Parameter `sketch` hashes the gradients that A_ω compares. Found none. Leave it out.")
        self.hashes: Tensor | None
        self.register_buffer("hashes", None if sketch is None else hash_classes(count_classes(classifier), sketch))
        self.compatibility = Compatibility(self._input_sizes(classifier)) if learned else None
        self.prior = Prior(code_size) if learned and alpha > 0 else None
        self.discriminator = Discriminator(code_size) if learned and alpha > 0 else None
        self.optimizer = Adam(self.parameters(), lr=lr, fused=True) if learned and lr is not None else None

    def forward(
        self,
        z: Tensor,
        y: Tensor,
        domains: Tensor,
        classifier: nn.Module,
        generator: torch.Generator | None = None,
        *,
        measure: bool = True,
    ) -> Mixed:
        """Mix a batch.

        Args:
            z: codes (N, d), attached to the graph of the featurizer.
            y: classes (N,).
            domains: domain ids (N,), on the device of z or, to avoid a synchronisation with a GPU, on the CPU.
            classifier: h_φ with its current parameters, evaluated in evaluation mode; not changed.
            generator: on the device of z; None for torch's global one.
            measure: whether to compute all metrics, a quarter of the operations of a call; else only `mixed`. On a GPU,
                only a call that measures sets γ.
        """
        mix = self._mix
        if torch.compiler.is_compiling():
            mix = torch.compiler.disable(mix)  # compiled, the three losses would share one backward graph
        check_batch(z, y, domains, classifier, self.code_size)
        # In the precision of the policy's parameters: bfloat16 is too coarse for squared differences of losses.
        with torch.autocast(z.device.type, enabled=False):
            mixed: Mixed = mix(z, y, domains, classifier, generator, measure)
            return mixed

    def _mix(
        self,
        z: Tensor,
        y: Tensor,
        domains: Tensor,
        classifier: nn.Module,
        generator: torch.Generator | None,
        measure: bool,
    ) -> Mixed:
        whole = z.detach().to(self.lam.dtype)
        averages, finite = self._follow(whole)
        index, labels = draw_tuples(y, domains, self.n, self.domains_per_tuple, generator)
        if len(labels) == 0:
            self._write(averages, finite)
            zero = _zero_loss(z)
            return Mixed(z[:0], labels, zero, zero, self._mask({}, finite, finite, measure), z.new_zeros(0, 0))
        used, position = distinct_samples(index, len(z))  # a sample of several tuples is processed once
        # Values that are not finite are replaced before they propagate: a masked gradient of 0 · NaN is NaN.
        live = torch.where(finite, z.index_select(0, used), 0).to(self.lam.dtype)
        codes, classes = live.detach(), labels.clamp(min=0)
        a, seen = self._weights(codes, y[used], position, classifier, generator, measure)  # (n, k)
        a_tilde = scale_and_shift(a, self.lam)
        A = mixing_matrix(a_tilde, position, len(used))  # (n, m)
        z_mix = A.detach() @ live

        gamma, distance = self._distance(whole, y, classifier, measure)
        policy, disc, terms = self._losses(A, codes, classes, gamma, averages, classifier, generator)
        metrics = {"mixed": torch.full_like(self.lam, len(labels))}
        if measure:
            logits, weights = logits_of(classifier, whole), a_tilde.detach()
            metrics |= {
                **seen,
                **terms,
                **distance,
                "lam": self.lam.detach().clone(),  # before the update
                "extrapolated": extrapolated_share(weights),
                "entropy": entropy(a.detach()),
                **measure_effect(classifier, (z_mix.detach(), classes), (whole, y), logits, index, weights),
            }
        mixed = Mixed(z_mix.to(z.dtype), labels, policy, disc, metrics, a_tilde.detach())
        return self._settle(mixed, A, gamma, averages, finite, measure)

    def _settle(
        self, mixed: Mixed, A: Tensor, gamma: Tensor, averages: tuple[Tensor, ...], finite: Tensor, measure: bool
    ) -> Mixed:
        """Return the result of a call after the update of the policy; if it is not finite, nothing is mixed or changed.

        Args:
            mixed: the result before the update.
            A: mixing weights (n, m), through which the gradients of both terms of the policy loss pass.
            gamma: γ, written if it is chosen in this call.
            averages: of the prior, written too.
            finite: whether the codes of the batch are.
            measure: whether all metrics are computed.
        """
        unshared = mixed.y[0] == IGNORED  # there is no class to mix: only the prior changes
        wrong = ~(is_finite(mixed.z, mixed.policy_loss, mixed.discriminator_loss) & finite) | unshared
        if A.requires_grad:
            A.register_hook(lambda gradient: gradient.masked_fill(wrong, 0))
        policy_loss, discriminator_loss = (
            loss.masked_fill(wrong, 0) for loss in (mixed.policy_loss, mixed.discriminator_loss)
        )
        skipped = self._update(policy_loss + discriminator_loss, wrong)
        fine = ~skipped
        if self.training and gamma is not self.gamma:
            torch.where(fine, gamma, self.gamma, out=self.gamma)
        kept = fine | (unshared & finite)
        self._write(averages, kept)
        return Mixed(
            mixed.z.masked_fill(skipped, 0),
            mixed.y.masked_fill(skipped, IGNORED),
            policy_loss,
            discriminator_loss,
            self._mask(mixed.metrics, fine, kept, measure),
            mixed.weights,
        )

    def _follow(self, z: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the averages of the prior after a batch of codes, none without a prior, and whether it is finite."""
        if self.prior is None:
            return (), is_finite(z)
        return self.prior.follow(z) if self.training else (self.prior.averages(), is_finite(z))

    def _write(self, averages: tuple[Tensor, ...], condition: Tensor) -> None:
        """Write averages to the prior if the condition holds."""
        if self.prior is not None and self.training:
            for old, new in zip(self.prior.averages(), averages):
                torch.where(condition, new, old, out=old)

    def observe(self, z: Tensor) -> None:
        """Update the prior's averages with codes, in steps that do not mix yet; a call in training mode does so too."""
        if self.prior is not None:
            self.prior.observe(z.detach())

    def idle_metrics(self, *, measure: bool = True) -> dict[str, Tensor]:
        """Return metrics of a step that mixes nothing: the same names as in any other step, all zero except λ.

        Every step has mixed (number of mixed codes); with `measure` also lam (λ before its update), extrapolated (share
        of tuples with a negative weight), entropy (of the weights before scale and shift), skipped (1 for a batch that
        is not finite) and what `effect.measure_effect` measures: mixed_loss, mixed_margin, gradient_ratio and
        margin_correlation.
        A learned policy adds flat (L_flat), noise_to_margin (median noise of the logits at γ over the median margin of
        the batch; 0 if the margin is not positive) and input_norm (mean norm of the inputs of A_ω before scaling), and
        a discriminator adds adv and disc (the adversarial loss, and α times the discriminator loss).
        """
        if not measure:
            return {"mixed": torch.zeros_like(self.lam)}
        names = ["extrapolated", "mixed", "entropy", "skipped", *METRICS]
        names += ["flat", "noise_to_margin", "input_norm"] if self.compatibility is not None else []
        names += ["adv", "disc"] if self.discriminator is not None else []
        return {**dict.fromkeys(names, torch.zeros_like(self.lam)), "lam": self.lam.detach().clone()}

    def _mask(self, metrics: dict[str, Tensor], fine: Tensor, finite: Tensor, measure: bool) -> dict[str, Tensor]:
        """Return the metrics of a batch if it is fine, else those of a step that mixes nothing; with `skipped` set."""
        if not measure:
            return {name: value * fine for name, value in (metrics or self.idle_metrics(measure=False)).items()}
        idle = {**self.idle_metrics(), "skipped": (~finite).to(self.lam.dtype)}
        found = torch.stack([metrics.get(name, value) for name, value in idle.items()])
        return dict(zip(idle, torch.where(fine, found, torch.stack(list(idle.values()))).unbind()))

    def _input_sizes(self, classifier: nn.Module | int) -> list[int]:
        """Return block sizes of the inputs of A_ω."""
        if self.inputs == "codes":
            return [self.code_size]
        sizes = [classifier * self.code_size, classifier] if isinstance(classifier, int) else block_sizes(classifier)
        if self.hashes is None:
            return sizes
        n_classes, sketch = self.hashes.shape
        return [size // n_classes * sketch for size in sizes]

    def _weights(
        self,
        z: Tensor,
        y: Tensor,
        position: Tensor,
        classifier: nn.Module,
        generator: torch.Generator | None,
        measure: bool,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return weights a (n, k) of the tuples, and the mean norm of the inputs of A_ω as a metric."""
        n, k = position.shape
        if self.weights == "uniform":
            return z.new_full((n, k), 1 / k), {}
        if self.weights == "dirichlet":
            return dirichlet_weights(n, k, generator, device=z.device, dtype=z.dtype), {}
        vectors: Vectors | LinearGradients = Vectors((z,))
        if self.inputs == "gradients":
            vectors = classifier_gradients(classifier, z, y)
        if self.hashes is not None and isinstance(vectors, LinearGradients):
            vectors = vectors.hash(self.hashes)
        if self.compatibility is None:
            return torch.softmax(cosine_scores(vectors, position), 1), {}
        if self.compatibility.sizes != (sizes := self._input_sizes(classifier)):
            raise UserError(
                f"Expected the classifier that FGMix was built for, with parameters of sizes "
                f"{self.compatibility.sizes}. Found {sizes}. Build FGMix with the classifier that it is called with."
            )
        metrics = {"input_norm": vectors.norms().mean()} if measure else {}
        if self.scale == "rms":
            vectors = vectors.normalise()
        return torch.softmax(self.compatibility.scores(vectors, position), 1), metrics

    def _losses(
        self,
        A: Tensor,
        z: Tensor,
        y: Tensor,
        gamma: Tensor,
        averages: tuple[Tensor, ...],
        classifier: nn.Module,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Compute the policy loss, discriminator loss, and their terms as metrics.

        Args:
            A: mixing weights (n, m).
            z: codes that are mixed (m, d), constants.
            y: classes of the mixed codes (n,).
            gamma: γ.
            averages: of the prior.
            classifier: h_φ.
            generator: on the device of z.
        """
        if self.compatibility is None:
            return _zero_loss(z), _zero_loss(z), {}
        flat = flat_loss(classifier, A, z, y, gamma=gamma, directions=self.directions, generator=generator)
        if self.discriminator is None:
            return flat, _zero_loss(z), {"flat": flat.detach()}
        mean, var, _ = averages
        adv, disc = self.discriminator.losses(sample_gaussian(mean, var, len(y), generator), A @ z)
        policy, disc = (1 - self.alpha) * flat + self.alpha * adv, self.alpha * disc
        return policy, disc, {"flat": flat.detach(), "adv": adv.detach(), "disc": disc.detach()}

    def _distance(self, z: Tensor, y: Tensor, classifier: nn.Module, measure: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Return γ, chosen now if not yet, and the median noise of the logits at γ over the median margin of the batch
        as a metric. Weights that are not learned need neither."""
        on_host = self.gamma.device.type == "cpu"  # elsewhere, reading γ would synchronise
        if self.compatibility is None or not (measure or (on_host and self.gamma == 0)):
            return self.gamma, {}
        noise, margin = measure_noise(classifier, z, margins(classifier, z, y))
        relative = relative_gamma(noise, margin, sum(block_sizes(classifier)))
        gamma = torch.where(self.gamma > 0, self.gamma, relative)
        return gamma, {"noise_to_margin": torch.where(margin > 0, gamma * noise / margin, 0.0)}

    def _update(self, loss: Tensor, wrong: Tensor) -> Tensor:
        """Update the parameters if this module has an optimiser; return whether a gradient, too, is wrong."""
        optimizer = self.optimizer
        if optimizer is None or not self.training or not torch.is_grad_enabled():
            return wrong
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        wrong = wrong | ~is_finite(*(p.grad for p in self.parameters() if p.grad is not None))
        # The attribute by which a gradient scaler makes a fused step change nothing.
        optimizer.found_inf = wrong.float()  # type: ignore[attr-defined]
        optimizer.step()
        return wrong

    def get_extra_state(self) -> dict[str, Any]:
        return {"optimizer": None if self.optimizer is None else self.optimizer.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if self.optimizer is not None and state["optimizer"] is not None:
            self.optimizer.load_state_dict(state["optimizer"])


def _zero_loss(z: Tensor) -> Tensor:
    """Return a zero loss that can be backpropagated but updates nothing: optimisers skip what has no gradient."""
    return torch.zeros((), device=z.device, requires_grad=True)
