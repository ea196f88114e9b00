"""Compact records for tables: 20,000 are read within seconds and fit into the memory of a laptop.

Most of a record are the scores of its evaluations. They are read directly into one array, with NaN for what was not
measured, and an `Evaluation` is built on access. Losses and the method's metrics, which no table shows, are read from
the file on access: until then the digest of the file is checked, but not their ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypedDict, overload

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from fgmix.errors import UserError
from fgmix.records.digests import check_json
from fgmix.records.files import read_bytes
from fgmix.records.schema import (
    LAST_STEP,
    MODELS,
    CompactEvaluations,
    Evaluation,
    Model,
    RunRecord,
    Scores,
    as_record,
    read_record,
)

SPLITS = ("holdout", "train")
NOWHERE = float("nan")  # a score that was not measured
_HOLDOUT = SPLITS.index("holdout")
_SEAL = 48  # bytes at the start of a sealed file that contain its digest
Numbers = NDArray[np.float64]  # (evaluations, models, domains, splits)
_DOMAINS = b'\n "domains": ', b"\n ]"  # around the list of domains, as `seals.seal_json` lays it out
_TESTS = b'\n  "test_domains": ', b"\n  ]"
_OTHERS = (  # entries of a record besides its evaluations
    *("schema", "fgmix", "status", "diverged_at", "label", "domainbed_name", "spec", "domains"),
    *("classes", "notes", "weights_matched", "gpu", "unseen"),
)
_names = msgspec.json.Decoder(list[str]).decode
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Parts(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Scores on the parts of a source domain."""

    holdout: _Share
    train: _Share = NOWHERE


class _TestParts(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Scores on the parts of a test domain."""

    holdout: _Share
    train: _Share


class _Reader:
    """Reads records with given domains: with types for them, no dictionary is built for each model and step.

    Args:
        names: the list of domains, as JSON in a record.
        tests: the list of test domains, likewise.
    """

    def __init__(self, names: bytes, tests: bytes) -> None:
        self.domains, self.tests = tuple(sorted(_names(names))), tuple(_names(tests))
        keys = [f"domain{number}" for number in range(len(self.domains))]  # names may not be valid identifiers
        kinds = [_TestParts if name in self.tests else _Parts for name in self.domains]
        scores = _struct(keys, self.domains, kinds)
        by_model = _struct(MODELS, MODELS, [scores | UnsetType] * len(MODELS), UNSET)
        entries: list[Any] = [
            ("step", Annotated[int, msgspec.Meta(ge=0, le=LAST_STEP)]),
            ("accuracy", by_model),
            ("headline", by_model | UnsetType, UNSET),
        ]
        evaluation = msgspec.defstruct("_Evaluation", entries, gc=False)
        record = {**dict.fromkeys(_OTHERS, Any), "evaluations": list[evaluation]}  # type: ignore[valid-type]
        content = TypedDict("content", record, total=False)  # type: ignore[misc]
        self.content: Callable[[bytes], Any] = msgspec.json.Decoder(content).decode
        self._numbers_of = attrgetter(*(f"{key}.{split}" for key in keys for split in SPLITS))
        self._lacking = [NOWHERE] * len(self.domains) * len(SPLITS)
        self._shape = -1, len(self.domains), len(SPLITS)

    def numbers(self, scores: list[Any], models: tuple[Model, ...]) -> Numbers:
        """The array of the scores of some evaluations, with NaN for a model that an evaluation lacks."""
        flat: list[float] = []
        for by_model in scores:
            for model in models:
                found = getattr(by_model, model)
                flat += self._lacking if found is UNSET else self._numbers_of(found)
        return np.array(flat).reshape(len(scores), *self._shape)


def _struct(keys: Sequence[str], names: Sequence[str], kinds: Sequence[Any], *default: Any) -> Any:
    """A type with one field for each name."""
    entries = [(key, kind, *default) for key, kind in zip(keys, kinds)]
    rename = dict(zip(keys, names))
    return msgspec.defstruct("_Struct", entries, rename=rename, forbid_unknown_fields=True, gc=False)


_reader = lru_cache(maxsize=500)(_Reader)


class _Stored(Evaluation):
    """An evaluation whose values are read on access."""

    _run: _Evaluations
    _number: int

    def __init__(self, run: _Evaluations, number: int) -> None:
        self.__dict__.update(_run=run, _number=number)  # the dataclass is frozen

    @property
    def step(self) -> int:
        return self._run.steps[self._number]

    @property
    def accuracy(self) -> dict[str, Scores]:
        return self._run.scores_of(self._run.accuracy, self._number)

    @property
    def headline(self) -> dict[str, Scores]:
        return {} if self._run.headline is None else self._run.scores_of(self._run.headline, self._number)

    @property
    def loss(self) -> dict[str, Scores]:
        return _whole(self._run.file, self._run.seal)[self._number].loss

    @property
    def metrics(self) -> dict[str, float]:
        return _whole(self._run.file, self._run.seal)[self._number].metrics

    def has(self, model: Model) -> bool:
        return self._run.has(self._number, model)

    def score(self, model: Model, domain: str, split: str) -> float:
        run = self._run
        place = self._number, run.models.index(model), run.domains.index(domain), SPLITS.index(split)
        return run.selecting.item(place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evaluation) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]  # like every evaluation: it contains dictionaries


class _Evaluations(CompactEvaluations):
    """The evaluations of one record.

    Args:
        steps: the step of each.
        models: those that at least one of them has.
        domains: sorted names.
        accuracy: all accuracies, (evaluations, models, domains, splits).
        headline: likewise, values of the metric that the run selects by; None if that is accuracy.
        file: the record.json.
        seal: first bytes of the file, with its digest.
    """

    __slots__ = ("_known", "accuracy", "domains", "file", "headline", "models", "seal", "steps")

    def __init__(
        self,
        steps: tuple[int, ...],
        models: tuple[Model, ...],
        domains: tuple[str, ...],
        accuracy: Numbers,
        headline: Numbers | None,
        file: Path,
        seal: bytes,
    ) -> None:
        self.steps, self.models, self.domains = steps, models, domains
        self.accuracy, self.headline, self.file, self.seal = accuracy, headline, file, seal
        self._known: tuple[tuple[str, ...], list[list[float]]] | None = None  # source domains, and their validations

    @property
    def selecting(self) -> Numbers:
        """The scores that selection uses, like `Evaluation.scores`."""
        return self.accuracy if self.headline is None else self.headline

    def has(self, number: int, model: Model) -> bool:
        """Whether an evaluation has a model."""
        if model not in self.models:
            return False
        first: float = self.accuracy.item(number, self.models.index(model), 0, _HOLDOUT)
        return first == first  # not NaN

    def scores_of(self, numbers: Numbers, number: int) -> dict[str, Scores]:
        """The scores of one evaluation, by model, domain and split."""
        return {
            model: {
                domain: {split: score for split, score in zip(SPLITS, scores) if score == score}
                for domain, scores in zip(self.domains, numbers[number, place].tolist())
            }
            for place, model in enumerate(self.models)
            if self.has(number, model)
        }

    def validations(self, sources: tuple[str, ...], model: Model) -> dict[int, float]:
        if model not in self.models:
            return {}
        means = self._means(sources)[self.models.index(model)]
        return {number: mean for number, mean in enumerate(means) if mean == mean}

    def _means(self, sources: tuple[str, ...]) -> list[list[float]]:
        """Validations by model and evaluation; for all models at once, since a table needs each of them."""
        if self._known is None or self._known[0] != sources:
            by_domain = self.selecting[..., _HOLDOUT].T  # (domains, models, evaluations)
            total = sum(by_domain[self.domains.index(name)] for name in sources)  # in the order of `Evaluation`
            self._known = sources, (total / len(sources)).tolist()
        return self._known[1]

    def __len__(self) -> int:
        return len(self.steps)

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
    """The record at a record.json, equal to that of `read_record`; losses and metrics are checked when read."""
    try:
        return _read(file)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return read_record(file)  # accepts unusual records, or raises an error that says what is wrong


def _read(file: Path) -> RunRecord:
    data = read_bytes(file)
    check_json(data, str(file))
    reader = _reader(_list(data, *_DOMAINS), _list(data, *_TESTS))
    content = reader.content(data)
    evaluations = content["evaluations"]
    scores = [each.accuracy for each in evaluations]
    models = tuple([model for model in MODELS if any(getattr(each, model) is not UNSET for each in scores)])
    accuracy, headline = reader.numbers(scores, models), None
    if any(each.headline is not UNSET for each in evaluations):
        headline = reader.numbers([each.headline for each in evaluations], models)
        if (np.isnan(accuracy) != np.isnan(headline)).any():
            raise ValueError("Expected a metric where accuracy is.")
    steps = tuple([each.step for each in evaluations])
    lean = _Evaluations(steps, models, reader.domains, accuracy, headline, file, data[:_SEAL])
    record = as_record(content, str(file), file.parent, lean)
    if record.spec.test_domains != reader.tests:
        raise ValueError("Expected one list of test domains.")
    return record


def _list(data: bytes, start: bytes, end: bytes) -> bytes:
    """A list of strings in a record, the last that follows `start`: JSON strings contain no line breaks."""
    place = data.rindex(start) + len(start)
    return data[place : data.index(end, place) + len(end)]


@lru_cache(maxsize=8)
def _whole(file: Path, seal: bytes) -> Sequence[Evaluation]:
    """All evaluations of a record with all of their entries; cached, since several are usually read in a row."""
    if not read_bytes(file).startswith(seal):
        raise UserError(f"Expected the record {file} as it was before. It was replaced meanwhile. Rerun the command.")
    return read_record(file).evaluations
