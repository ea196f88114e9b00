"""The list of runs: what was run, what came out, and the command that makes each again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fgmix.analysis.results import run_curves
from fgmix.report.charts import as_data
from fgmix.report.figures import chart
from fgmix.results.labels import METHODS, method_label
from fgmix.results.reporting import origin
from fgmix.results.selection import Selected, Selection
from fgmix.runs.record import Model, RunRecord

CURVES = 400  # runs whose curves the page holds: 5 kB each


def run_rows(records: Sequence[RunRecord], groups: Sequence[tuple[str, Selection]]) -> list[dict[str, Any]]:
    """A row for each run, as JSON's types.

    Args:
        records: finished runs.
        groups: what was selected among runs that belong together, with what sets them apart ("" for plain runs).
    """
    reported = _reported(groups)
    ordered = sorted(records, key=_place)
    return [_row(record, reported.get(id(record), {}), number < CURVES) for number, record in enumerate(ordered)]


def _reported(groups: Sequence[tuple[str, Selection]]) -> Mapping[int, dict[tuple[str, Model], float]]:
    """Accuracies of each run that stand behind a number, by group and model."""
    found: dict[int, dict[tuple[str, Model], float]] = {}
    for label, selection in groups:
        for cell, outcome in selection.cells.items():
            if isinstance(outcome, Selected):
                found.setdefault(id(outcome.record), {})[label, cell.model] = outcome.accuracy
    return found


def _place(record: RunRecord) -> tuple[Any, ...]:
    """By dataset, method in the paper's order, test domain, trial and draw."""
    spec = record.spec
    order = list(METHODS).index(spec.algorithm) if spec.algorithm in METHODS else len(METHODS)
    return record.dataset, order, spec.algorithm, spec.test_domains, spec.trial_seed, spec.hparams_seed


def _row(record: RunRecord, reported: Mapping[tuple[str, Model], float], with_curves: bool) -> dict[str, Any]:
    spec = record.spec
    selected = {model: accuracy for (_, model), accuracy in reported.items()}
    return {
        "name": record.folder.name if record.folder else "",
        "method": method_label(spec.algorithm),
        "algorithm": spec.algorithm,
        "dataset": record.dataset,
        "domain": ", ".join(spec.test_domains),
        "trial": spec.trial_seed,
        "draw": spec.hparams_seed,
        "status": record.status if record.diverged_at is None else f"diverged at step {record.diverged_at}",
        "accuracy": {m: round(100 * selected.get(m, _accuracy(record, m)), 2) for m in record.models},
        "reported": [model.upper() if model != "raw" else model for model in selected],
        "groups": sorted({label for label, _ in reported}),
        "spec": {name: value for name, value in spec.as_dict().items() if value is not None},
        "version": record.fgmix_version,
        "data": record.data_fingerprint,
        "command": origin(record),
        "curves": as_data(chart("", run_curves(record))) if with_curves and record.evaluations else None,
    }


def _accuracy(record: RunRecord, model: Model) -> float:
    """Mean over the test domains at the step that training-domain validation selects."""
    at = record.best(model).accuracy[model]
    tests = record.spec.test_domains
    return sum(at[name]["train"] for name in tests) / len(tests)
