"""What the arrays of several kinds share. Fields are numpy arrays, or a plain number or text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from fgmix.results.report import Choices
from fgmix.results.runs import Runs
from fgmix.results.selection import Selection
from fgmix.results.tables import Table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Texts = npt.NDArray[np.str_]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Findings:
    """What figures from records show: the runs, how they are selected, and how they are shown."""

    runs: Runs
    selection: Selection  # among the runs outside of grids
    choices: Choices

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets of the runs outside of grids."""
        return tuple(self.selection.domains)


@dataclass(frozen=True, eq=False)
class Numbers:
    """A table of numbers."""

    title: str  # a few words
    corner: str  # what the rows are
    rows: Texts  # labels (r,)
    algorithms: Texts  # key of the algorithm of each row (r,)
    published: Bools  # whether a row is the paper's (r,)
    columns: Texts  # labels (c,)
    value: Floats  # (r, c); NaN for none
    spread: Floats  # the number after ± (r, c); NaN for none
    about: str = ""  # sentences for the caption: what ± is, what the paper lacks

    @classmethod
    def from_table(cls, table: Table, about: str = "") -> Self:
        """Convert a table of runs."""
        return cls(
            title=table.title,
            corner=table.corner,
            rows=np.array([table.label(row) for row in table.rows], dtype=np.str_),
            algorithms=np.array([row.row.anywhere.key for row in table.rows], dtype=np.str_),
            published=np.array([bool(row.source) for row in table.rows], dtype=np.bool_),
            columns=np.array(table.columns, dtype=np.str_),
            # None becomes NaN
            value=np.array([[entry.value for entry in row.entries] for row in table.rows], dtype=np.float64),
            spread=np.array([[entry.spread for entry in row.entries] for row in table.rows], dtype=np.float64),
            about=about,
        )


def make_slug(text: str) -> str:
    """Make a part of a file name from a title."""
    return "-".join("".join(c if c.isalnum() else " " for c in text).split())
