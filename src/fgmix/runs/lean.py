"""Records as tables need them: 20,000 are read within seconds, into memory that a laptop has.

Almost all of a record are the numbers of its evaluations, and records of one sweep differ in these numbers alone. So
the text between the numbers is read once for all of them, as a layout that holds each number's place; a record is then
its layout and a row of numbers. An evaluation is put together when it is looked at. Losses and the method's metrics,
which no table shows, stay in the file until then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fgmix.errors import UserError
from fgmix.files import read_bytes
from fgmix.runs.record import (
    CompactEvaluations,
    Evaluation,
    Model,
    RunRecord,
    Scores,
    as_record,
    check_evaluation,
    read_record,
)
from fgmix.seals import check_json

# As `seals.seal_json` lays a record out. Losses and metrics are read when they are looked at.
_START, _NEXT, _END = b'\n "evaluations": [\n', b",\n", b'\n ],\n "fgmix": '
_EVALUATION = re.compile(
    rb'  {\n   ("accuracy": .*(?:,\n   "headline": .*)?),\n   "loss": (.*),\n   "metrics": (.*),\n   "step": (\d+)\n  }'
    rb"(?:,\n|\Z)"
)
_AROUND = len('  {\n   ,\n   "loss": ,\n   "metrics": ,\n   "step": \n  },\n')  # bytes around what the groups match
# As an accuracy is written; other numbers are part of the text between.
_NUMBER = re.compile(rb'": ([01]\.[0-9]+(?:e-[0-9]+)?)')
_ODD = re.compile(rb'": [^{\d]')  # a loss that is neither a number from 0 on nor holds some
Numbers = NDArray[np.float64]
_SEAL = 48  # bytes of a sealed file's first line, at most


class _Place(int):
    """Where a number stands in a row."""


class _Layout:
    """The evaluations of a record, with the place of every number instead of the number.

    Args:
        text: JSON without the numbers, a NUL character in the place of each.
        steps: of the evaluations, as text.
    """

    def __init__(self, text: bytes, steps: tuple[bytes, ...]) -> None:
        first, *others = text.decode().split("\0")
        filled = first + "".join(f'": {place}e0{other}' for place, other in enumerate(others))
        places: list[_Place] = []
        self.evaluations: list[dict[str, Any]] = json.loads(filled, parse_float=partial(_place, places))
        if places != list(range(len(others))):
            raise ValueError("a number that is out of range")
        self.steps = [int(step) for step in steps]
        self.sound: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()  # domains and test domains that it fits
        self._holdouts: dict[tuple[tuple[str, ...], Model], tuple[list[int], NDArray[np.intp]]] = {}

    def holdouts(self, sources: tuple[str, ...], model: Model) -> tuple[list[int], NDArray[np.intp]]:
        """The evaluations that have a model, and the places of its scores on the holdout parts of domains."""
        found = self._holdouts.get((sources, model))
        if found is None:
            with_model = [i for i, places in enumerate(self.evaluations) if model in places["accuracy"]]
            scores = [_scores(self.evaluations[i])[model] for i in with_model]
            places = np.array([[parts[name]["holdout"] for name in sources] for parts in scores], dtype=np.intp)
            found = self._holdouts[sources, model] = with_model, places
        return found

    def check(self, record: RunRecord) -> None:
        """Raise what is wrong with the evaluations of a record of this layout, whatever its numbers are."""
        names = record.domains, record.spec.test_domains
        if names in self.sound:
            return
        for evaluation, places in zip(record.evaluations, self.evaluations):
            check_evaluation(Evaluation(evaluation.step, evaluation.accuracy, {}, {}, evaluation.headline), *names)
            _require_places([places["accuracy"], places.get("headline", {})])
        self.sound.add(names)


_layout = lru_cache(maxsize=1000)(_Layout)


class _Stored(Evaluation):
    """An evaluation that is put together when it is looked at."""

    _run: _Evaluations
    _number: int
    _places: dict[str, Any]

    def __init__(self, run: _Evaluations, number: int) -> None:
        own = self.__dict__  # its attributes are frozen
        own["_run"], own["_number"], own["_places"] = run, number, run.layout.evaluations[number]

    @property
    def step(self) -> int:
        return self._run.layout.steps[self._number]

    @property
    def accuracy(self) -> dict[str, Scores]:
        return _filled(self._places["accuracy"], self._run.numbers)

    @property
    def headline(self) -> dict[str, Scores]:
        return _filled(self._places.get("headline", {}), self._run.numbers)

    @property
    def loss(self) -> dict[str, Scores]:
        return _whole(self._run.file, self._run.seal)[self._number].loss

    @property
    def metrics(self) -> dict[str, float]:
        return _whole(self._run.file, self._run.seal)[self._number].metrics

    def has(self, model: Model) -> bool:
        return model in self._places["accuracy"]

    def score(self, model: Model, domain: str, split: str) -> float:
        return self._run.numbers.item(_scores(self._places)[model][domain][split])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evaluation) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]  # as of any evaluation: it holds dictionaries


class _Evaluations(CompactEvaluations):
    """The evaluations of one record.

    Args:
        layout: shared with other records.
        numbers: its own.
        file: where all of it is.
        seal: first bytes of the file, its digest.
    """

    __slots__ = ("file", "layout", "numbers", "seal")

    def __init__(self, layout: _Layout, numbers: Numbers, file: Path, seal: bytes) -> None:
        self.layout, self.numbers, self.file, self.seal = layout, numbers, file, seal

    def validations(self, sources: tuple[str, ...], model: Model) -> dict[int, float]:
        with_model, places = self.layout.holdouts(sources, model)
        scores: list[list[float]] = self.numbers[places].tolist()
        return {i: sum(row) / len(sources) for i, row in zip(with_model, scores)}  # summed as by `Evaluation`

    def __len__(self) -> int:
        return len(self.layout.evaluations)

    @overload
    def __getitem__(self, number: int) -> Evaluation: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Evaluation, ...]: ...
    def __getitem__(self, number: int | slice) -> Evaluation | tuple[Evaluation, ...]:
        found = range(len(self))[number]
        return _Stored(self, found) if isinstance(found, int) else tuple(_Stored(self, each) for each in found)

    def __iter__(self) -> Iterator[Evaluation]:
        return (_Stored(self, number) for number in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


def read_lean_record(file: Path) -> RunRecord:
    """The record at a record.json, equal to what `read_record` gives, and checked as there."""
    try:
        return _read(file)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return read_record(file)  # whatever is unusual about it: accepted there, or said


def _read(file: Path) -> RunRecord:
    data = read_bytes(file)
    check_json(data, str(file))
    start, end = data.index(_START), data.rindex(_END)
    found = _EVALUATION.findall(data, start + len(_START), end)
    if start + len(_START) + sum(map(len, chain.from_iterable(found))) + len(found) * _AROUND != end + len(_NEXT):
        raise ValueError("an evaluation with other entries")
    scores, losses, _, steps = zip(*found)
    if _ODD.search(b"".join(losses)):
        raise ValueError("a loss out of range")
    between, numbers = _parted(b"[{" + b"}, {".join(scores) + b"}]")
    layout = _layout(between, steps)
    content = json.loads(data[:start] + data[end + 4 :])
    record = as_record(content, str(file), file.parent, _Evaluations(layout, numbers, file, data[:_SEAL]))
    layout.check(record)
    return record


def _parted(text: bytes) -> tuple[bytes, Numbers]:
    """The text between the numbers of a JSON text, and the numbers."""
    parts = _NUMBER.split(text)
    numbers = np.fromstring(b" ".join(parts[1::2]), sep=" ")  # a fifth of the time of float() on each
    if (numbers > 1).any():
        raise ValueError("an accuracy out of range")
    return b"\0".join(parts[::2]), numbers


def _place(found: list[_Place], text: str) -> _Place:
    found.append(_Place(text.removesuffix("e0")))
    return found[-1]


def _scores(places: Mapping[str, Any]) -> Any:
    """As `Evaluation.scores`."""
    return places.get("headline") or places["accuracy"]


def _filled(places: Mapping[str, Any], numbers: Numbers) -> dict[str, Any]:
    return {
        name: numbers.item(inner) if isinstance(inner, _Place) else _filled(inner, numbers)
        for name, inner in places.items()
    }


def _require_places(found: Any) -> None:
    """Raise TypeError where something else than a number stands."""
    if not isinstance(found, _Place):
        for inner in found.values() if isinstance(found, Mapping) else list(found):
            _require_places(inner)


@lru_cache(maxsize=8)
def _whole(file: Path, seal: bytes) -> Sequence[Evaluation]:
    """All evaluations of a record with all of their entries; several are looked at after each other."""
    if not read_bytes(file).startswith(seal):
        raise UserError(f"Expected the record {file} as it was before. It was replaced meanwhile. Rerun the command.")
    return read_record(file).evaluations
