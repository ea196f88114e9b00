"""Declared fields: one declaration gives a value's type, default, bounds, help, and how it is parsed from text.

Settings of a method (`algorithms.setting`, `algorithms.search`) and options of a run (`runs.spec.option`) are such
fields. Command-line options, checks and records follow from the declaration alone.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from numbers import Integral, Real
from os import PathLike
from typing import Any

from fgmix.errors import UserError, bad_value, unknown


@dataclass(frozen=True)
class Bounds:
    """Limits of a number.

    >>> str(Bounds(ge=0, lt=1)), 1.0 in Bounds(ge=0, lt=1), str(Bounds(ge=1, le=4096))
    ('at least 0 and below 1', False, 'between 1 and 4,096')
    """

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
        )

    def __str__(self) -> str:
        if self.ge is not None and self.le is not None:
            return f"between {_written(self.ge)} and {_written(self.le)}"
        limits = {"greater than": self.gt, "at least": self.ge, "below": self.lt, "at most": self.le}
        return " and ".join(f"{word} {_written(limit)}" for word, limit in limits.items() if limit is not None)


def _written(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


@dataclass(frozen=True)
class Field:
    """A declared field of a class.

    Args:
        name: of the attribute.
        kind: its type: int, float, bool, str or a Literal of strings, optionally with None.
        default: `dataclasses.MISSING` if there is none.
        help: one line.
        bounds: limits of a number.
        metadata: everything that the declaration stores.
    """

    name: str
    kind: Any
    default: Any
    help: str
    bounds: Bounds
    metadata: Mapping[str, Any]

    @cached_property  # a report checks thousands of specs
    def types(self) -> tuple[type, ...]:
        """The types that a value may have: int | None → (int, NoneType)."""
        if self.choices:
            return (str, type(None)) if self.optional else (str,)
        return _parts(self.kind)

    @cached_property
    def unbounded(self) -> frozenset[type]:
        """The types that allow every value."""
        return frozenset({bool, type(None), *(() if self.choices else (str,))} & {*self.types})

    @cached_property
    def sound(self) -> set[tuple[type, Any]]:
        """Values found valid before, with their types, since True == 1."""
        return set()

    @cached_property
    def optional(self) -> bool:
        return type(None) in _parts(self.kind)

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The strings that a Literal allows; empty for other types."""
        literals = [part for part in _parts(self.kind) if typing.get_origin(part) is typing.Literal]
        return tuple(choice for literal in literals for choice in typing.get_args(literal))

    @property
    def expected(self) -> str:
        """What a value should be, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices) + (" or none" if self.optional else "")
        words = _POSITIVE.get((self.types[0], self.bounds)) or f"{_WORDS[self.types[0]]} {self.bounds}".strip()
        return f"{words} or none" if self.optional else words

    def checked(self, value: Any) -> Any:
        """The value in its declared type, so that 1 and 1.0 give the same spec; raises an error if it is not valid."""
        if type(value) in self.unbounded:
            return value
        if type(value) not in self.types:
            value = self._in_own_type(value)
        if not isinstance(value, self.types) or (isinstance(value, bool) and bool not in self.types):
            raise bad_value(self.name, self.expected, value)
        if self.choices and value not in self.choices:
            raise unknown(f"`{self.name}`", str(value), self.choices)
        if isinstance(value, float) and not math.isfinite(value):
            raise bad_value(self.name, "finite", value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value not in self.bounds:
            raise bad_value(self.name, self.expected, value)
        return value

    def _in_own_type(self, value: Any) -> Any:
        """1 as 1.0 if a float is declared, NumPy's numbers as Python's, a path as a string."""
        if str in self.types and isinstance(value, PathLike):
            return str(value)
        if isinstance(value, bool):
            return value
        if int in self.types and isinstance(value, Integral):
            return int(value)
        return float(value) if float in self.types and isinstance(value, Real) else value

    def parsed(self, text: str) -> Any:
        """The value of a text such as "10", "true" or "none"."""
        lowered = text.strip().lower()
        if self.optional and lowered in ("none", ""):
            return None
        if bool in self.types and lowered in ("true", "false"):
            return lowered == "true"
        for number in (int, float):
            if number in self.types:
                try:
                    return self.checked(number(text))
                except UserError:
                    raise
                except (ValueError, OverflowError):
                    continue
        if str in self.types:
            return self.checked(text)
        raise UserError(f"Parameter `{self.name}` should be {self.expected}. Found {text!r}.")


_REMEMBERED = 100  # values in `sound`, at most: seeds and learning rates are unlimited

_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
_POSITIVE = {  # bounds that have a name
    (int, Bounds(ge=1)): "a positive integer",
    (int, Bounds(ge=0)): "zero or a positive integer",
    (float, Bounds(gt=0)): "a positive number",
    (float, Bounds(ge=0)): "zero or a positive number",
}


def declare(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    **metadata: Any,
) -> Any:
    """A field of a dataclass with help and bounds.

    Args:
        default: its default; without one the field is required.
        help: one line, for help texts and docs.
        gt: the value should be greater.
        ge: … greater or equal.
        lt: … less.
        le: … less or equal.
        metadata: anything else to store with the field.
    """
    bounds = Bounds(gt, ge, lt, le)
    return dataclasses.field(default=default, metadata={"help": help, "bounds": bounds, **metadata})


@cache  # a report reads thousands of specs
def fields_of(cls: type) -> dict[str, Field]:
    """The declared fields of a dataclass by name, inherited ones included."""
    hints = typing.get_type_hints(cls)
    return {
        f.name: Field(f.name, hints[f.name], f.default, f.metadata["help"], f.metadata["bounds"], f.metadata)
        for f in dataclasses.fields(cls)
        if "bounds" in f.metadata
    }


def check_fields(instance: Any, cls: type | None = None) -> None:
    """Check the declared fields of a frozen dataclass and store each in its declared type; call in `__post_init__`.

    Args:
        instance: what is checked.
        cls: the class whose declarations apply; the instance's own by default.
    """
    values = vars(instance)
    for name, field in fields_of(cls or type(instance)).items():
        value = values[name]
        kind = type(value)
        if kind in field.unbounded or (kind in field.types and (kind, value) in field.sound):
            continue  # most fields of the thousands of specs that a report reads
        checked = field.checked(value)
        if checked is not value:
            object.__setattr__(instance, name, checked)
        elif len(field.sound) < _REMEMBERED:
            field.sound.add((kind, value))


def _parts(kind: Any) -> tuple[Any, ...]:
    """int | None → (int, NoneType); int → (int,)."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
