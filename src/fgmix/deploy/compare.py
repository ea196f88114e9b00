"""Compare two models on the same labelled samples: `fgmix compare MODEL_A MODEL_B DATA`.

With d_i = 1 if only B is correct on sample i, −1 if only A is, else 0, the difference of a domain's accuracies is the
mean of its d_i. Its intervals are those of `results.intervals`, with samples in place of trials: for these domains, and
for a new one like them. If samples have groups, such as patients, d and the accuracies are averaged over each group
first: groups are the independent units. The exact test of McNemar is a sign test on the samples on which one model
alone is correct.

McNemar, "Note on the sampling error of the difference between correlated proportions or percentages", 1947,
https://doi.org/10.1007/BF02295996.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from fgmix.data.dataset import DomainDataset, Indices
from fgmix.data.folders import list_some
from fgmix.deploy.labelled import LabelledDomain, load_for, predict_labelled
from fgmix.deploy.model import Model
from fgmix.errors import UserError
from fgmix.escape import escape_markdown
from fgmix.records.metrics import Floats
from fgmix.records.model import ModelInfo
from fgmix.results.intervals import Interval, MeanDifference
from fgmix.results.other_metrics import percent, table
from fgmix.results.rounding import DASH, difference_text, p_text
from fgmix.terminal import print_notes

ALL = "all"  # the row of all domains


@dataclass(frozen=True)
class ComparedDomain:
    """Both models on one domain, or the mean over all."""

    domain: str
    samples: int
    accuracies: tuple[float, float]
    difference: float  # B − A
    interval: Interval | None  # 95 %; None with a single sample or group
    alone: tuple[int, int]  # samples on which only A, only B is correct
    p_value: float | None  # exact test of McNemar; None for grouped samples, which depend on each other


@dataclass(frozen=True)
class Compared:
    """Two models on the same samples."""

    domains: tuple[ComparedDomain, ...]
    together: ComparedDomain  # accuracies and difference: means over domains; counts: of all samples
    for_new: Interval | None  # 95 % interval of the expected difference on a new domain; None for a single one
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """Write a table and notes."""
        head = ["Domain", "samples", "A", "B", "B − A", "95 % interval", "only A correct", "only B correct", "p"]
        rows = [self._row(each) for each in (*self.domains, self.together)]
        return [*table(head, rows).splitlines(), "", *self.notes]

    @staticmethod
    def _row(each: ComparedDomain) -> list[str]:
        interval = DASH if each.interval is None else _write_interval(each.interval)
        p = DASH if each.p_value is None else p_text(each.p_value)
        difference = difference_text(100 * each.difference)
        cells = [*map(percent, each.accuracies), difference, interval, *map(str, each.alone), p]
        return [escape_markdown(each.domain), str(each.samples), *cells]


def _write_interval(interval: Interval) -> str:
    return " to ".join(difference_text(100 * end) for end in interval)


def compare_models(a: Model, b: Model, data: str | Path, *, progress: bool = True) -> Compared:
    """Compare two models on labelled data: a folder `domain/class/image`, a manifest, a table or an .npz file.

    Args:
        a, b: the models; each prepares the data in its own way.
        data: labelled samples that neither model was trained on, of one domain or several.
        progress: show progress bars.
    """
    datasets = [load_for(model, data, progress=progress) for model in (a, b)]
    if progress:
        print_notes(*dict.fromkeys(note for dataset in datasets for note in dataset.notes))
    first, second = (predict_labelled(model, dataset) for model, dataset in zip((a, b), datasets))
    for one, other in zip(first, second, strict=True):
        if len(one.y) != len(other.y) or _names(a, one) != _names(b, other):
            raise UserError(
                f"Expected the same samples for both models. Found others in domain {one.name!r} of {data}."
            )
    notes = [note for name, model, each in zip("AB", (a, b), datasets) for note in _note_known(name, model.info, each)]
    return compare_domains(first, second, notes)


def _note_known(name: str, info: ModelInfo, dataset: DomainDataset) -> list[str]:
    """Note data that a model was trained on, or domains of the names of its own."""
    if info.data_fingerprint == dataset.fingerprint:
        return [f"Model {name} was trained on these data."]
    if shared := [domain for domain in dataset.domain_names if domain in info.domains]:
        return [
            f"Model {name} was trained on domains of these names: {list_some(shared)}. If they have the same samples, "
            "this is no test of it."
        ]
    return []


def _names(model: Model, domain: LabelledDomain) -> list[str]:
    """Return the labels as names: the classes of two models may differ in order."""
    return [model.info.classes[label] for label in domain.y]


def compare_domains(
    first: Sequence[LabelledDomain], second: Sequence[LabelledDomain], notes: Sequence[str] = ()
) -> Compared:
    """Compare the predictions of two models for the same domains."""
    pairs = list(zip(first, second, strict=True))
    compared = tuple(_compare(a.name, a.correct, b.correct, a.groups) for a, b in pairs)
    d = MeanDifference({a.name: _average_groups(b.correct - a.correct, a.groups) for a, b in pairs})
    alone = tuple(int(sum(counts)) for counts in zip(*(each.alone for each in compared)))
    is_grouped = any(a.groups is not None for a in first)
    accuracy_a, accuracy_b = (float(np.mean([each.accuracies[i] for each in compared])) for i in (0, 1))
    together = ComparedDomain(
        domain=ALL,
        samples=sum(each.samples for each in compared),
        accuracies=(accuracy_a, accuracy_b),
        difference=d.mean,
        interval=d.interval(),
        alone=(alone[0], alone[1]),
        p_value=None if is_grouped else _test(*alone),
    )
    for_new = d.interval_for_new()
    return Compared(compared, together, for_new, (*notes, *_explain(is_grouped, for_new)))


def _explain(is_grouped: bool, for_new: Interval | None) -> list[str]:
    notes = [f"The row {ALL!r} is the mean over domains; its interval is for these domains."]
    if for_new:
        interval = _write_interval(for_new)
        notes.append(f"Expected difference on a new domain like these: 95 % interval {interval} points.")
    if is_grouped:
        notes.append(
            "Accuracies and differences are means of groups, the independent units. McNemar's test would count samples."
        )
    return notes


def _compare(name: str, a: Indices, b: Indices, groups: Indices | None) -> ComparedDomain:
    d = MeanDifference({name: _average_groups(b - a, groups)})
    alone = int((a > b).sum()), int((b > a).sum())
    return ComparedDomain(
        domain=name,
        samples=len(a),
        accuracies=(_average(a, groups), _average(b, groups)),
        difference=d.mean,
        interval=d.interval(),
        alone=alone,
        p_value=None if groups is not None else _test(*alone),
    )


def _average(hits: Indices, groups: Indices | None) -> float:
    """Compute an accuracy, with equal weight for each group if there are groups, as for differences."""
    return float(_average_groups(hits, groups).mean())


def _average_groups(values: Indices, groups: Indices | None) -> Floats:
    """Average the values of samples in every group; without groups, every sample is one."""
    if groups is None:
        return values.astype(np.float64)
    _, members = np.unique(groups, return_inverse=True)
    means: Floats = np.bincount(members, weights=values) / np.bincount(members)
    return means


def _test(only_a: int, only_b: int) -> float:
    """Compute the p-value of McNemar's exact test; 1 if the models never differ."""
    return float(binomtest(only_b, only_a + only_b).pvalue) if only_a + only_b else 1.0
