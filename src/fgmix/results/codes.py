"""Runs of an edited method: which runs are of which code. No torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from fgmix.records.rows import Row, collect_labels, label_row, record_row
from fgmix.records.schema import RunRecord
from fgmix.records.store import RunFolder


def describe_codes(records: Sequence[RunRecord]) -> list[str]:
    """Write a note for each row of a dataset whose runs are of different code of their method, oldest files first."""
    rows: dict[tuple[str, Row], dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        rows[record.dataset, record_row(record)][record.code].append(record)
    labels = collect_labels(records)
    return [
        f"{label_row(labels, row)} on {dataset}: {'; '.join(_list_runs(by_code))}. A mean over them is not reported. "
        "Delete the older runs and rerun the sweep, or add --accept-code."
        for (dataset, row), by_code in rows.items()
        if len(by_code) > 1
    ]


def _list_runs(by_code: dict[str, list[RunRecord]]) -> list[str]:
    dates = {code: max(map(_read_date, records)) for code, records in by_code.items()}
    return [
        f"{len(by_code[code])} run{'s' * (len(by_code[code]) > 1)} of {f'code {code}' if code else 'unknown code'}, "
        + (f"the last of {datetime.fromtimestamp(dates[code]):%Y-%m-%d %H:%M}, " if dates[code] else "")
        + f"such as {by_code[code][0].folder or by_code[code][0].spec.name}"
        for code in sorted(by_code, key=dates.__getitem__)
    ]


def _read_date(record: RunRecord) -> float:
    """Return when the file of a record was written; 0 for a record of a packed file."""
    file = RunFolder(record.folder).record if record.folder else None
    return file.stat().st_mtime if file and file.exists() else 0.0
