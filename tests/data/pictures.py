"""Folders of small pictures, made for a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def picture(seed: int, width: int = 12, height: int = 10, mode: str = "RGB") -> Image.Image:
    """A smooth picture (JPEG keeps it nearly as it is), another one for every seed."""
    rng = np.random.default_rng(seed)
    corners = Image.fromarray(rng.integers(0, 256, (3, 3, 3), dtype=np.uint8))
    return corners.resize((width, height), Image.Resampling.BILINEAR).convert(mode)


def make_folder(root: Path, layout: Mapping[str, Mapping[str, Sequence[str]]]) -> Path:
    """A folder domain/class/image from {domain: {class: [file name, …]}}; every file is another picture."""
    seed = 0
    for domain, classes in layout.items():
        for label, names in classes.items():
            folder = root / domain / label
            folder.mkdir(parents=True)
            for name in names:
                picture(seed).save(folder / name)
                seed += 1
    return root


def two_domains(root: Path) -> Path:
    """art and photo, each with two cats and two dogs."""
    classes = {"cat": ["1.png", "2.png"], "dog": ["1.png", "2.png"]}
    return make_folder(root, {"art": classes, "photo": classes})


def truncate(path: Path) -> Path:
    """Cut a file in half, as a broken download does."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def save_dicom(path: Path, values: np.ndarray, **tags: Any) -> Path:
    """Write an uncompressed DICOM file of grey values, or of colours (h, w, 3)."""
    pydicom = pytest.importorskip("pydicom")
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = SecondaryCaptureImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID = generate_uid(entropy_srcs=["fgmix"])
    dataset.Rows, dataset.Columns = values.shape[:2]
    dataset.SamplesPerPixel = 3 if values.ndim == 3 else 1
    if values.ndim == 3:
        dataset.PlanarConfiguration = 0
    dataset.PhotometricInterpretation = "RGB" if values.ndim == 3 else "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 8 * values.dtype.itemsize
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(values.dtype.kind == "i")
    dataset.PixelData = values.tobytes()
    for name, value in tags.items():
        setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)
    return path
