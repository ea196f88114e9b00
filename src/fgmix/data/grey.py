"""Grey values of more than 8 bits, and the window of intensity in which they become 8-bit ones.

    v ↦ round(255 · clip((v − low) / (high − low), 0, 1))

A window is LOW:HIGH for all images of a dataset (of DICOM files in rescaled units, such as Hounsfield units), or
`dicom` for the window that each DICOM file names itself. By default it is chosen from the
pixels of the dataset (`windows`), and a model keeps the one that it was trained with.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.errors import bad_value

OWN = "dicom"  # the window in each file


@dataclass(frozen=True)
class Window:
    """Grey values between which an image is shown: `low` becomes black, `high` white."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g}:{self.high:g}"

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """Convert grey values to 8 bits.

        >>> Window(-1000, 400).apply(np.array([-2000, -1000, -300, 400])).tolist()
        [0, 0, 128, 255]
        """
        share = (values.astype(np.float64) - self.low) / (self.high - self.low)
        return np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8)


@dataclass(frozen=True)
class Grey:
    """A grey image of more than 8 bits."""

    values: npt.NDArray[Any]  # (h, w)
    own: Window | None = None  # that the file names
    dark: bool = False  # whether high values are dark, as in DICOM's MONOCHROME1

    def show(self, window: Window) -> npt.NDArray[np.uint8]:
        """Convert to 8 bits, with high values bright."""
        shown = window.apply(self.values)
        return 255 - shown if self.dark else shown


def parse_window(text: str) -> Window | None:
    """Parse LOW:HIGH; None for the files' own window and for none at all; UserError for another text.

    >>> parse_window("-1000:400")
    Window(low=-1000.0, high=400.0)
    """
    if text in ("", OWN):
        return None
    ends = re.fullmatch(r"\s*([^:\s]+)\s*:\s*([^:\s]+)\s*", text) if isinstance(text, str) else None
    try:
        low, high = map(float, ends.groups()) if ends else (math.nan, math.nan)
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(high - low) and low < high):
        raise bad_value("window", "LOW:HIGH, such as -1000:400, or dicom", text)
    return Window(low, high)
