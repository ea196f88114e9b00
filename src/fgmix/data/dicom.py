"""Read DICOM files with pydicom (extra `dicom`): values in rescaled units and the window that the file names.

The rescale slope and intercept (or the modality LUT) are applied. Pixels of the padding value count as the lowest of
the others. Of several frames the first is used.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data.grey import Grey, Window
from fgmix.errors import UserError

PREFIX = 128, b"DICM"  # what a DICOM file has at this byte
PADDING = "PixelPaddingValue"


class NotSupported(ValueError):
    """An image that cannot be converted faithfully."""


def is_dicom(file: io.BufferedReader) -> bool:
    """Say whether an open file is a DICOM file, by its content; the position in it stays."""
    start, mark = PREFIX
    return file.peek(start + len(mark))[start:].startswith(mark)


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
    if find_spec("pydicom") is None:
        raise UserError("Expected the library pydicom. It is not installed. Run `pip install 'fgmix[dicom]'`.")
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
