"""Figures that `fgmix plot` saved, as charts of the report."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from fgmix.errors import UserError
from fgmix.figures.description import Chart
from fgmix.figures.kinds import describe, load_arrays
from fgmix.records.store import RECORD


@dataclass(frozen=True)
class Saved:
    """Figures of a folder."""

    charts: tuple[Chart, ...] = ()  # those that could be read
    notes: tuple[str, ...] = ()  # errors of the others


def load_figures(folder: Path) -> Saved:
    """Describe the arrays that `fgmix plot --out FOLDER/figures` wrote, in any folder called figures."""
    paths = []
    for place, folders, names in os.walk(folder):
        # A folder with a record is a run: skipping 20,000 of them saves half a second.
        folders[:] = [name for name in folders if not os.path.lexists(f"{place}/{name}/{RECORD}")]
        if os.path.basename(place) == "figures":
            # A hidden file is one that is being written.
            paths += [Path(place, name) for name in names if name.endswith(".npz") and not name.startswith(".")]
    charts, notes = [], []
    for path in sorted(paths):
        try:
            charts.append(describe(load_arrays(path), path.stem, shlex.join(["fgmix", "plot", "results", str(path)])))
        except UserError as error:
            notes.append(str(error))
    return Saved(tuple(charts), tuple(notes))
