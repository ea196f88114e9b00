import math
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import Algorithm, Batches, batch_of, descend
from fgmix.algorithms._config import BaseConfig, choice, log_uniform, search, setting
from fgmix.algorithms._registry import register
from fgmix.errors import UserError, bad_value
from fgmix.mixing.fgmix import FGMix
from fgmix.mixing.flatness import loss_around, margin_gamma

_LEAST_MIXED = 0.95  # share of the steps from τ on that should mix
_CLASSIFIERS = 4  # S, at which `flat_base` evaluates the base loss


class MixingConfig(BaseConfig):
    """Settings of every variant."""

    n: int = setting(32, help="mixed codes per step; 0, with flat_base, for none", ge=0)
    tau: float = setting(0.6, help="share of the run before mixing starts, τ/T", ge=0, le=1)
    domains_per_tuple: int | None = setting(None, help="domains k' in each mixed code; none for all", ge=2)
    flat_base: bool = setting(
        False, help="train the base model, where mixing starts, at classifiers in random directions around φ", late=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n == 0 and not self.flat_base:
            raise bad_value("n", "positive unless flat_base is true", 0, "Without either the method is ERM.")


class RandomConfig(MixingConfig):
    """… with random weights, within [0, 1] unless λ > 1."""

    lam: float = setting(1.0, help="scaling factor λ of the weights; 3 for random extrapolation", gt=0)


class ExtrapolationConfig(MixingConfig):
    """… with a fixed λ."""

    lam: float = setting(3.0, help="scaling factor λ of the weights", gt=0)


class FlatnessConfig(MixingConfig):
    """… with a policy that learns A_ω and λ."""

    eta2: float = search(
        1e-3, None, paper=choice(1e-4, 1e-3, 1e-2), help="learning rate η₂ of policy and discriminator", gt=0
    )
    lam: float = search(
        3.0, None, paper=choice(1.0, 3.0, 5.0, 8.0), help="initial scaling factor λ₀ of the weights", gt=0
    )
    gamma: float | None = search(
        None,
        None,
        paper=log_uniform(1, 100),
        help="distance γ of the perturbed classifiers; none: set where mixing starts, for noise of half the margin",
        gt=0,
    )
    directions: int = setting(100, help="perturbed classifiers per step", ge=1)
    scale: Literal["raw", "rms"] = setting(
        "raw", help="inputs of A_ω: raw, or rms to divide each by its root mean square"
    )
    sketch: int | None = setting(
        None, help="hash the classes to so many numbers in the inputs of A_ω, for speed; none for all", ge=2, late=True
    )


class FGMixConfig(FlatnessConfig):
    """… and a prior that keeps mixed codes close to the original ones."""

    alpha: float = search(
        0.1, None, paper=choice(0.01, 0.03, 0.1, 0.3), help="weight α of the adversarial loss", ge=0, le=1
    )


class LatentMixing(Algorithm):
    """ERM on codes and, from step τ on, also on mixed codes from `FGMix`.

    A variant is a choice of arguments of `FGMix`, with their settings. With `flat_base`, the loss from step τ on is the
    mean over S = 4 classifiers φ + γ u/‖u‖ around φ, where γ gives the logits noise of half the median margin.
    """

    Config: ClassVar[type[MixingConfig]] = MixingConfig
    year = 2022
    paper = "https://arxiv.org/abs/2209.14742"
    family = "mixup"
    cost = 1.0
    min_domains = 2
    at_work = {"tau": 0.0}
    parts: ClassVar[dict[str, Any]]  # arguments of FGMix that define the variant

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: MixingConfig) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        if config.domains_per_tuple is not None and config.domains_per_tuple > n_domains:
            raise UserError(
                f"Parameter `domains_per_tuple` should be at most the number of source domains, {n_domains}. "
                f"Found {config.domains_per_tuple}."
            )
        shared = ("n", "domains_per_tuple", "lam", "gamma", "alpha", "directions", "scale", "sketch")
        settings = {name: value for name, value in config.as_dict().items() if name in shared}
        # Initialising the policy must not advance the generator: ERM's random numbers stay the same.
        self.mixer: FGMix | None = None
        if config.n:
            with torch.random.fork_rng(devices=[]):
                self.mixer = FGMix(self.code_size, classifier, **{**settings, **self.parts})
        if self.mixer is not None and isinstance(config, FlatnessConfig):
            # A parameter group, not a second optimiser, which would cost half a millisecond per step.
            self.add_parameters(self.mixer.parameters(), lr=config.eta2, weight_decay=0.0)

    @classmethod
    def domains_per_class(cls, config: MixingConfig, n_domains: int) -> int:  # type: ignore[override]
        return min(config.domains_per_tuple or n_domains, n_domains) if config.n else 0

    @classmethod
    def review(cls, config: MixingConfig, metrics: Mapping[str, float]) -> list[str]:  # type: ignore[override]
        after = config.steps - cls.trunk_steps(config)
        share = metrics["mixed"] * config.steps / (config.n * after) if config.n else 1.0
        if share >= _LEAST_MIXED:
            return []
        return [
            f"{cls.label} mixed in {share:.0%} of the steps from τ on. In the others, no class was shared by enough "
            "domains: raise --batch-size, or use --classes-per-batch."
        ]

    @classmethod
    def trunk_steps(cls, config: MixingConfig) -> int:  # type: ignore[override]  # its own Config
        return max(0, first_mixing_step(config) - 1)

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z: Tensor = self.featurizer(x)
        if self.updates < self.trunk_steps(self.config):
            metrics = self._observe(z)
            loss = total = cross_entropy(self.classifier(z), y)
        else:
            codes, classes, others, metrics = self._mix(z, y, batches)
            if self.config.flat_base:
                gamma = margin_gamma(self.classifier, z, y)
                loss = loss_around(self.classifier, codes, classes, gamma, _CLASSIFIERS)
            else:
                loss = cross_entropy(self.classifier(codes), classes)
            total = loss + others  # they share no parameters: one backward pass serves all
        descend(self.optimizer, total)
        return {"loss": loss, **metrics}

    def _observe(self, z: Tensor) -> dict[str, Tensor]:
        """Update the prior in a step that does not mix yet, and return its metrics."""
        if self.mixer is None:
            return {}
        self.mixer.observe(z)
        return self.mixer.idle_metrics(measure=self.measures)

    def _mix(self, z: Tensor, y: Tensor, batches: Batches) -> tuple[Tensor, Tensor, Tensor | float, dict[str, Tensor]]:
        """Return codes and classes to train the base model on, the losses of policy and discriminator, and metrics."""
        if self.mixer is None:
            return z, y, 0.0, {}
        domains = _number_domains(tuple(len(y_e) for _, y_e in batches))
        first = self.updates == self.trunk_steps(self.config)  # it sets γ
        mixed = self.mixer(z, y, domains, self.classifier, measure=self.measures or first)
        others = mixed.policy_loss + mixed.discriminator_loss
        return torch.cat([z, mixed.z]), torch.cat([y, mixed.y]), others, mixed.metrics


@cache
def _number_domains(sizes: tuple[int, ...]) -> Tensor:
    """Return the domain of each sample of a batch, on the host, where counting them needs no GPU synchronisation."""
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


def first_mixing_step(config: MixingConfig) -> int:
    """Compute τ: the first step that mixes, counted from 1 as in the paper (t ≥ τ)."""
    return math.ceil(round(config.tau * config.steps, 6))  # rounded: in floating point 0.07·100 > 7


@register("fgmix")
class FGMixAlgorithm(LatentMixing):
    """Mix same-class codes of all source domains, with mixing weights learned to favour flat minima.

    From step τ on, with the codes z of one forward pass and n tuples of k samples of one class:

        s_i = Σ_{j≠i} A_ω(g_i, g_j),   a = softmax(s),   ã_i = λ a_i − (λ − 1)/k,   z_mix = Σ_i ã_i z_i
        θ, φ:   (Σ_batch l(y, h_φ(z)) + Σ_n l(y, h_φ(z_mix))) / (k·b + n)       ã constant
        ω, λ:   (1 − α) L_flat + α mean log(1 − d(z_mix))                       z and φ constant
        d:      −α mean [log d(ẑ) + log(1 − d(z_mix))]                          ẑ ~ N(μ, diag σ²)
        L_flat = mean over directions u of (L(φ) − L(φ + γ u/‖u‖))²,            L(φ) = mean l(y, h_φ(z_mix))

    where g_i = ∂l(y, h_φ(z_i))/∂φ, A_ω and λ are learned, d is a discriminator, and μ, σ² are moving averages of the
    codes. Before τ a step is bit-identical to ERM's and also updates μ and σ². All updates use the values of the same
    forward pass.

    Peng and Pan, "Learning Gradient-based Mixup with Extrapolation toward Flatter Minima for Domain Generalization",
    2022, https://arxiv.org/abs/2209.14742. `docs/algorithms/fgmix.md` lists every choice that the paper leaves open.
    The variants `fgmix_a` to `fgmix_f` are those of its ablation study, `fgmix_u` is a control that it lacks.
    `fgmix.FGMix` is the mixing step as a module, for your own training loop. `flat_base`, which is not in the paper,
    trains θ and φ at S = 4 classifiers φ + γ u/‖u‖ instead of at φ, with γ of half the median margin in every step.
    """

    label = "FGMix"
    Config = FGMixConfig
    forms = {"flat_base": {"flat_base": True}, "flat_base, n = 0": {"flat_base": True, "n": 0}}
    parts = {"weights": "learned", "inputs": "gradients"}


@register("fgmix_a")
class VariantA(LatentMixing):
    """FGMix with random weights from Dirichlet(1)."""

    label = "FGMix-A"
    Config = RandomConfig
    parts = {"weights": "dirichlet"}


@register("fgmix_b")
class VariantB(LatentMixing):
    """FGMix with weights from summed cosines of the codes."""

    label = "FGMix-B"
    parts = {"weights": "cosine", "inputs": "codes", "lam": 1.0}


@register("fgmix_c")
class VariantC(LatentMixing):
    """FGMix with weights from summed cosines of the gradients."""

    label = "FGMix-C"
    parts = {"weights": "cosine", "inputs": "gradients", "lam": 1.0}


@register("fgmix_d")
class VariantD(LatentMixing):
    """FGMix with weights from summed cosines of the gradients and a fixed λ."""

    label = "FGMix-D"
    Config = ExtrapolationConfig
    parts = {"weights": "cosine", "inputs": "gradients"}


@register("fgmix_e")
class VariantE(LatentMixing):
    """FGMix without the adversarial loss."""

    label = "FGMix-E"
    Config = FlatnessConfig
    parts = {"weights": "learned", "inputs": "gradients", "alpha": 0.0}


@register("fgmix_f")
class VariantF(LatentMixing):
    """FGMix on codes instead of gradients."""

    label = "FGMix-F"
    Config = FGMixConfig
    parts = {"weights": "learned", "inputs": "codes"}


@register("fgmix_u")
class VariantU(LatentMixing):
    """FGMix with uniform weights 1/k: every mixed code is the mean of its tuple.

    A control that the ablation study of FGMix, https://arxiv.org/abs/2209.14742, lacks: without it, "similar gradients"
    cannot be told from "not random". See `FGMixAlgorithm`.
    """

    label = "FGMix-U"
    parts = {"weights": "uniform", "lam": 1.0}
