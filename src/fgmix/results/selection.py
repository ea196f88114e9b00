"""Model selection: which run is reported, and at which step. Pure functions of records.

For every dataset, row, trial and test domain t, a rule gives each hyper-parameter sample a validation value at a
step, and the sample with the highest value is reported:

    training_domain    value = mean over sources e of acc(e, holdout) in the run {t};     the best step
    last_evaluations   the same value, and the reported accuracy, as means over the last 5 evaluations
    leave_one_out      value = mean over v ≠ t of acc(v, train) in the run {t, v};        the best step
    oracle             value = acc(t, holdout) in the run {t};                            the last step

{t} is the set of test domains of a run. In a study whose runs all hold out several domains at once, it is the set that
contains t. acc is accuracy, or the metric that the runs select by (`--metric`). Of equal steps the earliest is
selected, of equal samples the one with the highest number. The reported number is always acc(t, train) of the run {t}:
DomainBed's "in" part, which no rule uses.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", 2021, https://arxiv.org/abs/2007.01434. Variant:
DomainBed's code, ties included; `last_evaluations` is ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from fgmix.errors import UserError, unknown
from fgmix.records.evaluations import METRIC_NAMES, Model
from fgmix.records.rows import Labels, Row, collect_labels, label_row, record_row
from fgmix.records.schema import ResolvedSpec, RunRecord, options
from fgmix.results.runs import Runs, Tabular, as_runs

LAST = 5  # evaluations that `last_evaluations` averages; fixed in advance, not tuned
Rule = Literal["training_domain", "last_evaluations", "leave_one_out", "oracle"]
RULES: dict[Rule, str] = {
    "training_domain": "training-domain validation",
    "last_evaluations": f"training-domain validation, as the mean over the last {LAST} evaluations",
    "leave_one_out": "leave-one-domain-out cross-validation",
    "oracle": "test-domain validation (oracle)",
}


class Cell(NamedTuple):
    """The key of one number: dataset, row, trial and test domain."""

    dataset: str
    row: Row
    trial_seed: int
    test_domain: str


@dataclass(frozen=True)
class Selected:
    """A number and the runs behind it."""

    record: RunRecord  # the run that is reported
    step: int  # the step of the selected evaluation (of the last one, if several are averaged)
    validation: float  # the value by which the rule selected it
    # The number: accuracy (or the runs' metric) on the training part of the test domain, between 0 and 1.
    accuracy: float
    # The other runs that `validation` was computed from (the pairs of leave-one-domain-out).
    validated_by: tuple[RunRecord, ...] = ()
    runners_up: tuple[Selected, ...] = ()  # the best of every other hyper-parameter sample, best first


@dataclass(frozen=True)
class Missing:
    """Why there is no number."""

    reason: str


@dataclass(frozen=True, repr=False, eq=False)  # hashable: functions of a selection are cached
class Selection(Tabular):
    """The selected accuracies: one cell for each dataset, row, trial and test domain of the records."""

    rule: Rule  # the selection rule
    cells: Mapping[Cell, Selected | Missing]  # numbers, or reasons why there is none
    domains: Mapping[str, tuple[str, ...]]  # test domains of each dataset, in the dataset's order
    labels: Labels  # of rows
    metric: str = "accuracy"  # name of the metric that the numbers are
    all_domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # those that no run holds out, too

    def rows(self) -> list[Row]:
        """List the rows of all datasets, in order of appearance."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    def label(self, row: Row) -> str:
        """Print a row."""
        return label_row(self.labels, row)

    def trials(self, dataset: str, origin: str | None = None) -> list[int]:
        """List the trial seeds of a dataset; of one origin, or of all."""
        origins = self._trials[dataset] if origin is None else [origin]
        return sorted({trial for each in origins for trial in self._trials[dataset][each]})

    @cached_property  # used by every row of every table
    def _trials(self) -> Mapping[str, Mapping[str, set[int]]]:
        """Trial seeds by dataset and origin."""
        trials: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for cell in self.cells:
            trials[cell.dataset][cell.row.origin].add(cell.trial_seed)
        return trials

    def to_dicts(self) -> list[dict[str, Any]]:
        """Describe each cell in a dictionary: its accuracy between 0 and 1 and its run, or why it has none."""
        return [
            {
                "dataset": cell.dataset,
                "method": self.label(cell.row),
                "row": cell.row.key,
                "model": cell.row.model,
                "trial_seed": cell.trial_seed,
                "test_domain": cell.test_domain,
                **_describe_outcome(one),
            }
            for cell, one in self.cells.items()
        ]

    def __repr__(self) -> str:
        known = self.accuracies()
        return f"<{len(known)} of {len(self.cells)} numbers, selected by {RULES[self.rule]}>"

    def accuracies(self) -> dict[Cell, float]:
        """Return the numbers, without missing ones."""
        return {cell: one.accuracy for cell, one in self.cells.items() if isinstance(one, Selected)}


def _describe_outcome(one: Selected | Missing) -> dict[str, Any]:
    if isinstance(one, Missing):
        return {"accuracy": None, "validation": None, "step": None, "run": None, "missing": one.reason}
    run = str(one.record.folder or one.record.spec.name)
    return {"accuracy": one.accuracy, "validation": one.validation, "step": one.step, "run": run, "missing": None}


def select(
    runs: Runs | RunRecord | Iterable[RunRecord],
    rule: Rule = "training_domain",
    test_domains: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Selection:
    """Select a run and a step for every dataset, row, trial and test domain. No torch is imported.

    The evaluations of a run that diverged can be selected, but rules that use the last step ignore it.

    Args:
        runs: runs of any datasets and algorithms, as `read_runs` returns them, or records. Of runs with grids, those
            outside of the grids: group the others first, `runs.group("lam")`.
        rule: "training_domain", "last_evaluations", "leave_one_out" or "oracle".
        test_domains: domains of each dataset that have cells; by default those of the sweeps' plans, or those that runs
            hold out.

    Example:
        >>> from fgmix import read_runs
        >>> select(read_runs("docs/records/pacs.records.xz", algorithms="erm"), "oracle")
        <24 of 24 numbers, selected by test-domain validation (oracle)>
    """
    if rule not in get_args(Rule):
        raise unknown("selection rule", rule, get_args(Rule))
    read = as_runs(runs)
    if read.grids and not read.records:
        names = ", ".join(read.grids[0].values)
        raise UserError(f"Expected runs outside of grids. Found runs of a grid over {names}. Group the runs by them.")
    records, test_domains = list(read.records), test_domains or read.test_domains
    by_dataset: dict[str, list[RunRecord]] = defaultdict(list)
    for record in records:
        by_dataset[record.dataset].append(record)
    cells: dict[Cell, Selected | Missing] = {}
    domains, held_out, every = {}, find_test_domains(records), {}
    for dataset, its_records in sorted(by_dataset.items()):
        # Equal within an origin; in another one, a dataset of the same name may have other domains.
        lists = dict.fromkeys(record.domains for record in its_records)
        every[dataset] = tuple(dict.fromkeys(name for names in lists for name in names))
        wanted = test_domains.get(dataset, held_out[dataset])
        domains[dataset] = tuple(name for name in every[dataset] if name in wanted)
        cells |= _select_dataset(dataset, every[dataset], domains[dataset], its_records, rule)
    metrics = [name for metric, name in METRIC_NAMES.items() if any(record.spec.metric == metric for record in records)]
    return Selection(rule, cells, domains, collect_labels(records), " or ".join(metrics) or "accuracy", every)


def find_test_domains(records: Iterable[RunRecord]) -> dict[str, set[str]]:
    """Find the domains of each dataset that have numbers: those held out alone or, where none is, with others."""
    sets: dict[tuple[str, str], set[tuple[str, ...]]] = defaultdict(set)
    for record in records:
        sets[record.dataset, record.origin].add(record.spec.test_domains)
    found: dict[str, set[str]] = defaultdict(set)
    for (dataset, _), held_out in sets.items():
        alone = {names for names in held_out if len(names) == 1}  # pairs validate leave-one-domain-out
        found[dataset].update(name for names in alone or held_out for name in names)
    return found


class _NoNumber(Exception):
    """Why a cell has no number."""


@dataclass(frozen=True)
class _Runs:
    """The runs of one dataset, row and trial, by the set of their test domains, then by hyper-parameter sample.

    `difference` says in what the row's runs of all trials differ but should not; empty for nothing. `together` has the
    sets of test domains of a study in which no run holds out a single one.
    """

    domains: tuple[str, ...]
    by_held_out: Mapping[frozenset[str], Mapping[int, list[RunRecord]]]
    difference: str
    together: Collection[frozenset[str]]

    def find(self, *held_out: str) -> dict[int, RunRecord]:
        """Find the runs that hold out exactly these domains, by hyper-parameter sample."""
        if self.difference:
            raise _NoNumber(self.difference)
        by_sample = self.by_held_out.get(frozenset(held_out), {})
        for sample, records in by_sample.items():
            if len(records) > 1:
                names = " and ".join(sorted(held_out))
                raise _NoNumber(
                    f"{len(records)} runs of hyper-parameter sample {sample} hold out {names}: keep one of them"
                )
        return {sample: record for sample, (record,) in by_sample.items()}

    def find_evaluated(self, domain: str, model: Model) -> dict[int, RunRecord]:
        """Find the runs that hold out `domain` and have evaluations of `model`, by sample; at least one."""
        runs = self.find(*self._find_set(domain))
        if not runs:
            alone = " alone" if any(domain in held_out for held_out in self.by_held_out) else ""
            raise _NoNumber(f"no finished run holds out {domain}{alone}")
        if not any(record.evaluations for record in runs.values()):
            raise _NoNumber(f"{_count_all(runs)} diverged before the first evaluation")
        runs = {sample: record for sample, record in runs.items() if model in record.models}
        if not runs:
            raise _NoNumber(f"no run that holds out {domain} has averaged weights: train with --averaging {model}")
        return runs

    def _find_set(self, domain: str) -> frozenset[str]:
        """Find the test domains of the runs whose number is that of a domain."""
        sets = [names for names in self.together if domain in names]
        if len(sets) > 1:
            shown = "; ".join(sorted(",".join(sorted(names)) for names in sets))
            raise _NoNumber(
                f"the runs hold out {domain} together with different domains ({shown}): choose with "
                "--where test_domains=…"
            )
        return sets[0] if sets else frozenset({domain})

    def find_ended(self, domain: str, model: Model) -> list[RunRecord]:
        """Find those of `find_evaluated` that reached their last step; at least one."""
        runs = self.find_evaluated(domain, model)
        ended = [record for record in runs.values() if record.status == "done"]
        if not ended:
            raise _NoNumber(f"{_count_all(runs)} diverged before the last step")
        return ended


def _select_dataset(
    dataset: str, domains: tuple[str, ...], tests: tuple[str, ...], records: list[RunRecord], rule: Rule
) -> dict[Cell, Selected | Missing]:
    by_row: dict[Row, dict[int, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    trials: dict[str, set[int]] = defaultdict(set)  # by origin
    held_out: dict[str, set[frozenset[str]]] = defaultdict(set)  # likewise
    for record in records:
        by_row[record_row(record)][record.spec.trial_seed].append(record)
        trials[record.origin].add(record.spec.trial_seed)
        held_out[record.origin].add(frozenset(record.spec.test_domains))
    different_data, different_metrics = _find_different_data(records), _find_different_metrics(records)
    cells: dict[Cell, Selected | Missing] = {}
    for row, by_trial in by_row.items():
        own = [record for some in by_trial.values() for record in some]
        difference = different_metrics or different_data.get(row.origin) or _find_difference(own)
        models = {"raw", *(model for record in own for model in record.models)}
        sets = held_out[row.origin]
        together = () if any(len(names) == 1 for names in sets) else sets
        for trial in sorted(trials[row.origin]):
            index: dict[frozenset[str], dict[int, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
            for record in by_trial.get(trial, []):
                index[frozenset(record.spec.test_domains)][record.spec.hparams_seed].append(record)
            runs = _Runs(domains, index, difference, together)
            for model in sorted(models):  # raw, swa, swad
                for domain in tests:
                    cell = Cell(dataset, row._replace(model=model), trial, domain)
                    cells[cell] = _select_run(rule, runs, domain, model)
    return cells


# Fields in which runs of one row may differ: the key of the cell, what a search varies, and where and what a run
# saves. Runs that differ in other fields are not comparable. Rows may differ from each other (DDG trains longer).
_VARIES = {
    *("dataset", "algorithm", "test_domains", "trial_seed", "hparams_seed", "seed"),
    *("settings", "batch_size", "dropout"),
    *("channels_last", "evaluate_train", "snapshots", "skip_unreadable", "data"),
    *(name for name, field in options().items() if field.about.place),
}
# The backbone first: rows are named by it rather than by an image size that follows from it.
FIXED = ("backbone", *(name for name in ResolvedSpec.__struct_fields__ if name not in {*_VARIES, "backbone"}))


def _find_difference(records: list[RunRecord]) -> str:
    """Name the first of `FIXED` in which runs of one row differ, or their code, over all trials; empty for none."""
    specs = set(map(attrgetter(*(f"spec.{name}" for name in FIXED)), records))
    for name, *values in zip(FIXED, *specs):
        if len(set(values)) > 1:
            shown = ", ".join(sorted(map(str, set(values))))
            return f"the runs differ in {name} ({shown}): choose one with --where {name}=…"
    if len({record.code for record in records}) > 1:
        return "the runs are of different code of the method: delete the older ones, or add --accept-code"
    return ""


def _find_different_data(records: list[RunRecord]) -> dict[str, str]:
    """Find the origins whose runs of one trial, of any rows, were trained on different data, each with a message.

    Trials may have different data: the digits of a domain of `rotated_mnist` depend on the trial. Runs of DomainBed do
    not record their data, and count as equal.
    """
    data: dict[tuple[str, int], set[str]] = defaultdict(set)
    for record in records:
        data[record.origin, record.spec.trial_seed].add(record.data_fingerprint)
    reason = "the runs were trained on different data under one name: choose one with --where data=…"
    return {origin: reason for (origin, _), digests in data.items() if len(digests) > 1}


def _find_different_metrics(records: list[RunRecord]) -> str:
    """Name the metrics if runs of any rows use different ones; empty if not."""
    metrics = sorted({record.spec.metric for record in records})
    different = f"the runs have different metrics ({', '.join(metrics)}): choose one with --where metric=…"
    return different if len(metrics) > 1 else ""


def _select_run(rule: Rule, runs: _Runs, domain: str, model: Model) -> Selected | Missing:
    try:
        candidates = _CANDIDATES[rule](runs, domain, model)
    except _NoNumber as error:
        return Missing(str(error))
    best, *others = sorted(candidates, key=lambda c: (c.validation, c.record.spec.hparams_seed), reverse=True)
    return replace(best, runners_up=tuple(others))


def _training_domain(runs: _Runs, domain: str, model: Model) -> list[Selected]:
    candidates = []
    for record in runs.find_evaluated(domain, model).values():
        place, value = record.best(model)
        step = record.evaluations[place].step
        candidates.append(Selected(record, step, value, record.score(place, model, domain, "train")))
    return candidates


def _last_evaluations(runs: _Runs, domain: str, model: Model) -> list[Selected]:
    """Average over the last `LAST` evaluations, or over all of a run that has fewer."""
    candidates = []
    for record in runs.find_ended(domain, model):
        last = record.candidates(model)[-LAST:]
        value = _mean([evaluation.validation(record.sources, model) for evaluation in last])
        accuracy = _mean([evaluation.score(model, domain, "train") for evaluation in last])
        candidates.append(Selected(record, last[-1].step, value, accuracy))
    return candidates


def _oracle(runs: _Runs, domain: str, model: Model) -> list[Selected]:
    lasts = [(record, record.evaluations[-1]) for record in runs.find_ended(domain, model)]
    return [
        Selected(record, last.step, last.score(model, domain, "holdout"), last.score(model, domain, "train"))
        for record, last in lasts
    ]


def _leave_one_out(runs: _Runs, domain: str, model: Model) -> list[Selected]:
    by_sample = runs.find_evaluated(domain, model)
    if not any(len(held_out) == 2 for held_out in runs.by_held_out):
        raise _NoNumber(
            "leave-one-domain-out selection needs runs with pairs of test domains: run the sweep with --pairs"
        )
    candidates, reasons = [], []
    for sample, record in by_sample.items():
        try:
            candidates.append(_cross_validate(runs, record, domain, sample, model))
        except _NoNumber as error:
            reasons.append(str(error))
    if not candidates:
        raise _NoNumber(reasons[0])
    return candidates


def _cross_validate(runs: _Runs, record: RunRecord, domain: str, sample: int, model: Model) -> Selected:
    """Find the best step of one sample, validated on each other domain v by the run that holds out `domain` and v."""
    others = [name for name in runs.domains if name != domain]
    pairs: dict[str, RunRecord] = {}
    for v in others:
        pair = runs.find(domain, v).get(sample)
        if pair is None or model not in pair.models:
            raise _NoNumber(
                f"no evaluated run of hyper-parameter sample {sample} holds out {domain} and {v}: "
                "run the sweep with --pairs"
            )
        pairs[v] = pair
    at_step = {v: {e.step: e for e in pair.candidates(model)} for v, pair in pairs.items()}
    candidates = [
        Selected(
            record,
            evaluation.step,
            _mean([at_step[v][evaluation.step].score(model, v, "train") for v in others]),
            evaluation.score(model, domain, "train"),
            tuple(pairs.values()),
        )
        for evaluation in record.candidates(model)
        if all(evaluation.step in steps for steps in at_step.values())
    ]
    if not candidates:
        raise _NoNumber(
            f"the runs of hyper-parameter sample {sample} that hold out {domain} have no evaluated step in common"
        )
    return max(candidates, key=lambda c: (c.validation, -c.step))


_CANDIDATES: dict[Rule, Callable[[_Runs, str, Model], list[Selected]]] = {
    "training_domain": _training_domain,
    "last_evaluations": _last_evaluations,
    "leave_one_out": _leave_one_out,
    "oracle": _oracle,
}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _count_all(runs: Mapping[int, RunRecord]) -> str:
    return "the only run" if len(runs) == 1 else f"all {len(runs)} runs"
