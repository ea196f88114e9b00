"""Curves of unfinished runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fgmix.analysis.results import run_curves
from fgmix.errors import UserError
from fgmix.records.files import read_json
from fgmix.records.schema import ResolvedSpec, RunRecord
from fgmix.records.store import RunFolder
from fgmix.report.charts import Chart
from fgmix.report.figures import chart

SHOWN = 6  # unfinished runs whose curves are shown


def underway_charts(folders: Iterable[Path]) -> list[Chart]:
    """The curves of the first few unfinished runs that have been evaluated.

    Args:
        folders: of unfinished runs.
    """
    found = [record for record in map(measured_so_far, folders) if record is not None]
    return [_chart(record) for record in found[:SHOWN]]


def measured_so_far(folder: Path) -> RunRecord | None:
    """The record of an unfinished run up to its last evaluation; None without one, or if it cannot be read now."""
    files = RunFolder(folder)
    try:
        evaluations = files.evaluations()
        if not evaluations:
            return None
        made = read_json(files.spec)
        domains = tuple(evaluations[0].accuracy["raw"])
        spec = ResolvedSpec.from_dict(made["spec"])
        return RunRecord(spec, "done", str(made["fgmix"]), domains, evaluations, folder=folder)
    except (UserError, KeyError, TypeError, ValueError):  # a line is being written: it is complete at the next request
        return None


def _chart(record: RunRecord) -> Chart:
    drawn = chart(f"underway-{record.folder.name if record.folder else ''}", run_curves(record))
    return replace(drawn, title=f"{drawn.title}: step {record.evaluations[-1].step} of {record.spec.steps}")
