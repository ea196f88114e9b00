"""Times per step: the file that `python -m benchmarks step --out` writes, and its table with the paper's times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fgmix.errors import UserError
from fgmix.records.files import read_json
from fgmix.records.rows import Labels, Row
from fgmix.records.status import COST_FILE
from fgmix.results.published import algorithm_names, step_milliseconds
from fgmix.results.rounding import two_decimals
from fgmix.results.tables import Entry, Table, TableRow

ERM = Row("erm")


@dataclass(frozen=True)
class Costs:
    """Measured times."""

    milliseconds: Mapping[Row, float]  # time per step by row, with and without averaging
    # Labels of rows; the paper's names for those without a label in the file.
    labels: Labels = field(default_factory=dict)


def read_costs(folder: Path) -> Costs | None:
    """Read the times in a folder; None if there are none."""
    path = folder / COST_FILE
    if not path.exists():
        return None
    content = read_json(path)
    try:
        raw, averaged = dict(content["milliseconds"]), dict(content.get("averaged_milliseconds", ()))
        labels = {**algorithm_names(), **dict(content.get("labels", ()))}
        return Costs(
            {Row(name): float(time) for name, time in raw.items()}
            | {Row(name, model="swa"): float(time) for name, time in averaged.items()},
            {Row(str(name)): str(label) for name, label in labels.items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"Expected times per step at {path}. Found something else. Measure them again with `python -m "
            "benchmarks step --out`."
        ) from error


def cost_table(costs: Costs) -> Table:
    """Make the table of our time per step and its ratio to ERM's, next to the paper's."""
    ours, theirs = costs.milliseconds, step_milliseconds()
    rows = [TableRow(row, (*_entries(ours, row), *_entries(theirs, row))) for row in ours]
    caption = (
        "Time of a training step in milliseconds, and its ratio to ERM's. Compare ratios: milliseconds depend on the "
        "machine, the backbone and the batch size."
    )
    columns = ("ms", "÷ ERM", "paper: ms", "paper: ÷ ERM")
    return Table("Cost of a step", caption, columns, tuple(rows), costs.labels, best=False)


def _entries(milliseconds: Mapping[Row, float], row: Row) -> tuple[Entry, Entry]:
    time, erm = milliseconds.get(row), milliseconds.get(ERM)
    if time is None or erm is None:
        return Entry(time), Entry(note="" if time is None else "ERM was not measured")
    return Entry(time), Entry(time / erm, text=two_decimals(time / erm))
