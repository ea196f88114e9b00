"""Evaluations of a run: what was measured after a step, and all of a run in one array.

A report reads the evaluations of 20,000 runs. As dictionaries they would take 40 kB a run; here a run is one array of
numbers with a layout (which number is what) that runs share, and an `Evaluation` is built on access.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Any, Literal, NamedTuple, get_args, overload

from msgspec import Meta, Struct

from fgmix.errors import bad_value

LAST_STEP = 1_000_000_000  # the highest that a record may contain
Model = Literal["raw", "swa", "swad"]
MODELS: tuple[Model, ...] = get_args(Model)
Metric = Literal["accuracy", "balanced_accuracy", "macro_f1"]
METRIC_NAMES: dict[Metric, str] = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
}
# Only of means of counts: a quotient of sums may exceed 1 by its rounding.
Share = Annotated[float, Meta(ge=0, le=1)]
Shares = dict[str, dict[str, Share]]  # domain → split ("train", "holdout") → share of correct predictions
Scores = dict[str, dict[str, float]]  # domain → split → value


class Rates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metrics that follow from numbers of samples by class, as `rates` computes them."""

    samples: int  # how many there are
    majority: float  # the most frequent class's share of them: the accuracy of always predicting it
    accuracy: float  # share of correct predictions
    balanced_accuracy: float  # mean recall over the classes that occur
    macro_f1: float  # mean F1 score over the classes that occur or are predicted
    recall: tuple[float | None, ...]  # of each class; None where it does not occur

    def value(self, metric: Metric) -> float:
        """Return the metric of that name."""
        value: float = getattr(self, metric)
        return value


class Metrics(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Metrics of a classifier on a domain, as `metrics` computes them."""

    auroc: float | None  # one class against the rest, mean over the classes; None if only one occurs
    # Samples by class (row) and prediction (column); empty for more than `most_classes` classes.
    confusion: tuple[tuple[int, ...], ...]
    calibration_error: float | None = None  # expected; None in older records, which do not store it


class Evaluation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One evaluation: accuracies and losses by domain and split, of the raw and of the averaged model."""

    step: Annotated[int, Meta(ge=0, le=LAST_STEP)]  # optimisation steps done
    accuracy: dict[Model, Shares]  # by model, domain and split
    loss: dict[Model, Scores]  # cross-entropy, likewise
    metrics: dict[str, float]  # means of the algorithm's metrics over the steps since the previous evaluation
    # values of the metric that the run selects by, by model, domain and split; empty if that is accuracy
    headline: dict[Model, Shares] = {}

    @property
    def scores(self) -> dict[Model, Shares]:
        """The values that selection uses: accuracy, or the run's other metric."""
        return self.headline or self.accuracy

    def has(self, model: Model) -> bool:
        """Say whether a model was evaluated."""
        return model in self.accuracy

    def score(self, model: Model, domain: str, split: str) -> float:
        """Return one of `scores`."""
        return self.scores[model][domain][split]

    def validation(self, sources: tuple[str, ...], model: Model = "raw") -> float:
        """Return the mean holdout accuracy (or other metric of the run) of the source domains."""
        scores = self.scores[model]
        return sum(scores[name]["holdout"] for name in sources) / len(sources)


class Score(NamedTuple):
    """How a model does on a part of a domain."""

    accuracy: float
    loss: float  # mean cross-entropy
    rates: Rates
    outputs: Any = None  # its predictions for each sample, if requested


def make_evaluation(
    scores: Mapping[Model, Mapping[str, Mapping[str, Score]]], step: int, training: dict[str, float], metric: Metric
) -> Evaluation:
    """Make the evaluation after a step.

    Args:
        scores: by model, domain and split.
        step: how many steps are done.
        training: the algorithm's metrics, as means over the steps since the previous evaluation.
        metric: what the run selects by, stored where it is not accuracy, which always is.
    """
    accuracy, loss, headline = (defaultdict[Model, Scores](dict) for _ in range(3))
    for model, domains in scores.items():
        for name, parts in domains.items():
            accuracy[model][name] = {part: score.accuracy for part, score in parts.items()}
            loss[model][name] = {part: score.loss for part, score in parts.items()}
            if metric != "accuracy":
                headline[model][name] = {part: score.rates.value(metric) for part, score in parts.items()}
    return Evaluation(step, dict(accuracy), dict(loss), training, dict(headline))


Table = Literal["accuracy", "loss", "headline", "metrics"]
TABLES: tuple[Table, ...] = ("accuracy", "loss", "headline")  # by model, domain and split
Shape = tuple[tuple[Any, ...], ...]


class Key(NamedTuple):
    """What a number of an evaluation is; an algorithm's metric has its name in place of the model."""

    table: Table
    model: str
    domain: str = ""
    split: str = ""


class Layout:
    """Which number of an evaluation is what; the same for most evaluations of a sweep.

    Args:
        shape: of each table, its models with domains and splits; then the names of metrics.
    """

    def __init__(self, shape: Shape) -> None:
        *tables, metrics = shape
        self.keys = [
            Key(name, model, domain, split)
            for name, table in zip(TABLES, tables)
            for model, domain, *splits in table
            for split in splits
        ] + [Key("metrics", name) for name in metrics]
        self.places = {key: place for place, key in enumerate(self.keys)}
        self.models = tuple(m for m in MODELS if any((key.table, key.model) == ("accuracy", m) for key in self.keys))
        self.raw_losses = [place for key, place in self.places.items() if (key.table, key.model) == ("loss", "raw")]
        self.selects_by: Table = "headline" if any(key.table == "headline" for key in self.keys) else "accuracy"


_share_layout = lru_cache(maxsize=500)(Layout)


class Evaluations(Sequence[Evaluation]):
    """The evaluations of a run in one array.

    Args:
        evaluations: in order of steps.
    """

    __slots__ = ("_ends", "_layouts", "_numbers", "models", "steps")

    def __init__(self, evaluations: Iterable[Evaluation] = ()) -> None:
        self._numbers, self._layouts, steps = array("d"), [], []
        for evaluation in evaluations:
            tables = (evaluation.accuracy, evaluation.loss, evaluation.headline)
            shape = [
                tuple([(model, domain, *parts) for model, scores in table.items() for domain, parts in scores.items()])
                for table in tables
            ]
            self._layouts.append(_share_layout((*shape, tuple(evaluation.metrics))))
            for parts in (parts for table in tables for scores in table.values() for parts in scores.values()):
                self._numbers.extend(parts.values())
            self._numbers.extend(evaluation.metrics.values())
            steps.append(evaluation.step)
        self._ends = [0, *accumulate(len(layout.keys) for layout in self._layouts)]
        self.steps = tuple(steps)
        self.models: tuple[Model, ...] = self._layouts[-1].models if steps else ()  # of the last evaluation

    def validations(self, sources: tuple[str, ...], model: Model) -> dict[int, float]:
        """Return `Evaluation.validation` of the evaluations that have the model, by their place."""
        values = {}
        for i, (start, layout) in enumerate(zip(self._ends, self._layouts)):
            if model in layout.models:
                keys = [Key(layout.selects_by, model, name, "holdout") for name in sources]
                values[i] = sum(self._numbers[start + layout.places[key]] for key in keys) / len(keys)
        return values

    def score(self, number: int, model: Model, domain: str, split: str) -> float:
        """Return `Evaluation.score` of one of them."""
        layout = self._layouts[number]
        return self._numbers[self._ends[number] + layout.places[Key(layout.selects_by, model, domain, split)]]

    def check(self, domains: tuple[str, ...], tests: tuple[str, ...]) -> None:
        """Raise an error for scores that no run with these domains and test domains has."""
        needed = [(name, split) for name in domains for split in ("holdout", *(["train"] if name in tests else []))]
        for layout in dict.fromkeys(self._layouts):
            for model in layout.models:
                for table in dict.fromkeys(("accuracy", layout.selects_by)):
                    for name, split in needed:
                        if Key(table, model, name, split) not in layout.places:
                            raise bad_value(f"{table} of {model}", f"known on the {split} part of {name}", "none")
            if strange := {key.domain for key in layout.keys if key.table != "metrics"} - {*domains}:
                raise bad_value("accuracy", "that of the run's domains", sorted(strange))
        losses = (self._losses(number) for number in range(len(self)))
        if not all(0 <= loss < math.inf for numbers in losses for loss in numbers):
            raise bad_value("loss", "finite", "others")

    def _losses(self, number: int) -> list[float]:
        """The losses of the raw model."""
        places = self._layouts[number].raw_losses
        return [self._numbers[self._ends[number] + place] for place in places]

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, number: int) -> Evaluation: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Evaluation, ...]: ...
    def __getitem__(self, number: int | slice) -> Evaluation | tuple[Evaluation, ...]:
        place = range(len(self.steps))[number]
        if isinstance(place, range):
            return tuple(self[each] for each in place)
        numbers = self._numbers[self._ends[place] : self._ends[place + 1]]
        tables: dict[str, dict[str, Scores]] = {"accuracy": {}, "loss": {}, "headline": {}}
        metrics = {}
        for (table, model, domain, split), value in zip(self._layouts[place].keys, numbers, strict=True):
            if table == "metrics":
                metrics[model] = value
            else:
                tables[table].setdefault(model, {}).setdefault(domain, {})[split] = value
        return Evaluation(step=self.steps[place], metrics=metrics, **tables)  # type: ignore[arg-type]  # models' names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it contains an array
