"""The files of a dataset: listed from a folder or a manifest, and saved by `fgmix data prepare` so that runs list none.

A saved catalogue, `cache_dir()/prepared/<digest of the path>.npz`, contains the name, domain and class of every file,
what the cache needs to know of their contents, and the modification time of every folder. The time of a folder changes
when files are added, removed or renamed; a file that is changed in place is not detected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
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
    """The images of a dataset, in order, as arrays: compact even for a million files.

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
        """Convert the result of a scan."""
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


@dataclass(frozen=True)
class SavedCatalogue:
    """A dataset at the time of `fgmix data prepare`.

    Args:
        path: path of the folder or the manifest.
        catalogue: its images.
        contents: the contents of all images.
        folders: the folders that were read, each with its modification time in ns before reading.
    """

    path: Path
    catalogue: Catalogue
    contents: Contents
    folders: tuple[tuple[Path, int], ...]

    def changed_folders(self) -> list[str]:
        """List the folders in which files were added, removed or renamed since."""
        return [str(folder) for folder, time in self.folders if _time(folder) != time]

    def write(self, cache: Path) -> Path:
        """Write it to the cache; return the file."""
        catalogue = self.catalogue
        arrays: dict[str, npt.NDArray[Any]] = {
            "listing": _pack([_listing(self.path)]),
            "names": _pack(catalogue.files.names),
            "domains": _pack(catalogue.domains),
            "domain": catalogue.domain,
            "classes": _pack(catalogue.classes),
            "label": catalogue.label,
            "notes": _pack(catalogue.notes),
            "contents": _pack([self.contents.digest]),
            "sizes": np.array(self.contents.sizes, dtype=np.int64).reshape(-1, 2),
            "folders": _pack(_relative(folder, catalogue.files.root) for folder, _ in self.folders),
            "times": np.array([time for _, time in self.folders], dtype=np.int64),
        }
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
        if "sizes" not in arrays or _unpack(arrays["listing"]) != [_listing(path)]:  # earlier versions saved no sizes
            return None
        root = path.parent if is_manifest(path) else path
        catalogue = Catalogue(
            files=Paths(root, _unpack(arrays["names"])),
            domains=tuple(_unpack(arrays["domains"])),
            domain=arrays["domain"],
            classes=tuple(_unpack(arrays["classes"])),
            label=arrays["label"],
            holdout=arrays.get("holdout"),
            notes=tuple(_unpack(arrays["notes"])),
        )
        contents = Contents(_unpack(arrays["contents"])[0], tuple((w, h) for w, h in arrays["sizes"].tolist()))
        folders = tuple((root / name, int(time)) for name, time in zip(_unpack(arrays["folders"]), arrays["times"]))
        return cls(path, catalogue, contents, folders)


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


def _pack(texts: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Join texts, each ended by a NUL, which no name contains; an array of texts would pad all to the longest."""
    joined = "".join(f"{text}\0" for text in texts)
    return np.frombuffer(joined.encode(errors="surrogateescape"), np.uint8)


def _unpack(packed: npt.NDArray[np.uint8]) -> list[str]:
    return packed.tobytes().decode(errors="surrogateescape").split("\0")[:-1]
