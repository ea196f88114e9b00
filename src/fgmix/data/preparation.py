"""The file that `fgmix data prepare` writes, `cache/prepared/<digest of the path>.npz`: runs then list no files.

It contains the name, domain and class of every file, the digest of their contents, and the modification time of every
folder. The time of a folder changes when files are added, removed or renamed; a file that is changed in place is not
detected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data._arrays_file import read_arrays, write_arrays
from fgmix.data._dataset import fingerprint_of
from fgmix.data.catalogue import Catalogue, Paths, is_manifest
from fgmix.data.images import digest_of
from fgmix.records.digests import Damaged
from fgmix.records.files import make_folder

Text = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Preparation:
    """A dataset at the time of its preparation.

    Args:
        path: path of the folder or the manifest.
        catalogue: its images.
        contents: digest of the contents of all images.
        folders: the folders that were read, each with its modification time in ns before reading.
    """

    path: Path
    catalogue: Catalogue
    contents: str
    folders: tuple[tuple[Path, int], ...]

    def changed_folders(self) -> list[str]:
        """Names of the folders in which files were added, removed or renamed since."""
        return [str(folder) for folder, time in self.folders if _time(folder) != time]

    def write(self, cache: Path) -> Path:
        """Write it to the cache; return the file."""
        catalogue = self.catalogue
        arrays: dict[str, npt.NDArray[Any]] = {
            "listing": _text([_listing(self.path)]),
            "names": _text(catalogue.files.names),
            "domains": _text(catalogue.domains),
            "domain": catalogue.domain,
            "classes": _text(catalogue.classes),
            "label": catalogue.label,
            "notes": _text(catalogue.notes),
            "contents": _text([self.contents]),
            "folders": _text(_below(folder, catalogue.files.root) for folder, _ in self.folders),
            "times": np.array([time for _, time in self.folders], dtype=np.int64),
        }
        if catalogue.holdout is not None:
            arrays["holdout"] = catalogue.holdout
        file = _file(self.path, cache)
        make_folder(file.parent, option="--cache")
        write_arrays(file, arrays)
        return file

    @classmethod
    def read(cls, path: Path, cache: Path) -> Preparation | None:
        """The preparation of a folder or manifest; None if it was not prepared, or if the manifest has changed."""
        file = _file(path, cache)
        try:
            arrays = read_arrays(file)
        except Damaged as error:
            print(f"note: {error} Every file is looked at; run `fgmix data prepare` again.", file=sys.stderr)
            return None
        except OSError:
            return None
        if _texts(arrays["listing"]) != [_listing(path)]:
            return None
        root = path.parent if is_manifest(path) else path
        catalogue = Catalogue(
            files=Paths(root, _texts(arrays["names"])),
            domains=tuple(_texts(arrays["domains"])),
            domain=arrays["domain"],
            classes=tuple(_texts(arrays["classes"])),
            label=arrays["label"],
            holdout=arrays.get("holdout"),
            notes=tuple(_texts(arrays["notes"])),
        )
        folders = tuple((root / name, int(time)) for name, time in zip(_texts(arrays["folders"]), arrays["times"]))
        return cls(path, catalogue, _texts(arrays["contents"])[0], folders)


def _file(path: Path, cache: Path) -> Path:
    return cache / "prepared" / f"{fingerprint_of([os.path.realpath(path)])}.npz"


def _listing(path: Path) -> str:
    """A digest of the CSV manifest; a constant for a folder."""
    return digest_of(path).hex() if is_manifest(path) else "folder"


def _below(folder: Path, root: Path) -> str:
    """The path of the folder relative to the root, so that other paths to the root work; else its absolute path."""
    return str(folder.relative_to(root) if folder.is_relative_to(root) else folder.absolute())


def _time(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1


def _text(parts: Iterable[str]) -> Text:
    """Texts as bytes, each ended by a NUL, which no name contains; an array of texts would pad all to the longest."""
    joined = "".join(f"{part}\0" for part in parts)
    return np.frombuffer(joined.encode(errors="surrogateescape"), np.uint8)


def _texts(array: Text) -> list[str]:
    return array.tobytes().decode(errors="surrogateescape").split("\0")[:-1]
