"""Specs: what is written is what is read, and no text makes anything but a value or a sentence."""

from __future__ import annotations

import shlex
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fgmix.algorithms import get, names
from fgmix.errors import UserError
from fgmix.records.options import Option
from fgmix.records.schema import RunSpec, command, options, to_plain, to_spec
from properties.quickly import quickly

TEXTS = st.text(max_size=20) | st.sampled_from(
    ["", "none", "true", "1", "-1", "1e999", "nan", "0x1", "٣", "1_0", "[1]"]
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=10)
LABELS = NAMES.filter(lambda text: text.isprintable() and text == text.strip())


def values_of(field: Option) -> st.SearchStrategy[Any]:
    """Values that a field allows."""
    if field.choices:
        return st.sampled_from(field.choices)
    by_type: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(-5, 10**8),
        float: st.floats(-1, 2),
        str: LABELS if field.name == "arm" else NAMES,
        type(None): st.none(),
    }
    return st.one_of([by_type[kind] for kind in field.types]).filter(lambda value: is_allowed(field, value))


def is_allowed(field: Option, value: Any) -> bool:
    try:
        field.check(value)
    except UserError:
        return False
    return True


@st.composite
def some_specs(draw: st.DrawFn) -> RunSpec:
    chosen = draw(st.sets(st.sampled_from([name for name in options() if name not in ("dataset", "algorithm")])))
    said = {name: draw(values_of(options()[name])) for name in sorted(chosen)}
    domains = draw(st.lists(NAMES, max_size=2, unique=True))
    return RunSpec(dataset=draw(NAMES), algorithm="erm", test_domains=tuple(domains), **said)


@quickly
@given(some_specs())
def test_a_spec_survives_being_written(spec: RunSpec) -> None:
    assert to_spec(to_plain(spec), RunSpec) == spec


@quickly
@given(some_specs())
def test_an_option_survives_being_typed(spec: RunSpec) -> None:
    """A text around which blanks are cut, and the word none, cannot be typed so."""
    for name in options(omit=("dataset", "algorithm")):
        value = getattr(spec, name)
        if isinstance(value, str) and (value != value.strip() or value.lower() == "none"):
            continue
        text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
        assert options()[name].parse(text) == value


@quickly
@given(some_specs())
def test_the_printed_command_names_every_option_that_was_said(spec: RunSpec) -> None:
    words = shlex.split(command(spec))
    assert words[words.index("--dataset") + 1] == spec.dataset
    assert [words[i + 1] for i, word in enumerate(words) if word == "--test-domain"] == list(spec.test_domains)
    for name, field in options(omit=("dataset", "algorithm")).items():
        value = getattr(spec, name)
        flag = "--" + name.replace("_", "-")
        if value != field.default:
            assert flag in words or f"--no-{flag[2:]}" in words
            assert isinstance(value, bool) or str(value) in words


@quickly
@given(st.sampled_from(sorted(options())), TEXTS)
def test_any_text_is_a_value_or_a_sentence(name: str, text: str) -> None:
    try:
        parsed = options()[name].parse(text)
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 (raising is one of two right answers)
    else:
        assert is_allowed(options()[name], parsed)


@quickly
@given(st.sampled_from(names()), st.data())
def test_any_text_is_a_setting_or_a_sentence(algorithm: str, data: st.DataObject) -> None:
    config = get(algorithm).Config
    name = data.draw(st.sampled_from(sorted(config.names())) | NAMES)
    try:
        config.of(**config.parse({name: data.draw(TEXTS)}))
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 (raising is one of two right answers)
