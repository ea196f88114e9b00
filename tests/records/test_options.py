"""Options: one declaration gives checks, texts and words, for Structs and dataclasses alike."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from msgspec import Meta, Struct

from fgmix.errors import UserError
from fgmix.records.options import About, check_names, check_options, declare, options_of

Count = Annotated[int, Meta(ge=1, le=9)]


class Declared(Struct, frozen=True, kw_only=True):
    name: Annotated[str, About("a name", "Group", place=True)]
    count: Annotated[Count | None, About("a count")] = None
    share: Annotated[float, About("a share", envvar="SHARE")] = 0.5
    kind: Annotated[Literal["a", "b"], About("a kind")] = "a"
    bare: int = 0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Alike:
    name: str = declare(help="a name", group="Group")
    count: int | None = declare(None, help="a count", ge=1, le=9)
    share: float = declare(0.5, help="a share")
    kind: Literal["a", "b"] = declare("a", help="a kind")

    def __post_init__(self) -> None:
        check_options(self)


def test_declarations() -> None:
    options = options_of(Declared)
    assert list(options) == ["name", "count", "share", "kind"]
    assert (options["name"].default, options["count"].default) == (MISSING, None)
    assert (options["name"].about.place, options["share"].about.envvar) == (True, "SHARE")
    assert (options["count"].types, options["kind"].choices) == ((int, type(None)), ("a", "b"))
    for name, option in options_of(Alike).items():
        assert (option.expected, option.help) == (options[name].expected, options[name].help)


@pytest.mark.parametrize("cls", [Declared, Alike])
def test_values_come_in_their_declared_types(cls: Any) -> None:
    made = cls(name=Path("x"), count=np.int64(3), share=1)
    assert (made.name, made.count, made.share) == ("x", 3, 1.0)
    assert (type(made.name), type(made.count), type(made.share)) == (str, int, float)


@pytest.mark.parametrize("cls", [Declared, Alike])
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"count": 0}, "`count`"),
        ({"count": 10}, "`count`"),
        ({"count": 2.0}, "`count`"),
        ({"count": True}, "`count`"),
        ({"share": float("nan")}, "`share`"),
        ({"share": "1"}, "`share`"),
        ({"kind": "c"}, "`kind`"),
        ({"name": 3}, "`name`"),
    ],
)
def test_a_bad_value_names_its_option(cls: Any, change: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        cls(**{"name": "x", **change})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("count", "3", 3), ("count", "none", None), ("share", "1e-3", 1e-3), ("share", "1", 1.0), ("kind", "b", "b")],
)
def test_texts(name: str, text: str, value: object) -> None:
    parsed = options_of(Declared)[name].parse(text)
    assert (parsed, type(parsed)) == (value, type(value))
    with pytest.raises(UserError, match=f"`{name}`"):
        options_of(Declared)[name].parse("?")


@pytest.mark.parametrize(("values", "named"), [({"nam": "x"}, "'name'"), ({"count": 3}, "name"), ([], "`values`")])
def test_names_are_known_and_none_is_lacking(values: Any, named: str) -> None:
    with pytest.raises(UserError, match=named):
        check_names(values, Declared, "option")
