"""FGMix as a module for custom training loops: it needs only codes, classes, domain ids and a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam

from fgmix.errors import UserError
from fgmix.functional.gradients import Pullback, with_gradients
from fgmix.mixing import tuples
from fgmix.mixing._checks import check_batch, check_head, count_outputs
from fgmix.mixing._heads import block_sizes, chain_of, logits_of
from fgmix.mixing.effect import METRICS, measure_effect
from fgmix.mixing.flatness import differentiate_flat_loss, margins, measure_noise, relative_gamma
from fgmix.mixing.prior import (
    Averages,
    Discriminator,
    Flag,
    Prior,
    fill_if,
    is_finite,
    negate,
    sample_gaussian,
    write_if,
)
from fgmix.mixing.scores import (
    Compatibility,
    LinearGradients,
    Vectors,
    classifier_gradients,
    cosine_scores,
    hash_outputs,
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
    policy_loss: Tensor  # to be minimised by the policy
    discriminator_loss: Tensor  # and by the discriminator
    metrics: dict[str, Tensor]  # detached scalars, not to be changed in place; see `FGMix.idle_metrics`
    weights: Tensor  # ã of each mixed code (n, k), detached; a negative weight means extrapolation


class _Losses(NamedTuple):
    """Losses of policy and discriminator as constants, with their gradients."""

    policy: Tensor
    in_A: Tensor | None  # the gradient of the policy loss in the mixing weights A (n, m); None if nothing is learned
    discriminator: Tensor
    pull_discriminator: Pullback  # from the discriminator loss to the parameters of the discriminator
    terms: dict[str, Tensor]


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
        sketch: q < C for A_ω on hashed gradients: each output of a linear layer is assigned to one of q numbers with a
            random sign, so that g_i has q(d + 1) instead of C(d + 1) elements and inner products are kept on average.
            With 345 classes or several layers, A_ω is most of the time of a step. None for the gradients themselves.
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
        self.register_buffer("hashes", None if sketch is None else hash_outputs(count_outputs(classifier), sketch))
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
            measure: whether to compute all metrics and to compare classes with the classifier's; else only `mixed` is
                returned. On a GPU, only a call that measures sets γ.
        """
        mix = self._mix
        if torch.compiler.is_compiling():
            mix = torch.compiler.disable(mix)  # compiled, the three losses would share one backward graph
        n_classes = check_batch(z, y, domains, classifier, self.code_size, read=measure)
        # In the precision of the policy's parameters: bfloat16 is too coarse for squared differences of losses.
        with torch.autocast(z.device.type, enabled=False):
            mixed: Mixed = mix(z, y, domains, classifier, n_classes, generator, measure)
            return mixed

    def _mix(
        self,
        z: Tensor,
        y: Tensor,
        domains: Tensor,
        classifier: nn.Module,
        n_classes: int,
        generator: torch.Generator | None,
        measure: bool,
    ) -> Mixed:
        whole = z.detach().to(self.lam.dtype)
        averages, finite = self._follow(whole)
        broken = negate(finite)
        index, labels = draw_tuples(y, domains, self.n, self.domains_per_tuple, generator, n_classes=n_classes)
        if len(labels) == 0:
            self._write(averages, finite)
            zero = _zero_loss(z)
            return Mixed(z[:0], labels, zero, zero, self._mask(None, finite, finite, measure), z.new_zeros(0, 0))
        used, position = distinct_samples(index)  # a sample of several tuples is processed once
        # Values that are not finite are replaced before they propagate: a masked gradient of 0 · NaN is NaN.
        live = fill_if(broken, z[used] if isinstance(used, slice) else z.index_select(0, used)).to(self.lam.dtype)
        codes, classes = live.detach(), labels if tuples.on_host(labels) else labels.clamp(min=0)
        a, pull_scores, seen = self._weights(codes, y[used], position, classifier, generator, measure)  # (n, k)
        a_tilde = scale_and_shift(a, self.lam.detach())
        A = mixing_matrix(a_tilde, position, len(codes))  # (n, m)
        z_mix = A @ live

        gamma, distance = self._distance(whole, y, classifier, measure)
        z_prior = fill_if(broken, sample_gaussian(averages, len(labels), generator)) if averages else None
        losses = self._losses(A, codes, z_mix.detach(), z_prior, classes, gamma, classifier, generator)
        metrics = {}
        if measure:
            logits = logits_of(classifier, whole)
            metrics = {
                "mixed": torch.full_like(self.lam.detach(), len(labels)),
                **seen,
                **losses.terms,
                **distance,
                "lam": self.lam.detach().clone(),  # before the update
                "extrapolated": extrapolated_share(a_tilde),
                "entropy": entropy(a),
                **measure_effect(classifier, (z_mix.detach(), classes), (whole, y), logits, index, a_tilde),
            }

        # The update: nothing is mixed or changed if something is not finite.
        # The losses are not finite if a mixed code is not.
        checked = (z_mix,) if self.compatibility is None else (losses.policy, losses.discriminator)
        fine = is_finite(*checked) & finite
        unshared = None if tuples.on_host(labels) else labels[0] == IGNORED  # no class to mix: only the prior changes
        wrong = negate(fine) if unshared is None else negate(fine) | unshared
        policy_loss, discriminator_loss = self._attach(losses, a, position, pull_scores, wrong)
        skipped = self._update(policy_loss, discriminator_loss, wrong)
        fine = negate(skipped)
        if self.training and gamma is not self.gamma:
            write_if(fine, self.gamma, gamma)
        kept = fine if unshared is None else fine | (unshared & finite)
        self._write(averages, kept)
        return Mixed(
            fill_if(skipped, z_mix.to(z.dtype)),
            fill_if(skipped, labels, IGNORED),
            policy_loss,
            discriminator_loss,
            self._mask(metrics, fine, kept, measure),
            a_tilde,
        )

    def _attach(
        self, losses: _Losses, a: Tensor, position: Tensor, pull_scores: Pullback, wrong: Flag
    ) -> tuple[Tensor, Tensor]:
        """Return the two losses with their gradients in the parameters of the policy and of the discriminator.

        Args:
            losses: their values and gradients.
            a: weights before scale and shift (n, k).
            position: of the members of the tuples among the codes that are mixed (n, k).
            pull_scores: from the scores to the parameters of A_ω.
            wrong: whether losses and gradients are to be zero.
        """
        if self.compatibility is None or losses.in_A is None:
            return losses.policy, losses.discriminator
        in_tilde = fill_if(wrong, losses.in_A).gather(1, position)

        def pull(upstream: Tensor) -> list[Tensor]:
            g = in_tilde * upstream
            in_lam = torch.dot(g.flatten(), (a - 1 / a.shape[1]).flatten())
            g = g * a
            in_scores = self.lam.detach() * torch.addcmul(g, a, g.sum(1, keepdim=True), value=-1)
            return [in_lam, *pull_scores(in_scores)]

        policy = with_gradients([self.lam, *self.compatibility.tensors()], fill_if(wrong, losses.policy), pull)
        if self.discriminator is None:
            return policy, losses.discriminator
        pull_disc = losses.pull_discriminator
        disc = fill_if(wrong, losses.discriminator)
        return policy, with_gradients(
            self.discriminator.tensors(), disc, lambda upstream: pull_disc(fill_if(wrong, upstream))
        )

    def _follow(self, z: Tensor) -> tuple[Averages | None, Flag]:
        """Return the averages of the prior after a batch of codes, None without a prior, and whether it is finite."""
        if self.prior is None:
            return None, is_finite(z)
        averages = self.prior.follow(z) if self.training else self.prior.averages()
        return averages, is_finite(averages[1] if self.training else z)

    def _write(self, averages: Averages | None, condition: Flag) -> None:
        """Write averages to the prior if the condition holds."""
        if self.prior is not None and averages is not None and self.training:
            self.prior.write(averages, condition)

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

    def _mask(self, metrics: dict[str, Tensor] | None, fine: Flag, finite: Flag, measure: bool) -> dict[str, Tensor]:
        """Return the metrics of a batch if it is fine, else those of a step that mixes nothing; with `skipped` set."""
        if not measure:
            count = _make_count(self.n if metrics is not None else 0, self.lam.device)
            return {"mixed": fill_if(negate(fine), count)}
        idle = {**self.idle_metrics(), "skipped": fill_if(finite, torch.ones_like(self.lam))}
        if isinstance(fine, bool):
            return {**idle, **(metrics or {})} if fine else idle
        found = torch.stack([(metrics or {}).get(name, value) for name, value in idle.items()])
        return dict(zip(idle, torch.where(fine, found, torch.stack(list(idle.values()))).unbind()))

    def _input_sizes(self, classifier: nn.Module | int) -> list[int]:
        """Return block sizes of the inputs of A_ω."""
        if self.inputs == "codes":
            return [self.code_size]
        if self.hashes is None:
            if isinstance(classifier, int):
                return [classifier * self.code_size, classifier]
            return block_sizes(classifier)
        head = nn.Linear(self.code_size, classifier) if isinstance(classifier, int) else classifier
        layers = chain_of(head) or ()
        linears, q = [layer for layer in layers if isinstance(layer, nn.Linear)], self.hashes.shape[1]
        return [size for layer in linears for size in [q * layer.in_features, q][: 1 + (layer.bias is not None)]]

    def _weights(
        self,
        z: Tensor,
        y: Tensor,
        position: Tensor,
        classifier: nn.Module,
        generator: torch.Generator | None,
        measure: bool,
    ) -> tuple[Tensor, Pullback, dict[str, Tensor]]:
        """Return weights a (n, k) of the tuples, the pullback of their scores to A_ω, and the mean norm of its inputs
        as a metric."""
        n, k = position.shape
        if self.weights == "uniform":
            return z.new_full((n, k), 1 / k), _to_nothing, {}
        if self.weights == "dirichlet":
            return dirichlet_weights(n, k, generator, device=z.device, dtype=z.dtype), _to_nothing, {}
        vectors: Vectors | LinearGradients = Vectors((z,))
        if self.inputs == "gradients":
            vectors = classifier_gradients(classifier, z, y)
        if self.hashes is not None and isinstance(vectors, LinearGradients):
            vectors = vectors.hash(self.hashes)
        if self.compatibility is None:
            return torch.softmax(cosine_scores(vectors, position), 1), _to_nothing, {}
        if self.compatibility.sizes != (sizes := self._input_sizes(classifier)):
            raise UserError(
                f"Expected the classifier that FGMix was built for, with parameters of sizes "
                f"{self.compatibility.sizes}. Found {sizes}. Build FGMix with the classifier that it is called with."
            )
        metrics = {"input_norm": vectors.norms().mean()} if measure else {}
        if self.scale == "rms":
            vectors = vectors.normalise()
        scores, pull = self.compatibility.evaluate(vectors, position)
        return torch.softmax(scores, 1), pull, metrics

    def _losses(
        self,
        A: Tensor,
        z: Tensor,
        z_mix: Tensor,
        z_prior: Tensor | None,
        y: Tensor,
        gamma: Tensor,
        classifier: nn.Module,
        generator: torch.Generator | None,
    ) -> _Losses:
        """Compute both losses as constants, and their gradients.

        Args:
            A: mixing weights (n, m); as all other arguments, constants.
            z: codes that are mixed (m, d).
            z_mix: mixed codes A z (n, d).
            z_prior: codes ẑ of the prior (n, d), None without a discriminator.
            y: classes of the mixed codes (n,).
            gamma: γ.
            classifier: h_φ.
            generator: on the device of z.
        """
        if self.compatibility is None:
            return _Losses(_zero_loss(z), None, _zero_loss(z), _to_nothing, {})
        flat, in_A = differentiate_flat_loss(
            classifier, A, z, y, gamma=gamma, directions=self.directions, generator=generator
        )
        if self.discriminator is None or z_prior is None:
            return _Losses(flat, in_A, _zero_loss(z), _to_nothing, {"flat": flat})
        alpha = self.alpha
        adv, disc, in_codes, pull = self.discriminator.losses(z_prior, z_mix, alpha)
        in_A = torch.addmm(in_A, in_codes, z.T, beta=1 - alpha, alpha=-1)  # of −α·adv in the codes
        return _Losses(torch.lerp(flat, adv, alpha), in_A, disc, pull, {"flat": flat, "adv": adv, "disc": disc})

    def _distance(self, z: Tensor, y: Tensor, classifier: nn.Module, measure: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Return γ, chosen now if not yet, and the median noise of the logits at γ over the median margin of the batch
        as a metric. Weights that are not learned need neither."""
        on_host = self.gamma.device.type == "cpu"  # elsewhere, reading γ would synchronise
        if self.compatibility is None or not (measure or (on_host and not self.gamma)):
            return self.gamma, {}
        noise, margin = measure_noise(classifier, z, margins(classifier, z, y))
        relative = relative_gamma(noise, margin, sum(block_sizes(classifier)))
        gamma = torch.where(self.gamma > 0, self.gamma, relative)
        return gamma, {"noise_to_margin": torch.where(margin > 0, gamma * noise / margin, 0.0)}

    def _update(self, policy_loss: Tensor, discriminator_loss: Tensor, wrong: Flag) -> Flag:
        """Update the parameters if this module has an optimiser; return whether a gradient, too, is wrong."""
        optimizer = self.optimizer
        if optimizer is None or not self.training or not torch.is_grad_enabled():
            return wrong
        optimizer.zero_grad(set_to_none=True)
        (policy_loss + discriminator_loss).backward()
        wrong = wrong | negate(is_finite(*(p.grad for p in self.parameters() if p.grad is not None)))
        if isinstance(wrong, Tensor):  # the attribute by which a gradient scaler makes a fused step change nothing
            optimizer.found_inf = wrong.float()  # type: ignore[attr-defined]
        if wrong is not True:
            optimizer.step()
        return wrong

    def get_extra_state(self) -> dict[str, Any]:
        return {"optimizer": None if self.optimizer is None else self.optimizer.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if self.optimizer is not None and state["optimizer"] is not None:
            self.optimizer.load_state_dict(state["optimizer"])


@lru_cache(16)
def _make_count(n: int, device: torch.device) -> Tensor:
    """Return n as a metric."""
    with torch.inference_mode(False):
        return torch.tensor(float(n), device=device)


def _to_nothing(gradient: Tensor) -> list[Tensor]:  # noqa: ARG001
    """Pull a gradient back to what has no parameters."""
    return []


def _zero_loss(z: Tensor) -> Tensor:
    """Return a zero loss that can be backpropagated but updates nothing: optimisers skip what has no gradient."""
    return torch.zeros((), device=z.device, requires_grad=True)
