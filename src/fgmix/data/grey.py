"""Grey values of more than 8 bits, DICOM files, and the window of intensity in which they become 8-bit ones.

    v ↦ round(255 · clip((v − low) / (high − low), 0, 1))

A window is LOW:HIGH for all images of a dataset (of DICOM files in rescaled units, such as Hounsfield units), or
`dicom` for the window that each DICOM file names itself. By default it is chosen from the pixels of the dataset
(`image_dataset`), and a model keeps the one that it was trained with.

DICOM files are read with pydicom (extra `dicom`). The rescale slope and intercept (or the modality LUT) are applied.
Pixels of the padding value count as the lowest of the others. Of several frames the first is used.
"""

from __future__ import annotations

import io
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.errors import bad_value, require_package

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


PADDING = "PixelPaddingValue"


class NotSupported(ValueError):
    """An image that cannot be converted faithfully."""


def read_size(file: io.BufferedReader) -> tuple[int, int]:
    """Read (width, height) from the header of a DICOM file."""
    header = _read(file, stop_before_pixels=True)
    return int(header.Columns), int(header.Rows)


def read_dicom(file: io.BufferedReader, most_pixels: float) -> tuple[Grey | npt.NDArray[np.uint8], bool]:
    """Read the image of a DICOM file: grey values, or 8-bit ones (h, w) or (h, w, 3) that need no window.

    Args:
        file: opened for reading.
        most_pixels: more are refused before they are decoded.

    Returns:
        the image, and whether the file has further frames.
    """
    dataset = _read(file)
    if "PixelData" not in dataset:
        raise NotSupported("it holds no image")
    from pydicom.pixels import apply_modality_lut, pixel_array

    if dataset.Rows * dataset.Columns > most_pixels:
        raise NotSupported(f"it announces more than {most_pixels:,} pixels; reduce it first")
    kind, is_grey = str(dataset.PhotometricInterpretation), dataset.SamplesPerPixel == 1
    if kind == "PALETTE COLOR" or (not is_grey and dataset.BitsAllocated > 8):
        raise NotSupported(f"its colours are {kind} of {dataset.BitsAllocated} bits; save it as grey or as 8-bit RGB")
    several = int(dataset.get("NumberOfFrames") or 1) > 1
    try:
        values = pixel_array(dataset, index=0)  # colours are converted to RGB
    except RuntimeError as error:  # no decoder, or broken data
        how = dataset.file_meta.TransferSyntaxUID.name
        raise NotSupported(f"its pixels ({how}) cannot be decoded; try with python-gdcm installed") from error
    if not is_grey:
        return np.ascontiguousarray(values, dtype=np.uint8), several
    dark = kind == "MONOCHROME1"
    values = _fill_padding(values, dataset.get(PADDING), dark)
    rescaled = apply_modality_lut(values, dataset)
    if dataset.BitsStored <= 8 and not dataset.PixelRepresentation and np.array_equal(rescaled, values):
        return np.ascontiguousarray(255 - values if dark else values, dtype=np.uint8), several
    return Grey(rescaled, _find_own_window(dataset), dark), several


def _read(file: io.BufferedReader, **how: bool) -> Any:
    require_package("pydicom", "dicom")
    from pydicom import dcmread

    return dcmread(file, **how)


def _fill_padding(values: npt.NDArray[Any], padding: int | None, dark: bool) -> npt.NDArray[Any]:
    """Replace the padding around an image by its darkest value: it would widen every window."""
    outside = values == padding
    if padding is None or not outside.any() or outside.all():
        return values
    inside = values[~outside]
    return np.where(outside, inside.max() if dark else inside.min(), values)


def _find_own_window(dataset: Any) -> Window | None:
    """Return the first window of a file, by PS3.3 C.11.2.1.2; None if it has none that is linear."""
    centers, widths = dataset.get("WindowCenter"), dataset.get("WindowWidth")
    function = dataset.get("VOILUTFunction", "LINEAR")
    if centers is None or widths is None or function not in ("LINEAR", "LINEAR_EXACT"):
        return None
    center, width = (float(np.atleast_1d(np.asarray(each, dtype=np.float64))[0]) for each in (centers, widths))
    if function == "LINEAR":
        center, width = center - 0.5, width - 1
    return Window(center - width / 2, center + width / 2) if width > 0 else None
