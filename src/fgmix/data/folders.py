"""List the images of a folder `domain/class/image`, or of a CSV manifest, in the order of DomainBed.

A folder is read in the order of torchvision's ImageFolder, which is DomainBed's. Domains are the sub-folders, sorted by
name; classes are the sorted union of their sub-folders. Within a class, folders are walked in sorted order, and files
are sorted in each. A file counts as an image by its extension. Unlike in ImageFolder, hidden folders are ignored, a
folder that is linked twice within a class is read once, a domain may lack a class (labels are the same in every
domain), and a class without any image is dropped. Notes list what was left out.

A manifest has one line per image, for files in any folders:

    path,label,domain
    scans/0001.png,healthy,ct
    /data/mr/17.png,ill,mr

The columns `path`, `label` and `domain` are required, in any order. The optional column `split` is `train` or `holdout`
(or `val`, `validation`) for every image and replaces the random split. The optional column `group` names what images
have in common, such as the patient: a random split puts all images of a group in a domain into one part. The optional
column `sample_weight` gives the weight of every image in training, relative within its domain. Paths are
relative to the folder of the manifest. Lines may be in any order: domains are sorted by name, and images of a domain by
class, folder and file name, which is the order of a folder `domain/class/image`. A manifest that lists such a folder
gives the same dataset with the same fingerprint.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

from fgmix.data.files import describe_path, raise_failure, read_csv
from fgmix.errors import UserError

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".dcm", ".dicom")
NAMED = 5  # how many files or classes a note names

REQUIRED = ("path", "label", "domain")
OPTIONAL = ("split", "group", "sample_weight")
SPLITS = {"train": False, "holdout": True, "val": True, "validation": True}


@dataclass(frozen=True)
class ImageFile:
    """One image: its domain, class and path, and what a manifest says of it."""

    domain: str
    label: str
    path: Path
    holdout: bool | None = None
    group: str | None = None
    weight: float | None = None


@dataclass(frozen=True)
class Scan:
    """The images of a folder or a manifest."""

    root: Path  # the folder, or the folder of the manifest
    files: tuple[ImageFile, ...]  # domain by domain
    class_folders: frozenset[str]  # of all domains; some may be empty
    notes: tuple[str, ...]  # what was left out

    def name(self, row: int) -> str:
        """Return the name of a file below the root; its whole path if it is elsewhere, as a manifest allows."""
        return str(self.files[row].path).removeprefix(f"{self.root}{os.sep}")

    def paths(self) -> list[str]:
        """Return the paths of all files."""
        return [str(file.path) for file in self.files]

    def counts(self) -> dict[str, int]:
        """Count the images of each domain."""
        return {domain: len(paths) for domain, paths in self.by_domain().items()}

    def by_domain(self) -> dict[str, list[Path]]:
        """Return the files of each domain."""
        grouped = groupby(self.files, lambda file: file.domain)
        return {domain: [file.path for file in files] for domain, files in grouped}


def scan_folder(path: Path, fewest: int = 2) -> Scan:
    """Find the images under `path` without reading any; UserError for fewer than `fewest` domains, which is 1 or 2."""
    if not os.path.isdir(path):
        raise UserError(f"Expected a folder domain/class/image at {path}. Found {describe_path(path)}.")
    reader, above = _Reader(), set[str]()
    domains, loose = reader.read(path, above)
    reader.others.clear()  # beside the domains anything may be
    files: list[ImageFile] = []
    class_folders: set[str] = set()
    notes = []
    if loose:
        notes.append(f"Images directly in the folder belong to no domain and are left out: {len(loose)}.")
    mixed = []  # domains with images outside of classes
    for domain in domains:
        labels, direct = reader.read(path / domain, inside := {*above})
        if path / domain in reader.repeated:
            continue
        places = [(label, reader.list_images(path / domain / label, {*inside})) for label in labels]
        files += [ImageFile(domain, label, file) for label, images in places for file in images]
        if any(images for _, images in places):
            class_folders |= set(labels)
        else:
            notes.append(f"Folder {domain!r} holds no class/image and is left out.")
        if direct:
            notes.append(f"Images directly in {domain!r} belong to no class and are left out: {len(direct)}.")
            mixed.append(domain)
    if len({file.domain for file in files}) < fewest:
        raise _missing_domains(path, files, mixed, len(loose), reader.others)
    if reader.others:
        notes.append(f"Files that are no images by their ending are left out: {_name_endings(reader.others)}.")
    if links := [str(link.relative_to(path)) for link in reader.repeated]:
        notes.append(f"Links to a folder that is read already are left out: {list_some(links)}.")
    return Scan(path, tuple(files), frozenset(class_folders), tuple(notes))


def class_notes(present: Mapping[str, Iterable[str]], class_folders: Iterable[str]) -> list[str]:
    """Note class folders without any image, and for every domain the classes of others that it lacks."""
    classes = {label for labels in present.values() for label in labels}
    dropped = sorted(set(class_folders) - classes)
    notes = [f"Classes without an image in any domain are dropped: {list_some(dropped)}."] if dropped else []
    return notes + [
        f"Domain {domain!r} has no image of {list_some(sorted(lacks))}."
        for domain, labels in present.items()
        if (lacks := classes - set(labels))
    ]


def describe_shared_groups(names: Sequence[str]) -> str:
    """Describe groups that occur in several domains: a split keeps them together within each domain only."""
    return f"Groups that occur in several domains, which are then not independent: {list_some(names)}."


def list_some(items: Sequence[str]) -> str:
    """List the first few of `items`, and count the others.

    >>> list_some(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return ", ".join(items[:NAMED]) + more


@dataclass
class _Reader:
    """Reads folders and records what was left out."""

    others: Counter[str] = field(default_factory=Counter)  # number of files that are not images, by extension
    repeated: list[Path] = field(default_factory=list)  # links to folders read already, or that contain the link

    def read(self, folder: Path, above: set[str]) -> tuple[list[str], list[str]]:
        """List sub-folders and images, both sorted; UserError if it cannot be read. Hidden folders are ignored.

        Its real path is added to `above`; nothing is listed of a folder that is in it already.
        """
        if (real := os.path.realpath(folder)) in above:
            self.repeated.append(folder)
            return [], []
        above.add(real)
        folders, images = [], []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    is_hidden = entry.name.startswith(".")
                    # `entry.is_dir()` would raise an error for a link to itself, or into a folder without permission
                    if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry)):
                        folders += [] if is_hidden else [entry.name]
                    elif is_image(entry.name):
                        images.append(entry.name)
                    elif not is_hidden:
                        self.others[os.path.splitext(entry.name)[1].lower()] += 1
        except OSError as error:
            raise_failure(error, folder)
            raise UserError(f"Expected to read the folder {folder}. It failed ({error.strerror}).") from error
        return sorted(folders), sorted(images)

    def list_images(self, folder: Path, above: set[str]) -> list[Path]:
        """List the images of a class in the order of sorted(os.walk), each folder once, even if linked twice."""
        walked, waiting = [], [folder]
        while waiting:
            current = waiting.pop()
            folders, images = self.read(current, above)
            walked.append((str(current), current, images))
            waiting += [current / name for name in reversed(folders)]
        return [parent / name for _, parent, names in sorted(walked) for name in names]


def is_image(name: str) -> bool:
    """Say whether a file counts as an image by its extension."""
    return name.lower().endswith(EXTENSIONS)


def _missing_domains(
    path: Path, files: Sequence[ImageFile], mixed: Sequence[str], loose: int, others: Counter[str]
) -> UserError:
    """Say what was found instead of two domains: one, images in the wrong place, or no image at all."""
    if files:
        only = files[0].domain
        remedy = f"Give the folder whose sub-folders are the domains; if those are the domains, give {path / only}."
        return _one_domain(files, f"domain/class/image under {path}", remedy)
    found = f"none, but other files ({_name_endings(others)})" if others else "none"
    remedy = f"Images end in {', '.join(EXTENSIONS)}."
    if mixed:
        found = f"images directly in its sub-folders ({list_some(mixed)}): it looks like one domain"
        remedy = "Give the folder that holds it and the other domains."
    elif loose:
        found, remedy = f"{loose} directly in it", "Sort them, or list them in a CSV manifest."
    return UserError(f"Expected images domain/class/image under {path}. Found {found}. {remedy}")


def _name_endings(counts: Counter[str]) -> str:
    """List extensions with their counts, most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return list_some([f"{n} {ending or 'without an ending'}" for ending, n in ordered])


def _one_domain(files: Sequence[ImageFile], where: str, remedy: str) -> UserError:
    only = f"one, {files[0].domain!r}, with classes {list_some(sorted({file.label for file in files}))}"
    return UserError(f"Expected at least two domains {where}. Found {only}. {remedy}")


# CSV manifests


def scan_manifest(path: Path, fewest: int = 2) -> Scan:
    """Read the images of a CSV manifest; UserError with line numbers if it is not valid."""
    first: dict[str, int] = {}
    files, missing = [], []
    for number, cells in _read_lines(path):
        file = path.parent / cells["path"]
        before = first.setdefault(os.path.abspath(file), number)
        if before != number:
            raise UserError(f"Expected every path once in {path}. Found {cells['path']!r} in {before} and {number}.")
        if not os.path.exists(file):
            missing.append(f"{cells['path']!r} (line {number})")
        split, weight = (_parse(cells, name, number, path) for name in ("split", "sample_weight"))
        files.append(ImageFile(cells["domain"], cells["label"], file, split, cells.get("group"), weight))
    if missing:
        raise UserError(
            f"Expected the {len(files)} files that {path} names, relative to {path.parent.absolute()}. Found no "
            f"{list_some(missing)}. Correct the paths, or remove the lines."
        )
    files.sort(key=lambda file: (file.domain, file.label, str(file.path.parent), file.path.name))
    if len({file.domain for file in files}) < fewest:
        raise _one_domain(files, f"in {path}", "Add the images of another domain.")
    return Scan(path.parent, tuple(files), frozenset(file.label for file in files), ())


def is_manifest(path: Path) -> bool:
    """Say whether a path means a CSV manifest and not a folder."""
    return path.suffix.lower() == ".csv" and not os.path.isdir(path)


def scan_images(path: Path, fewest: int = 2) -> Scan:
    """List the images of a folder or a CSV manifest."""
    return scan_manifest(path, fewest) if is_manifest(path) else scan_folder(path, fewest)


def manifest_paths(path: Path) -> list[Path]:
    """List the files of a manifest, in its order, whether they exist or not; only the column `path` is required."""
    return [path.parent / cells["path"] for _, cells in _read_lines(path, required=("path",))]


def _read_lines(path: Path, required: Sequence[str] = REQUIRED) -> list[tuple[int, dict[str, str]]]:
    """Read the numbers and cells of the lines of a manifest."""
    header, rows = read_csv(path)
    if not set(required) <= set(header) <= {*REQUIRED, *OPTIONAL} or len(set(header)) < len(header):
        optional = [name for name in (*REQUIRED, *OPTIONAL) if name not in required]
        raise UserError(
            f"Expected the columns {', '.join(required)} and, if wanted, {', '.join(optional)} in {path}, each once, "
            f"separated by commas. Found {', '.join(map(repr, header)) or 'nothing'}."
        )
    if not rows:
        raise UserError(f"Expected lines below the header of {path}. Found none. Add one for every image.")
    for number, row in rows:
        if blank := [name for name, cell in zip(header, row) if not cell.strip()]:
            raise UserError(f"Expected a value in every cell of {path}. Found no {blank[0]} in line {number}. Fill it.")
    # a file name may end in a blank, a class name should not
    return [
        (number, {name: cell if name == "path" else cell.strip() for name, cell in zip(header, row)})
        for number, row in rows
    ]


def _parse(cells: dict[str, str], name: str, number: int, path: Path) -> Any:
    """Parse the split or the weight of an image; None if the manifest has no such column."""
    if name not in cells:
        return None
    with suppress(ValueError, KeyError):
        value = SPLITS[cells[name]] if name == "split" else float(cells[name])
        if 0 <= value < inf:
            return value
    expected = "train or holdout" if name == "split" else "a number of at least 0"
    raise UserError(f"Expected {expected} as {name} in {path}. Found {cells[name]!r} in line {number}.")
