"""The images of a folder or a manifest as arrays, which are compact even for a million files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from fgmix.data._dataset import Indices
from fgmix.data.folders import Scan, scan_folder
from fgmix.data.manifest import scan_manifest


def is_manifest(path: Path) -> bool:
    """Whether a path means a CSV manifest and not a folder."""
    return path.suffix.lower() == ".csv" and not os.path.isdir(path)


def scan_images(path: Path) -> Scan:
    """The images of a folder or a CSV manifest."""
    return scan_manifest(path) if is_manifest(path) else scan_folder(path)


class Paths(Sequence[Path]):
    """Files below a folder, stored as names: a `Path`, created on access, takes ten times the memory."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root, self.names = root, names

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Path]: ...
    def __getitem__(self, index: int | slice) -> Path | Sequence[Path]:
        if isinstance(index, slice):
            return Paths(self.root, self.names[index])
        return self.root / self.names[index]


@dataclass(frozen=True)
class Catalogue:
    """The images of a dataset, in order.

    Args:
        files: the image files, domain by domain.
        domains: names of the domains, sorted.
        domain: index of the domain of each file.
        classes: names of all classes, including those without an image.
        label: index of the class of each file.
        holdout: whether each file belongs to the holdout part; None if that is not given.
        notes: what was left out.
    """

    files: Paths
    domains: tuple[str, ...]
    domain: Indices
    classes: tuple[str, ...]
    label: Indices
    holdout: npt.NDArray[np.bool_] | None
    notes: tuple[str, ...]

    @classmethod
    def of(cls, scan: Scan) -> Catalogue:
        """The images that a scan found."""
        prefix = f"{scan.root}{os.sep}"
        domains = sorted({file.domain for file in scan.files})
        classes = sorted({file.label for file in scan.files} | scan.class_folders)
        number_of_domain = {name: i for i, name in enumerate(domains)}
        number_of_class = {name: i for i, name in enumerate(classes)}
        has_split = scan.files[0].holdout is not None
        return cls(
            files=Paths(scan.root, [str(file.path).removeprefix(prefix) for file in scan.files]),
            domains=tuple(domains),
            domain=np.array([number_of_domain[file.domain] for file in scan.files], dtype=np.int64),
            classes=tuple(classes),
            label=np.array([number_of_class[file.label] for file in scan.files], dtype=np.int64),
            holdout=np.array([file.holdout for file in scan.files], dtype=np.bool_) if has_split else None,
            notes=scan.notes,
        )
