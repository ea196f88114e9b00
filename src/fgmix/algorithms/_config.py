"""Settings of an algorithm: one declaration gives default, search distribution, help and record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, dataclass_transform

import numpy as np

from fgmix.errors import bad_value, unknown
from fgmix.records.options import check_options, declare, options_of
from fgmix.records.protocols import DEFAULTS, PROTOCOLS
from fgmix.records.schema import OPTIMIZER


class Distribution(Protocol):
    """The search distribution of one hyper-parameter, sampled with its own generator."""

    def draw(self, rng: np.random.RandomState) -> Any: ...


@dataclass(frozen=True)
class Uniform:
    """U(low, high); `integer` truncates, as DomainBed does for numbers of steps."""

    low: float
    high: float
    integer: bool = False

    def draw(self, rng: np.random.RandomState) -> float | int:
        value = float(rng.uniform(self.low, self.high))
        return int(value) if self.integer else value


@dataclass(frozen=True)
class LogUniform:
    """base^U(low, high), with bounds given as exponents; `integer` truncates, as DomainBed does for batch sizes."""

    low: float
    high: float
    base: float = 10.0
    integer: bool = False

    def draw(self, rng: np.random.RandomState) -> float | int:
        value = float(self.base ** rng.uniform(self.low, self.high))
        return int(value) if self.integer else value


@dataclass(frozen=True)
class Choice:
    """One of the listed values, with equal probability."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.RandomState) -> Any:
        # choice over the values, not over indices: uses the generator as DomainBed does.
        drawn = rng.choice(np.asarray(self.values))
        return drawn.item() if isinstance(drawn, np.generic) else drawn


@dataclass(frozen=True)
class Searched:
    """One hyper-parameter of a search."""

    seed_name: str  # the name that seeds its samples: DomainBed's
    default: Any  # its value in hyper-parameter sample 0
    distribution: Distribution | None  # of the other samples; None keeps the default


def uniform(low: float, high: float, integer: bool = False) -> Uniform:
    """Describe U(low, high); `integer` truncates."""
    return Uniform(low, high, integer)


def log_uniform(low: float, high: float, integer: bool = False) -> LogUniform:
    """Describe 10^U(log10 low, log10 high); `integer` truncates.

    >>> log_uniform(0.1, 10)
    LogUniform(low=-1.0, high=1.0, base=10.0, integer=False)
    """
    # Rounded: exponents such as -1 must be exact to reproduce DomainBed's samples.
    return LogUniform(round(math.log10(low), 12), round(math.log10(high), 12), integer=integer)


def choice(*values: Any) -> Choice:
    """Describe a choice of one of `values`."""
    return Choice(values)


def setting(
    default: Any,
    *,
    help: str,
    domainbed: str | None = None,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    late: bool = False,
) -> Any:
    """Declare a setting that is not searched over.

    `help` is one line for `fgmix list` and the docs, `domainbed` DomainBed's name of the setting if that differs; gt,
    ge, lt and le bound its values. A `late` setting came after runs of the method were published: specs leave it out
    at its default, so that those runs keep their names.
    """
    return declare(default, help=help, gt=gt, ge=ge, lt=lt, le=le, domainbed=domainbed, late=late)


def search(
    default: Any,
    distribution: Distribution | None,
    *,
    help: str,
    paper: Distribution | None = None,
    domainbed: str | None = None,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
) -> Any:
    """Declare a setting with a search space.

    `distribution` is DomainBed's space; None if DomainBed does not have the method, which is then searched as in the
    paper: a search that leaves a method's own settings at their defaults would not be a fair comparison. `paper` is the
    space of the FGMix paper or of the method's authors; None for `distribution`. `domainbed` is DomainBed's name of the
    setting, which seeds its samples so that they equal DomainBed's. The others are those of `setting`.
    """
    spaces = {"domainbed": distribution or paper, "paper": paper or distribution}
    return declare(default, help=help, gt=gt, ge=ge, lt=lt, le=le, spaces=spaces, domainbed=domainbed)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting, search))
class BaseConfig:
    """Settings of every algorithm. Subclasses add fields and become frozen dataclasses automatically."""

    lr: float = setting(DEFAULTS["images"].lr, help="learning rate of the base model's optimiser", gt=0)
    weight_decay: float = setting(0.0, help="weight decay of the base model's optimiser", ge=0)
    steps: int = setting(
        PROTOCOLS["clean"].steps, help="length T of the run; schedules such as τ = 0.6·T are relative to it", ge=1
    )
    # The optimiser: how the gradients of a method become steps. See docs/optimiser.md.
    optimizer: Literal["adam", "adamw", "sgd"] = setting(
        OPTIMIZER["optimizer"], help="update rule; sgd has momentum 0.9", late=True
    )
    schedule: Literal["constant", "cosine", "linear"] = setting(
        OPTIMIZER["schedule"],
        help="learning rates after the warm-up: constant, or falling to 0 at the last step",
        late=True,
    )
    lr_warmup: int = setting(
        OPTIMIZER["lr_warmup"], help="first steps, in which learning rates rise linearly", ge=0, late=True
    )
    decay_on: Literal["all", "matrices"] = setting(
        OPTIMIZER["decay_on"],
        help="matrices: no weight decay of biases, normalisation layers and position codes",
        late=True,
    )
    layer_decay: float = setting(
        OPTIMIZER["layer_decay"],
        help="factor of the learning rate for each block or stage below the classifier",
        gt=0,
        le=1,
        late=True,
    )
    head_lr: float | None = setting(
        OPTIMIZER["head_lr"], help="learning rate of the classifier; none: lr", gt=0, late=True
    )
    clip_norm: float | None = setting(
        OPTIMIZER["clip_norm"],
        help="largest norm of the gradient, to which longer ones are scaled; none: no bound",
        gt=0,
        late=True,
    )
    accumulate: int = setting(
        OPTIMIZER["accumulate"],
        help="micro-batches of a step, whose gradients are added: less memory, for methods that allow it",
        ge=1,
        late=True,
    )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        check_options(self)
        if self.lr_warmup >= self.steps:
            raise bad_value("lr_warmup", f"below the number of steps, {self.steps}", self.lr_warmup)

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Build from keywords; an unknown name is an error that lists the known ones."""
        known = options_of(cls)
        for name in settings:
            if name not in known:
                raise unknown("setting", name, known)
        return cls(**settings)

    @classmethod
    def parse(cls, texts: dict[str, str]) -> dict[str, Any]:
        """Parse values of `--set name=text` in the types of the fields."""
        if not isinstance(texts, dict):
            raise bad_value("texts", "a dictionary of texts by name of a setting", texts)
        known = options_of(cls)
        for name in texts:
            if name not in known:
                raise unknown("setting", name, known)
        return {name: known[name].parse(text) for name, text in texts.items()}

    @classmethod
    def names(cls) -> list[str]:
        return list(options_of(cls))

    @classmethod
    def spaces(cls, space: str) -> dict[str, Distribution]:
        """Return search distributions by field name; `space` is "domainbed" or "paper"."""
        spaces = {name: field.extra.get("spaces", {}).get(space) for name, field in options_of(cls).items()}
        return {name: distribution for name, distribution in spaces.items() if distribution is not None}

    @classmethod
    def domainbed_names(cls) -> dict[str, str]:
        """Return DomainBed's name for each field."""
        return {name: field.extra.get("domainbed") or name for name, field in options_of(cls).items()}

    @classmethod
    def help(cls) -> dict[str, tuple[Any, str]]:
        """Return the default and help line of each field."""
        return {name: (field.default, field.help) for name, field in options_of(cls).items()}

    def as_dict(self) -> dict[str, Any]:
        """Return all values, defaults included except those of late settings, as the run's spec records them."""
        given = {name: (getattr(self, name), option) for name, option in options_of(type(self)).items()}
        return {
            name: value
            for name, (value, option) in given.items()
            if not option.extra.get("late") or value != option.default
        }


# The base itself goes through the same decorator as its subclasses.
dataclass(frozen=True, kw_only=True)(BaseConfig)
