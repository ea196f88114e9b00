"""Load the images of a folder or a manifest as a dataset, through the cache of decoded images.

`fgmix data prepare` saves the catalogue of a dataset, so that runs list no file: `cache_dir()/prepared/<digest of the
path>.npz` contains the name, domain and class of every file, what the cache needs to know of their contents, and the
modification time of every folder. The time of a folder changes when files are added, removed or renamed; a file that is
changed in place is not detected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data.arrays import note_groups
from fgmix.data.augment import ImageInputs
from fgmix.data.dataset import Domain, DomainDataset, Indices, fingerprint_of
from fgmix.data.files import read_arrays, write_arrays
from fgmix.data.folders import Scan, class_notes, is_manifest, list_some, scan_images
from fgmix.data.image_cache import QUALITY, CachedImages, Contents, cache_dir, decode_images, open_images, read_contents
from fgmix.data.images import change_notes, check_size, inspect_file
from fgmix.data.registry import LoadOptions
from fgmix.errors import UserError
from fgmix.records.digests import Damaged
from fgmix.records.files import make_folder
from fgmix.terminal import print_notes


def load_images(path: Path, options: LoadOptions, *, name: str | None = None) -> DomainDataset:
    """Load a folder `domain/class/image`, or a CSV manifest of images, as a dataset.

    After `prepare_images` no image file is accessed: the modification times of the folders show whether files were
    added, removed or renamed. By default the dataset is named as the folder or the manifest.
    """
    check_size(options.file_size)  # before any file is read
    name = name or _name_dataset(path)
    saved = Catalogue.read(path, options.cache or cache_dir())
    if saved is not None:
        changed = saved.changed_folders()
        images = None if changed else open_images(saved.files, options, saved.contents)
        if images is not None:
            return _make_dataset(name, saved, images)
        if changed and options.progress:
            _print_once(
                f"Changed since `fgmix data prepare`: {list_some(changed)}. All files were looked at. Prepare again."
            )
    catalogue = Catalogue.of(scan_images(path), options)
    return _make_dataset(name, catalogue, decode_images(catalogue.files, options, catalogue.contents))


@cache  # a sweep loads its data several times
def _print_once(note: str) -> None:
    """Print a note once. It concerns the files on this machine, while notes on the data are part of every record."""
    print_notes(note)


@dataclass(frozen=True)
class Preparation:
    """The result of `prepare_images`."""

    dataset: DomainDataset
    images: CachedImages
    manifest: Path  # the file that saves runs from listing the images again

    def lines(self) -> list[str]:
        """Describe the result in lines of text."""
        n, recipe = len(self.images.readable), self.images.recipe
        domains = ", ".join(f"{domain.name} {len(domain):,}" for domain in self.dataset.domains)
        gigabytes = len(self.images.pixels) / 1e9
        how = "pixels" if recipe.encoding == "pixels" else f"JPEGs of quality {QUALITY}"
        return [
            f"{self.dataset.name}: {n:,} images in {len(self.dataset.classes)} classes ({domains}).",
            f"Decoded for {recipe.image_size} px as {how}: {self.images.file} ({gigabytes:.2f} GB).",
            f"Manifest: {self.manifest}. Run this command again after files were changed in place.",
            *self.dataset.notes,
        ]


def prepare_images(path: Path, options: LoadOptions) -> Preparation:
    """Decode the images of a folder or manifest into the cache, and store the list of files for later runs."""
    check_size(options.file_size)
    catalogue = Catalogue.of(scan_images(path), options)
    images = decode_images(catalogue.files, options, catalogue.contents)
    dataset = _make_dataset(_name_dataset(path), catalogue, images)
    return Preparation(dataset, images, catalogue.write(path, options.cache or cache_dir()))


def _name_dataset(path: Path) -> str:
    full = Path(os.path.realpath(path))  # `resolve` fails on a loop of links, which is reported on opening
    return full.name if os.path.isdir(full) else full.stem


def _make_dataset(name: str, catalogue: Catalogue, images: CachedImages) -> DomainDataset:
    """Make a dataset of the images that could be decoded, with notes on everything else."""
    rows = images.readable
    size = images.recipe.image_size
    numbers = np.unique(catalogue.label[rows])  # of the classes that have an image
    classes = tuple(catalogue.classes[number] for number in numbers)
    domains = []
    for number, domain in enumerate(catalogue.domains):
        mine = rows[catalogue.domain[rows] == number]
        y = np.searchsorted(numbers, catalogue.label[mine])
        holdout = None if catalogue.holdout is None else catalogue.holdout[mine]
        groups = None if catalogue.group is None else catalogue.group[mine]
        domains.append(Domain(domain, ImageInputs(images, mine, size), y, holdout, groups=groups))
    if lost := [d.name for d in domains if len(d.y) == 0]:
        raise UserError(
            f"Expected images in every domain of {catalogue.root}. None of {list_some(lost)} can be decoded."
        )
    fingerprint = fingerprint_of(
        [
            f"images {size}",
            images.key,
            rows,
            *classes,
            *(part for d in domains for part in (d.name, d.y)),
            *(d.holdout for d in domains if d.holdout is not None),
            *(d.groups for d in domains if d.groups is not None),
        ]
    )
    notes = [*catalogue.notes]
    if unreadable := [catalogue.name(row) for row in np.flatnonzero(images.heights == 0).tolist()]:
        notes.append(f"Files that cannot be decoded are left out: {len(unreadable)} ({list_some(unreadable)}).")
    notes += change_notes(images.changes, images.recipe.background)
    if images.recipe.encoding == "jpeg":
        notes.append(f"Images are kept as JPEGs of quality {QUALITY}: their pixels would not fit into memory.")
    present = {d.name: [classes[label] for label in np.unique(d.y)] for d in domains}
    notes += class_notes(present, catalogue.classes) + note_groups(domains, catalogue.groups)
    return DomainDataset(name, tuple(domains), classes, (3, size, size), "images", fingerprint, tuple(notes))


@dataclass(frozen=True)
class Catalogue:
    """The images of a dataset, in order, as arrays: compact even for a million files."""

    root: Path
    files: Sequence[str]  # domain by domain
    domains: tuple[str, ...]  # names, sorted
    domain: Indices  # of each file, an index of `domains`
    classes: tuple[str, ...]  # names of all classes, including those without an image
    label: Indices  # of each file, an index of `classes`
    holdout: npt.NDArray[np.bool_] | None  # whether each file belongs to the holdout part, if that is given
    groups: tuple[str, ...]  # names of all groups; empty without any
    group: Indices | None  # of each file, an index of `groups`
    notes: tuple[str, ...]  # what was left out
    contents: Contents
    folders: tuple[tuple[Path, int], ...]  # that were read, each with its modification time in ns before reading

    @classmethod
    def of(cls, scan: Scan, options: LoadOptions) -> Catalogue:
        """Convert the result of a scan, and read the contents of all files."""
        files = [str(file.path) for file in scan.files]
        domains = sorted({file.domain for file in scan.files})
        classes = sorted({file.label for file in scan.files} | scan.class_folders)
        domain_of, label_of = ({name: i for i, name in enumerate(names)} for names in (domains, classes))
        has_split = scan.files[0].holdout is not None
        groups = sorted({file.group for file in scan.files if file.group is not None})
        group_of = {name: i for i, name in enumerate(groups)}
        return cls(
            root=scan.root,
            files=files,
            domains=tuple(domains),
            domain=np.array([domain_of[file.domain] for file in scan.files], dtype=np.int64),
            classes=tuple(classes),
            label=np.array([label_of[file.label] for file in scan.files], dtype=np.int64),
            holdout=np.array([file.holdout for file in scan.files], dtype=np.bool_) if has_split else None,
            groups=tuple(groups),
            group=np.array([group_of[file.group or ""] for file in scan.files], dtype=np.int64) if groups else None,
            notes=scan.notes,
            contents=read_contents(files, options),
            folders=scan.folders,
        )

    def name(self, row: int) -> str:
        """Return the name of a file below the root; its whole path if it is elsewhere, as a manifest allows."""
        return self.files[row].removeprefix(f"{self.root}{os.sep}")

    def changed_folders(self) -> list[str]:
        """List the folders in which files were added, removed or renamed since."""
        return [str(folder) for folder, time in self.folders if _read_time(folder) != time]

    def write(self, path: Path, cache: Path) -> Path:
        """Write the catalogue of a folder or manifest to the cache; return the file."""
        about = {
            "listing": _digest_manifest(path),
            "names": [self.name(row) for row in range(len(self.files))],
            "domains": self.domains,
            "classes": self.classes,
            "groups": self.groups,
            "notes": self.notes,
            "contents": [self.contents.digest, self.contents.sizes],
            "folders": [(_shorten_path(folder, self.root), time) for folder, time in self.folders],
        }
        # JSON, because an array of texts would pad all to the longest; names may have any byte
        packed = np.frombuffer(json.dumps(about).encode(), np.uint8)
        arrays: dict[str, npt.NDArray[Any]] = {"domain": self.domain, "label": self.label, "about": packed}
        if self.holdout is not None:
            arrays["holdout"] = self.holdout
        if self.group is not None:
            arrays["group"] = self.group
        file = _locate_catalogue(path, cache)
        make_folder(file.parent, option="--cache")
        write_arrays(file, arrays)
        return file

    @classmethod
    def read(cls, path: Path, cache: Path) -> Catalogue | None:
        """Read the saved catalogue of a folder or manifest; None if there is none, or if the manifest has changed."""
        try:
            arrays = read_arrays(_locate_catalogue(path, cache))
        except Damaged as error:
            print_notes(f"{error} Every file is looked at; run `fgmix data prepare` again.")
            return None
        except OSError:
            return None
        about = json.loads(arrays["about"].tobytes()) if "about" in arrays else {}  # earlier versions have none
        if about.get("listing") != _digest_manifest(path):
            return None
        root = path.parent if is_manifest(path) else path
        digest, sizes = about["contents"]
        return cls(
            root=root,
            files=[os.path.join(root, name) for name in about["names"]],
            domains=tuple(about["domains"]),
            domain=arrays["domain"],
            classes=tuple(about["classes"]),
            label=arrays["label"],
            holdout=arrays.get("holdout"),
            groups=tuple(about.get("groups", ())),  # earlier versions have none
            group=arrays.get("group"),
            notes=tuple(about["notes"]),
            contents=Contents(digest, tuple((w, h) for w, h in sizes)),
            folders=tuple((root / name, time) for name, time in about["folders"]),
        )


def _locate_catalogue(path: Path, cache: Path) -> Path:
    return cache / "prepared" / f"{fingerprint_of([os.path.realpath(path)])}.npz"


def _digest_manifest(path: Path) -> str:
    """Return a digest of the CSV manifest; a constant for a folder."""
    return inspect_file(path)[0].hex() if is_manifest(path) else "folder"


def _shorten_path(folder: Path, root: Path) -> str:
    """Return the path relative to the root, so that other paths to the root work; else the absolute path."""
    return str(folder.relative_to(root) if folder.is_relative_to(root) else folder.absolute())


def _read_time(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1
