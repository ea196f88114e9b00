"""The list of runs: what was run, its accuracy, and the command that reproduces it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from fgmix.errors import UserError
from fgmix.figures.curves import collect_curves, describe_curves
from fgmix.figures.description import encode
from fgmix.progress import format_duration
from fgmix.records.evaluations import Model
from fgmix.records.files import read_lines
from fgmix.records.rows import label_arm, record_row
from fgmix.records.schema import RunRecord, to_plain
from fgmix.records.store import RunFolder
from fgmix.results.explain import describe_origin
from fgmix.results.published import order
from fgmix.results.rounding import accuracy_text
from fgmix.results.selection import Selected, Selection

CURVES = 400  # runs whose curves the page contains: up to 10 kB each
MANY = 5000  # runs that are all listed; of more, only those that are reported
FEW = 25  # runs with curves in that case: curves of a run take 10 ms

# Scalar metrics of the selected weights on a test domain, with their names on the page
UNSEEN = {
    "accuracy": "accuracy",
    "majority": "share of the most frequent class",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "auroc": "AUROC",
    "calibration_error": "calibration error",
}


def list_runs(records: Sequence[RunRecord], groups: Sequence[tuple[str, Selection]]) -> list[dict[str, Any]]:
    """List a row for each run, in JSON types; of more than `MANY` runs, only for those that are reported.

    A group is the selection of runs that belong together, with what sets them apart ("" for runs outside of grids).
    """
    reported = _collect_reported(groups)
    many = len(records) > MANY
    ordered = sorted((record for record in records if not many or id(record) in reported), key=_get_place)
    curves = FEW if many else CURVES
    return [
        _describe_run(record, reported.get(id(record), {}), number < curves) for number, record in enumerate(ordered)
    ]


def _collect_reported(groups: Sequence[tuple[str, Selection]]) -> Mapping[int, dict[tuple[str, Model], float]]:
    """Collect the reported accuracies of each run, by group and model; the mean over the domains it holds out."""
    values: dict[int, dict[tuple[str, Model], list[float]]] = {}
    for label, selection in groups:
        for cell, outcome in selection.cells.items():
            if isinstance(outcome, Selected):
                own = values.setdefault(id(outcome.record), {})
                own.setdefault((label, cell.row.model), []).append(outcome.accuracy)
    return {run: {key: fmean(each) for key, each in own.items()} for run, own in values.items()}


def _get_place(record: RunRecord) -> tuple[Any, ...]:
    """Return the sort key: dataset, method in the order of the paper, test domain, trial and hyper-parameter sample."""
    spec = record.spec
    place = order().index(spec.algorithm) if spec.algorithm in order() else len(order())
    return record.dataset, place, spec.algorithm, spec.test_domains, spec.trial_seed, spec.hparams_seed


def _describe_run(record: RunRecord, reported: Mapping[tuple[str, Model], float], with_curves: bool) -> dict[str, Any]:
    spec = record.spec
    selected = {model: accuracy for (_, model), accuracy in reported.items()}
    shown = {model: selected[model] if model in selected else record.test_accuracy(model) for model in record.models}
    accuracy = {model: 100 * value for model, value in shown.items()}
    curves, notes = _describe_curves(record) if with_curves else (None, [])
    return {
        "name": record.folder.name if record.folder else "",
        "method": label_arm(record.label, record_row(record).arm),
        "algorithm": record_row(record).key,
        "origin": record.origin,
        "dataset": record.dataset,
        "domain": ", ".join(spec.test_domains),
        "trial": spec.trial_seed,
        "hparams_seed": spec.hparams_seed,
        "status": record.status if record.diverged_at is None else f"diverged at step {record.diverged_at}",
        "accuracy": accuracy,
        "shown": {model: accuracy_text(value) for model, value in accuracy.items()},
        "reported": [model.upper() if model != "raw" else model for model in selected],
        "groups": sorted({label for label, _ in reported}),
        "spec": {name: value for name, value in to_plain(spec).items() if value is not None},
        "version": record.fgmix_version,
        "data": record.data_fingerprint,
        "command": describe_origin(record),
        "unseen": [*notes, *_describe_unseen(record)] if with_curves else [],
        "confusions": _list_confusions(record) if with_curves else [],
        "settings": ", ".join(f"{name} {value}" for name, value in sorted(spec.settings.items())),
        "steps": spec.steps,
        **_read_sessions(record),
        "curves": curves,
    }


def _describe_curves(record: RunRecord) -> tuple[Any, list[str]]:
    """Describe the curves of a run, or note why there are none: losses are first read, and so checked, here."""
    if not record.evaluations:
        return None, []
    try:
        return encode(describe_curves(collect_curves(record))), []
    except UserError as error:
        return None, [f"No curves: {error}"]


def _describe_unseen(record: RunRecord) -> list[str]:
    """Write the metrics of the selected weights on the test domains, in sentences for each model and domain."""
    sentences = []
    every = [(model, domain, of) for model, by_domain in record.unseen.items() for domain, of in by_domain.items()]
    for model, domain, metrics in every:
        known = ((name, getattr(metrics, key)) for key, name in UNSEEN.items())
        values = ", ".join(f"{name} {accuracy_text(100 * value)} %" for name, value in known if value is not None)
        weights = model if model == "raw" else model.upper()
        sentences.append(f"{domain}, {weights} weights: {values}.")
    return sentences


def _list_confusions(record: RunRecord) -> list[dict[str, Any]]:
    """List the confusion matrices of the selected weights, by domain; those of the averaged model if there is one."""
    by_domain = [*record.unseen.values()][-1] if record.unseen else {}
    return [
        {"domain": domain, "classes": record.classes, "matrix": metrics.confusion}
        for domain, metrics in by_domain.items()
        if metrics.confusion
    ]


def _read_sessions(record: RunRecord) -> dict[str, Any]:
    """Read when and where a run was trained, and for how long, from its folder; nothing for packed records."""
    sessions = read_lines(RunFolder(record.folder).sessions) if record.folder else []
    known = [line for line in sessions if isinstance(line.get("started"), float | int)]
    if not known:
        return {"seconds": "", "duration": "", "date": "", "host": ""}
    seconds = sum(float(line.get("seconds") or 0) for line in known)
    return {
        "seconds": round(seconds, 1),
        "duration": format_duration(seconds),
        "date": datetime.fromtimestamp(known[-1]["started"], UTC).strftime("%Y-%m-%d %H:%M"),
        "host": ", ".join(dict.fromkeys(str(line.get("host", "")) for line in known)),
    }
