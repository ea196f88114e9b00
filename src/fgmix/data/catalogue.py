"""The files of a dataset: listed from a folder or a manifest, and saved by `fgmix data prepare` so that runs list none.

A saved catalogue, `cache_dir()/prepared/<digest of the path>.npz`, contains the name, domain and class of every file,
what the cache needs to know of their contents, and the modification time of every folder. The time of a folder changes
when files are added, removed or renamed; a file that is changed in place is not detected.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import Indices, fingerprint_of
from fgmix.data.files import read_arrays, write_arrays
from fgmix.data.folders import Scan, scan_folder
from fgmix.data.image_cache import Contents
from fgmix.data.images import inspect_file
from fgmix.data.manifest import scan_manifest
from fgmix.records.digests import Damaged
from fgmix.records.files import make_folder


def is_manifest(path: Path) -> bool:
    """Whether a path means a CSV manifest and not a folder."""
    return path.suffix.lower() == ".csv" and not os.path.isdir(path)


def scan_images(path: Path) -> Scan:
    """List the images of a folder or a CSV manifest."""
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
    """The images of a dataset, in order, as arrays: compact even for a million files."""

    files: Paths  # domain by domain
    domains: tuple[str, ...]  # names, sorted
    domain: Indices  # of each file, an index of `domains`
    classes: tuple[str, ...]  # names of all classes, including those without an image
    label: Indices  # of each file, an index of `classes`
    holdout: npt.NDArray[np.bool_] | None  # whether each file belongs to the holdout part, if that is given
    notes: tuple[str, ...]  # what was left out

    @classmethod
    def of(cls, scan: Scan) -> Catalogue:
        """Convert the result of a scan."""
        prefix = f"{scan.root}{os.sep}"
        domains = sorted({file.domain for file in scan.files})
        classes = sorted({file.label for file in scan.files} | scan.class_folders)
        has_split = scan.files[0].holdout is not None
        return cls(
            files=Paths(scan.root, [str(file.path).removeprefix(prefix) for file in scan.files]),
            domains=tuple(domains),
            domain=_numbers([file.domain for file in scan.files], domains),
            classes=tuple(classes),
            label=_numbers([file.label for file in scan.files], classes),
            holdout=np.array([file.holdout for file in scan.files], dtype=np.bool_) if has_split else None,
            notes=scan.notes,
        )


def _numbers(names: Sequence[str], order: Sequence[str]) -> Indices:
    number_of = {name: i for i, name in enumerate(order)}
    return np.array([number_of[name] for name in names], dtype=np.int64)


@dataclass(frozen=True)
class SavedCatalogue:
    """A dataset at the time of `fgmix data prepare`."""

    path: Path  # of the folder or the manifest
    catalogue: Catalogue
    contents: Contents
    folders: tuple[tuple[Path, int], ...]  # that were read, each with its modification time in ns before reading

    def changed_folders(self) -> list[str]:
        """List the folders in which files were added, removed or renamed since."""
        return [str(folder) for folder, time in self.folders if _time(folder) != time]

    def write(self, cache: Path) -> Path:
        """Write it to the cache; return the file."""
        catalogue = self.catalogue
        about = {
            "listing": _listing(self.path),
            "names": catalogue.files.names,
            "domains": catalogue.domains,
            "classes": catalogue.classes,
            "notes": catalogue.notes,
            "contents": [self.contents.digest, self.contents.sizes],
            "folders": [(_relative(folder, catalogue.files.root), time) for folder, time in self.folders],
        }
        # JSON, because an array of texts would pad all to the longest; names may have any byte
        packed = np.frombuffer(json.dumps(about).encode(), np.uint8)
        arrays: dict[str, npt.NDArray[Any]] = {"domain": catalogue.domain, "label": catalogue.label, "about": packed}
        if catalogue.holdout is not None:
            arrays["holdout"] = catalogue.holdout
        file = _file(self.path, cache)
        make_folder(file.parent, option="--cache")
        write_arrays(file, arrays)
        return file

    @classmethod
    def read(cls, path: Path, cache: Path) -> SavedCatalogue | None:
        """Read the saved catalogue of a folder or manifest; None if there is none, or if the manifest has changed."""
        try:
            arrays = read_arrays(_file(path, cache))
        except Damaged as error:
            print(f"note: {error} Every file is looked at; run `fgmix data prepare` again.", file=sys.stderr)
            return None
        except OSError:
            return None
        about = json.loads(arrays["about"].tobytes()) if "about" in arrays else {}  # earlier versions have none
        if about.get("listing") != _listing(path):
            return None
        root = path.parent if is_manifest(path) else path
        catalogue = Catalogue(
            files=Paths(root, about["names"]),
            domains=tuple(about["domains"]),
            domain=arrays["domain"],
            classes=tuple(about["classes"]),
            label=arrays["label"],
            holdout=arrays.get("holdout"),
            notes=tuple(about["notes"]),
        )
        digest, sizes = about["contents"]
        contents = Contents(digest, tuple((w, h) for w, h in sizes))
        return cls(path, catalogue, contents, tuple((root / name, time) for name, time in about["folders"]))


def _file(path: Path, cache: Path) -> Path:
    return cache / "prepared" / f"{fingerprint_of([os.path.realpath(path)])}.npz"


def _listing(path: Path) -> str:
    """Return a digest of the CSV manifest; a constant for a folder."""
    return inspect_file(path)[0].hex() if is_manifest(path) else "folder"


def _relative(folder: Path, root: Path) -> str:
    """Return the path relative to the root, so that other paths to the root work; else the absolute path."""
    return str(folder.relative_to(root) if folder.is_relative_to(root) else folder.absolute())


def _time(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1
