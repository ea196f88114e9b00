"""Tables of accuracies on lists of images, such as DomainBed-OOP, of runs with `--image-lists`. No torch."""

from __future__ import annotations

from dataclasses import replace

from fgmix.records.metrics import name_part
from fgmix.results.selection import Cell, Missing, Selected, Selection
from fgmix.results.tables import Spread, Table, dataset_table


def list_tables(selection: Selection, spread: Spread) -> list[Table]:
    """Make a table for each dataset and list: rows × test domains.

    Runs store these numbers for the weights that training-domain validation selects: for other rules there are no
    tables.
    """
    tables = []
    for name, datasets in _find_lists(selection).items():
        listed = replace(
            selection, cells={cell: _restrict(cell, outcome, name) for cell, outcome in selection.cells.items()}
        )
        for dataset in sorted(datasets):
            table = dataset_table(listed, dataset, spread=spread)
            caption = f"{table.caption} Only images of the list {name} are counted."
            tables.append(replace(table, title=f"{dataset}: {name}", caption=caption))
    return tables


def _find_lists(selection: Selection) -> dict[str, set[str]]:
    """Find the datasets of which runs have numbers, by the name of the list."""
    found: dict[str, set[str]] = {}
    for cell, outcome in selection.cells.items():
        if selection.rule == "training_domain" and isinstance(outcome, Selected):
            start = name_part(cell.test_domain, "")
            for key in outcome.record.unseen.get(cell.row.model, {}):
                if key.startswith(start):
                    found.setdefault(key.removeprefix(start), set()).add(cell.dataset)
    return found


def _restrict(cell: Cell, outcome: Selected | Missing, name: str) -> Selected | Missing:
    """Replace the accuracy on the test domain by that on its images in a list."""
    if isinstance(outcome, Missing):
        return outcome
    metrics = outcome.record.unseen.get(cell.row.model, {}).get(name_part(cell.test_domain, name))
    return replace(outcome, accuracy=metrics.accuracy) if metrics else Missing(f"no image of the list {name}")
