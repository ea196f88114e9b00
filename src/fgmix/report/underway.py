"""Curves of unfinished runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fgmix.errors import UserError
from fgmix.figures.curves import collect_curves, describe_curves
from fgmix.figures.description import Chart
from fgmix.records.files import read_json
from fgmix.records.schema import ResolvedSpec, RunRecord, to_spec
from fgmix.records.store import RunFolder

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
        return RunRecord(
            spec=to_spec(made["spec"], ResolvedSpec),
            status="done",
            fgmix_version=str(made["fgmix"]),
            domains=domains,
            evaluations=evaluations,
            folder=folder,
        )
    except (UserError, KeyError, TypeError, ValueError):  # a line is being written: it is complete at the next request
        return None


def _chart(record: RunRecord) -> Chart:
    drawn = describe_curves(collect_curves(record))
    id = f"underway-{record.folder.name if record.folder else ''}"
    return replace(drawn, id=id, title=f"{drawn.title}: step {record.evaluations[-1].step} of {record.spec.steps}")
