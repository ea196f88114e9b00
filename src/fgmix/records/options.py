"""Options: one declaration gives a value's type, default, bounds and help, and how it is parsed from text.

Options of a run are annotated fields of `RunSpec`; settings of an algorithm (`algorithms.setting`, `search`) are fields
of a dataclass. Flags, checks and records follow from the declaration alone. Types and bounds are checked by msgspec;
this module puts its findings into words.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from functools import cache, cached_property
from numbers import Integral, Real
from os import PathLike
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fgmix.errors import UserError, bad_value, unknown

_NO_BOUNDS = Meta()
_TEXTS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
_NAMED_BOUNDS: dict[tuple[type, float | None, float | None], str] = {  # by ge and gt
    (int, 1, None): "a positive integer",
    (int, 0, None): "zero or a positive integer",
    (float, None, 0): "a positive number",
    (float, 0, None): "zero or a positive number",
}


@dataclass(frozen=True)
class About:
    """What an annotated field of a Struct says about itself, besides its type and bounds."""

    help: str  # one line
    group: str = ""  # heading under which help texts list it
    place: bool = False  # a path, or what is saved and how often: not part of the run's identity
    envvar: str | None = None  # environment variable that gives the flag's default


@dataclass(frozen=True)
class Option:
    """A declared value."""

    name: str  # of the attribute
    kind: Any  # its type, with bounds: int, float, bool, str or a Literal of strings, optionally with None
    default: Any  # `dataclasses.MISSING` if there is none
    about: About  # its help, and how it is used
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # whatever else the declaration stores

    # The types that a value may have, each with its bounds (int | None → int, NoneType), and as Python types.
    parts: Mapping[Any, Meta] = dataclasses.field(init=False)
    types: tuple[type, ...] = dataclasses.field(init=False)
    accepts_names: bool = dataclasses.field(init=False)  # whether a number may also be a name

    def __post_init__(self) -> None:
        parts = {}
        for part in _split_union(self.kind):
            limits = getattr(part, "__metadata__", ())  # those of Annotated
            parts[part.__origin__ if limits else part] = next((x for x in limits if isinstance(x, Meta)), _NO_BOUNDS)
        object.__setattr__(self, "parts", parts)
        kinds = tuple(str if typing.get_origin(part) is typing.Literal else part for part in parts)
        object.__setattr__(self, "types", kinds)
        object.__setattr__(self, "accepts_names", {int, str} <= {*kinds})

    @property
    def help(self) -> str:
        return self.about.help

    @cached_property
    def plain_type(self) -> Any:
        """The type without bounds, as the command line shows it: `int | None`."""
        kind: Any = self.types[0]
        for other in self.types[1:]:
            kind |= other
        return kind

    @property
    def optional(self) -> bool:
        return type(None) in self.parts

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The strings that a Literal allows; empty for other types."""
        literals = [part for part in self.parts if typing.get_origin(part) is typing.Literal]
        return tuple(choice for literal in literals for choice in typing.get_args(literal))

    @property
    def expected(self) -> str:
        """Say what a value should be."""
        if self.choices:
            words = "one of " + ", ".join(self.choices)
        else:
            kind, bounds = next(iter(self.parts.items()))
            words = _name_bounds(kind, bounds) or f"{_TEXTS[kind]} {describe_bounds(bounds)}".strip()
        return f"{words} or none" if self.optional else words

    def check(self, value: Any) -> Any:
        """Return the value in its declared type, so that 1 and 1.0 give the same spec; raise an error if it is bad."""
        if isinstance(value, str) and self.accepts_names and re.fullmatch(r"-?\d+", value, re.ASCII):
            value = int(value)  # one value, whether it is typed or given in Python
        try:
            checked = msgspec.convert(value if type(value) in self.types else self._simplify(value), self.kind)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter for half of a surrogate pair
            if self.choices and isinstance(value, str):
                raise unknown(f"`{self.name}`", value, self.choices) from error
            expected = "finite" if isinstance(value, float) and not math.isfinite(value) else self.expected
            raise bad_value(self.name, expected, value) from error
        if isinstance(checked, float) and not math.isfinite(checked):
            raise bad_value(self.name, "finite", value)
        return checked

    def _simplify(self, value: Any) -> Any:
        """Return NumPy's numbers as Python's and a path as a string, where these are declared."""
        if isinstance(value, bool):
            return value
        if isinstance(value, PathLike) and str in self.types:
            return str(value)
        if isinstance(value, Integral) and int in self.types:
            return int(value)
        return float(value) if isinstance(value, Real) and float in self.types else value

    def parse(self, text: str) -> Any:
        """Return the value of a text such as "10", "true" or "none"."""
        lowered = text.strip().lower()
        if self.optional and lowered in ("none", ""):
            return None
        if bool in self.types and lowered in ("true", "false"):
            return lowered == "true"
        for number in (int, float):
            if number in self.types and re.fullmatch("[ -^`-~]*", text):  # not 1_0, not ١
                try:
                    value = number(text)
                except (ValueError, OverflowError):
                    continue
                return self.check(value)
        if str in self.types:
            return self.check(text)
        raise bad_value(self.name, self.expected, text)


def describe_bounds(bounds: Meta) -> str:
    """Put bounds into words.

    >>> describe_bounds(Meta(ge=0, lt=1)), describe_bounds(Meta(ge=1, le=4096))
    ('at least 0 and below 1', 'between 1 and 4,096')
    """
    if bounds.ge is not None and bounds.le is not None:
        return f"between {_format_limit(bounds.ge)} and {_format_limit(bounds.le)}"
    limits = {"greater than": bounds.gt, "at least": bounds.ge, "below": bounds.lt, "at most": bounds.le}
    return " and ".join(f"{word} {_format_limit(limit)}" for word, limit in limits.items() if limit is not None)


def declare(
    default: Any = MISSING,
    *,
    help: str,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    group: str = "",
    envvar: str | None = None,
    **extra: Any,
) -> Any:
    """Declare a field of a dataclass with help and bounds.

    Args:
        default: its default; without one the field is required.
        help: one line, for help texts and docs.
        gt, ge, lt, le: bounds of a number.
        group: heading under which help texts list it.
        envvar: environment variable that gives the flag's default.
        extra: anything else to store with the field.
    """
    bounds, about = _limit(gt=gt, ge=ge, lt=lt, le=le), About(help, group, envvar=envvar)
    return dataclasses.field(default=default, metadata={"about": about, "bounds": bounds, "extra": extra})


def _read_options(cls: type) -> dict[str, Option]:
    """Return the declared options of a Struct or a dataclass by name, inherited ones included."""
    hints = typing.get_type_hints(cls, include_extras=True)
    if not dataclasses.is_dataclass(cls):
        fields = msgspec.structs.fields(cls)
        defaults = {f.name: MISSING if f.default is msgspec.NODEFAULT else f.default for f in fields}
        declared = {name: _find_about(hints[name]) for name in defaults}
        return {
            name: Option(name, _drop_about(hints[name]), defaults[name], about)
            for name, about in declared.items()
            if about
        }
    return {
        f.name: Option(
            f.name, bound(hints[f.name], f.metadata["bounds"]), f.default, f.metadata["about"], f.metadata["extra"]
        )
        for f in dataclasses.fields(cls)
        if "about" in f.metadata
    }


# Kept: a report reads thousands of specs. Its type is stated, because mypy considers classes of settings unhashable.
options_of: Callable[[type], dict[str, Option]] = cache(_read_options)


def check_options(instance: Any, cls: type | None = None) -> None:
    """Check the declared options of a frozen object and store each in its declared type; call in `__post_init__`.

    Args:
        instance: what is checked.
        cls: the class whose declarations apply; the instance's own by default.
    """
    store = msgspec.structs.force_setattr if isinstance(instance, msgspec.Struct) else object.__setattr__
    for name, option in options_of(cls or type(instance)).items():
        value = getattr(instance, name)
        checked = option.check(value)
        if checked is not value:
            store(instance, name, checked)


def check_value(name: str, kind: Any, value: Any, **limits: float) -> Any:
    """Return an argument in its type, checked like a declared option.

    >>> check_value("alpha", float, 1, ge=0, le=1)
    1.0
    """
    return Option(name, bound(kind, _limit(**limits)), value, About("")).check(value)


def bound(kind: Any, bounds: Meta) -> Any:
    """Return a type whose numbers have bounds.

    >>> bound(int | None, Meta(ge=1)) == Annotated[int, Meta(ge=1)] | None
    True
    """
    result: Any = None
    for part in _split_union(kind):
        part = Annotated[part, bounds] if part in (int, float) and bounds != _NO_BOUNDS else part
        result = part if result is None else result | part
    return result


def check_names(values: Any, cls: type, what: str) -> None:
    """Raise an error for plain values that lack a required field of a Struct, or have an unknown one.

    Args:
        values: by the fields' names.
        cls: the Struct.
        what: what its fields are, for the error, such as "option of a run".
    """
    if not isinstance(values, Mapping):
        raise bad_value("values", f"a dictionary: {what}s by name", values)
    known = {field.encode_name: field.required for field in msgspec.structs.fields(cls)}
    for name in values:
        if name not in known:
            raise unknown(what, name, known)
    required = [name for name, needed in known.items() if needed]
    if lacking := [name for name in required if name not in values]:
        raise UserError(
            f"Expected a value of each {what} in {', '.join(required)}. Found none of {', '.join(lacking)}. Add it."
        )


def _find_about(hint: Any) -> About | None:
    """The `About` of an annotation."""
    return next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, About)), None)


def _drop_about(hint: Any) -> Any:
    """Annotated[int, Meta(ge=1), About(…)] → Annotated[int, Meta(ge=1)]."""
    others = [each for each in hint.__metadata__ if not isinstance(each, About)]
    return Annotated[hint.__origin__, *others] if others else hint.__origin__


def _split_union(kind: Any) -> tuple[Any, ...]:
    """int | None → (int, NoneType); int → (int,)."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def _name_bounds(kind: type, bounds: Meta) -> str | None:
    """The name of bounds that have one."""
    return None if bounds.lt is not None or bounds.le is not None else _NAMED_BOUNDS.get((kind, bounds.ge, bounds.gt))


def _limit(**limits: Any) -> Meta:
    return Meta(**limits)


def _format_limit(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"
