"""Records: what is written is what is read; anything else is refused with a sentence that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgmix.errors import UserError
from fgmix.records.digests import Damaged, seal_json, seal_line, strip_line
from fgmix.records.files import write_bytes, write_json
from fgmix.records.schema import RunRecord, to_plain
from fgmix.records.store import RECORD, read_record, write_record
from properties.quickly import quickly
from results.made import Parts, run

DOMAINS = ("a", "b", "c")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def some_records(draw: st.DrawFn) -> RunRecord:
    values = st.floats(0, 1)
    steps = sorted(draw(st.sets(st.integers(1, 99), min_size=1, max_size=4)))
    found: dict[int, Parts] = {s: {d: (draw(values), draw(values)) for d in DOMAINS} for s in steps}
    averaged = {s: {d: (draw(values), draw(values)) for d in DOMAINS} for s in steps} if draw(st.booleans()) else None
    return run(draw(st.sampled_from(DOMAINS)), found, swa=averaged, draw=draw(st.integers(0, 9)))


@quickly
@given(some_records())
def test_a_record_survives_being_written(tmp_path: Path, record: RunRecord) -> None:
    write_record(record, tmp_path / RECORD)
    found = read_record(tmp_path)
    assert to_plain(found) == to_plain(record)
    write_record(found, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / RECORD).read_bytes()


@quickly
@given(some_records(), st.data())
def test_any_change_of_its_bytes_is_found(tmp_path: Path, record: RunRecord, data: st.DataObject) -> None:
    written = seal_json(to_plain(record))
    at = data.draw(st.integers(0, len(written) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != written[at]))
    changed = data.draw(st.sampled_from([written[:at], written[:at] + bytes([byte]) + written[at + 1 :]]))
    write_bytes(tmp_path / RECORD, changed)
    with pytest.raises(Damaged, match=RECORD):
        read_record(tmp_path)


@quickly
@given(some_records(), st.data())
def test_a_forged_record_is_read_or_refused(tmp_path: Path, record: RunRecord, data: st.DataObject) -> None:
    """Any value in any place, sealed as ours: it is a record that every number can be computed from, or a sentence."""
    content = json.loads(json.dumps(to_plain(record)))
    _replace_somewhere(content, data)
    write_json(tmp_path / RECORD, content)
    try:
        found = read_record(tmp_path)
    except UserError as error:
        assert RECORD in str(error)  # noqa: PT017 (raising is one of two right answers)
        return
    for model in found.models:
        assert 0 <= found.test_accuracy(model) <= 1 or not found.spec.test_domains


@quickly
@given(
    some_records(), st.data(), st.sampled_from([-1e-9, 2.0, 10.0, 1e300, float("nan")]) | st.floats(min_value=1 + 1e-9)
)
def test_an_accuracy_out_of_range_is_refused(
    tmp_path: Path, record: RunRecord, data: st.DataObject, value: float
) -> None:
    content = json.loads(json.dumps(to_plain(record)))
    scores = data.draw(st.sampled_from(content["evaluations"]))["accuracy"]["raw"]
    scores[data.draw(st.sampled_from(DOMAINS))][data.draw(st.sampled_from(["train", "holdout"]))] = value
    write_json(tmp_path / RECORD, content)
    with pytest.raises(UserError, match="accuracy"):
        read_record(tmp_path / RECORD)


def _replace_somewhere(content: Any, data: st.DataObject) -> None:
    """Put something else in one place of a nested content."""
    while True:
        keys = sorted(content) if isinstance(content, dict) else list(range(len(content)))
        key = data.draw(st.sampled_from(keys))
        inner = content[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            content[key] = data.draw(JSON)
            return
        content = inner


@quickly
@given(st.dictionaries(st.text(max_size=8), JSON, min_size=1, max_size=4))
def test_a_sealed_line_survives_and_its_changes_are_found(content: dict[str, Any]) -> None:
    line = seal_line(content)
    assert line.count(b"\n") == 1
    assert json.dumps(json.loads(strip_line(line[:-1], "x")), sort_keys=True) == json.dumps(content, sort_keys=True)
    for at in range(0, len(line) - 1, 7):
        with pytest.raises(Damaged):
            strip_line(line[:at] + bytes([line[at] ^ 1]) + line[at + 1 : -1], "x")
