"""What the arrays of several kinds share. Fields are numpy arrays, or a plain number or text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fgmix.results.report import Choices
from fgmix.results.runs import Runs
from fgmix.results.selection import Selection

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


def make_slug(text: str) -> str:
    """Make a part of a file name from a title."""
    return "-".join("".join(c if c.isalnum() else " " for c in text).split())
