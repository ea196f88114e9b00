"""Settings of an algorithm: one declaration gives default, search distribution, help and record."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import Any, Protocol, Self, dataclass_transform

import numpy as np

from fgmix.errors import UserError, bad_value, unknown


class Distribution(Protocol):
    """A distribution of one hyper-parameter, drawn from a generator of its own."""

    def draw(self, rng: np.random.RandomState) -> Any: ...


@dataclass(frozen=True)
class Uniform:
    """U(low, high); `integer` truncates, as DomainBed's step numbers do."""

    low: float
    high: float
    integer: bool = False

    def draw(self, rng: np.random.RandomState) -> float | int:
        value = float(rng.uniform(self.low, self.high))
        return int(value) if self.integer else value


@dataclass(frozen=True)
class LogUniform:
    """base^U(low, high), bounds given as exponents; `integer` truncates, as DomainBed's batch sizes do."""

    low: float
    high: float
    base: float = 10.0
    integer: bool = False

    def draw(self, rng: np.random.RandomState) -> float | int:
        value = float(self.base ** rng.uniform(self.low, self.high))
        return int(value) if self.integer else value


@dataclass(frozen=True)
class Choice:
    """One of the listed values, each as likely."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.RandomState) -> Any:
        # choice over the values (not over indices): the same use of the generator as DomainBed's.
        drawn = rng.choice(np.asarray(self.values))
        return drawn.item() if isinstance(drawn, np.generic) else drawn


def uniform(low: float, high: float) -> Uniform:
    """U(low, high)."""
    return Uniform(low, high)


def log_uniform(low: float, high: float) -> LogUniform:
    """10^U(log10 low, log10 high).

    >>> log_uniform(0.1, 10)
    LogUniform(low=-1.0, high=1.0, base=10.0, integer=False)
    """
    # Rounded: exponents such as -1 must be exact for the draws to be DomainBed's.
    return LogUniform(round(math.log10(low), 12), round(math.log10(high), 12))


def choice(*values: Any) -> Choice:
    """One of `values`."""
    return Choice(values)


def setting(default: Any, *, help: str) -> Any:
    """A setting that is not searched over."""
    return dataclasses.field(default=default, metadata={"help": help})


def search(
    default: Any,
    distribution: Distribution | None,
    *,
    help: str,
    paper: Distribution | None = None,
    domainbed: str | None = None,
) -> Any:
    """A setting with a search space.

    Args:
        default: the value of draw 0.
        distribution: DomainBed's space; None where DomainBed does not have the method, which is then searched as in
            the paper: a search that leaves one method's own settings at their defaults is no fair comparison.
        help: one line for `fgmix list` and the docs.
        paper: the FGMix paper's space; `distribution` where it does not say.
        domainbed: DomainBed's name of it, which seeds its draws; the field's own name if None.
    """
    spaces = {"domainbed": distribution or paper, "paper": paper or distribution}
    return dataclasses.field(default=default, metadata={"help": help, "spaces": spaces, "domainbed": domainbed})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting, search))
class BaseConfig:
    """Settings every algorithm has. Subclasses add fields; they become frozen dataclasses by themselves."""

    lr: float = setting(5e-5, help="learning rate of the base model's optimiser")
    weight_decay: float = setting(0.0, help="weight decay of the base model's optimiser")
    steps: int = setting(5000, help="length T of the run; schedules such as τ = 0.6·T are relative to it")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for name, kind in typing.get_type_hints(type(self)).items():
            _check_type(name, kind, getattr(self, name))
        if self.steps < 1:
            raise bad_value("steps", "a positive integer", self.steps)
        if not self.lr > 0:
            raise bad_value("lr", "positive", self.lr)
        if self.weight_decay < 0:
            raise bad_value("weight_decay", "zero or more", self.weight_decay)

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Build from keywords; an unknown name is an error that lists the known ones."""
        known = cls.names()
        for name in settings:
            if name not in known:
                raise unknown("setting", name, known)
        hints = typing.get_type_hints(cls)
        return cls(**{name: _coerce(hints[name], value) for name, value in settings.items()})

    @classmethod
    def parse(cls, texts: dict[str, str]) -> dict[str, Any]:
        """Values of `--set name=text` in the types of the fields."""
        hints = typing.get_type_hints(cls)
        values = {}
        for name, text in texts.items():
            if name not in hints:
                raise unknown("setting", name, cls.names())
            values[name] = _from_text(name, hints[name], text)
        return values

    @classmethod
    def names(cls) -> list[str]:
        return [f.name for f in cls._fields()]

    @classmethod
    def spaces(cls, space: str) -> dict[str, Distribution]:
        """Search distributions by field name; `space` is "domainbed" or "paper"."""
        found = {f.name: f.metadata.get("spaces", {}).get(space) for f in cls._fields()}
        return {name: distribution for name, distribution in found.items() if distribution is not None}

    @classmethod
    def domainbed_names(cls) -> dict[str, str]:
        """DomainBed's name for each field."""
        return {f.name: f.metadata.get("domainbed") or f.name for f in cls._fields()}

    @classmethod
    def help(cls) -> dict[str, tuple[Any, str]]:
        """Default and help line of each field."""
        return {f.name: (f.default, f.metadata["help"]) for f in cls._fields()}

    @classmethod
    def _fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(cls)  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, Any]:
        """All values, defaults included, as the run's spec records them."""
        return {f.name: getattr(self, f.name) for f in self._fields()}


# The base itself goes through the same decorator as its subclasses.
dataclass(frozen=True, kw_only=True)(BaseConfig)


def _kinds(kind: Any) -> tuple[type, ...]:
    """int | None -> (int, NoneType); Literal["a", "b"] -> (str,)."""
    if typing.get_origin(kind) is typing.Literal:
        return tuple({type(v) for v in typing.get_args(kind)})
    return typing.get_args(kind) or (kind,)


def _coerce(kind: Any, value: Any) -> Any:
    """An int where a float is declared becomes a float, so that 1 and 1.0 are one spec."""
    if float in _kinds(kind) and type(value) is int:
        return float(value)
    return value


def _check_type(name: str, kind: Any, value: Any) -> None:
    if typing.get_origin(kind) is typing.Literal:
        if value not in typing.get_args(kind):
            raise bad_value(name, "one of " + ", ".join(map(repr, typing.get_args(kind))), value)
        return
    kinds = _kinds(kind)
    if isinstance(value, bool) and bool not in kinds:
        raise bad_value(name, _readable(kinds), value)
    if not isinstance(value, kinds) and not (float in kinds and isinstance(value, int)):
        raise bad_value(name, _readable(kinds), value)
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_value(name, "finite", value)


def _readable(kinds: tuple[type, ...]) -> str:
    names = {int: "an integer", float: "a number", bool: "true or false", str: "a text", type(None): "none"}
    return " or ".join(names.get(k, k.__name__) for k in kinds)


def _from_text(name: str, kind: Any, text: str) -> Any:
    kinds = _kinds(kind)
    lowered = text.strip().lower()
    if type(None) in kinds and lowered in ("none", ""):
        return None
    if bool in kinds and lowered in ("true", "false"):
        return lowered == "true"
    for number in (int, float):
        if number in kinds:
            try:
                return number(text)
            except ValueError:
                continue
    if str in kinds:
        return text
    raise UserError(f"Setting `{name}` should be {_readable(kinds)}. Found {text!r}.")
