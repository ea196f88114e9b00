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
have in common, such as the patient: a random split puts all images of a group in a domain into one part. Paths are
relative to the folder of the manifest. Lines may be in any order: domains are sorted by name, and images of a domain by
class, folder and file name, which is the order of a folder `domain/class/image`. A manifest that lists such a folder
gives the same dataset with the same fingerprint.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from fgmix.data.files import describe_path, raise_failure, read_csv
from fgmix.errors import UserError

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".dcm", ".dicom")
NAMED = 5  # how many files or classes a note names

REQUIRED = ("path", "label", "domain")
OPTIONAL = ("split", "group")
SPLITS = {"train": False, "holdout": True, "val": True, "validation": True}

_Line = tuple[int, dict[str, str]]  # its number, and its cells by column

Identity = tuple[int, int]  # device and inode of a folder, independent of the path


@dataclass(frozen=True)
class ImageFile:
    """One image: its domain, class and path, and what a manifest says of it: its part of the split, its group."""

    domain: str
    label: str
    path: Path
    holdout: bool | None = None
    group: str | None = None


@dataclass(frozen=True)
class Scan:
    """The images of a folder or a manifest."""

    root: Path  # the folder, or the folder of the manifest
    files: tuple[ImageFile, ...]  # domain by domain
    class_folders: frozenset[str]  # of all domains; some may be empty
    notes: tuple[str, ...]  # what was left out
    folders: tuple[tuple[Path, int], ...]  # every folder that was read, with its modification time (ns) before reading

    def name(self, row: int) -> str:
        """Return the name of a file below the root; its whole path if it is elsewhere, as a manifest allows."""
        return str(self.files[row].path).removeprefix(f"{self.root}{os.sep}")

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
    reader = _Reader()
    root = reader.read(path)
    files: list[ImageFile] = []
    class_folders: set[str] = set()
    notes: list[str] = []
    if root.images:
        notes.append(f"Images directly in the folder belong to no domain and are left out: {len(root.images)}.")
    direct: list[str] = []  # domains with images outside of classes
    for domain in root.folders:
        inside = reader.read(path / domain)
        if inside.identity == root.identity:
            reader.repeated.append(path / domain)
            continue
        images = [
            ImageFile(domain, label, file)
            for label in inside.folders
            for file in reader.list_images(path / domain / label, {root.identity, inside.identity})
        ]
        reader.others.update(inside.others)
        files += images
        if images:
            class_folders |= set(inside.folders)
        else:
            notes.append(f"Folder {domain!r} holds no class/image and is left out.")
        if inside.images:
            notes.append(f"Images directly in {domain!r} belong to no class and are left out: {len(inside.images)}.")
            direct.append(domain)
    if len({file.domain for file in files}) < fewest:
        raise _missing_domains(path, files, direct, len(root.images), reader)
    notes += reader.list_notes(path)
    return Scan(path, tuple(files), frozenset(class_folders), tuple(notes), tuple(reader.times))


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


@dataclass(frozen=True)
class _Inside:
    """What is in a folder: visible sub-folders and image files, both sorted, and the extensions of other files."""

    identity: Identity
    folders: list[str]
    images: list[str]
    others: list[str]


@dataclass
class _Reader:
    """Reads folders and records what was read and what was left out."""

    times: list[tuple[Path, int]] = field(default_factory=list)  # of modification of every folder, before reading it
    others: Counter[str] = field(default_factory=Counter)  # number of files that are not images, by extension
    repeated: list[Path] = field(default_factory=list)  # links to folders read already, or that contain the link

    def read(self, folder: Path) -> _Inside:
        """List a folder; UserError if it cannot be read. Hidden folders, and hidden files but images, are ignored."""
        folders, images, others = [], [], []
        try:
            stat = os.stat(folder)
            self.times.append((folder, stat.st_mtime_ns))
            with os.scandir(folder) as entries:
                for entry in entries:
                    # `entry.is_dir()` would raise an error for a link to itself, or into a folder without permission
                    if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry)):
                        folders.append(entry.name)
                    elif is_image(entry.name):
                        images.append(entry.name)
                    elif not entry.name.startswith("."):
                        others.append(os.path.splitext(entry.name)[1].lower())
        except OSError as error:
            raise_failure(error, folder)
            raise UserError(f"Expected to read the folder {folder}. It failed ({error.strerror}).") from error
        visible = sorted(name for name in folders if not name.startswith("."))
        return _Inside((stat.st_dev, stat.st_ino), visible, sorted(images), others)

    def list_images(self, folder: Path, above: set[Identity]) -> list[Path]:
        """List the images of a class in the order of sorted(os.walk), each folder once, even if linked twice."""
        seen, waiting, walked = set(above), [folder], []
        while waiting:
            current = waiting.pop()
            inside = self.read(current)
            if inside.identity in seen:
                self.repeated.append(current)
                continue
            seen.add(inside.identity)
            self.others.update(inside.others)
            walked.append((str(current), current, inside.images))
            waiting += [current / name for name in reversed(inside.folders)]
        return [parent / name for _, parent, names in sorted(walked) for name in names]

    def list_notes(self, root: Path) -> list[str]:
        """Note what was left out."""
        notes = []
        if self.others:
            notes.append(f"Files that are no images by their ending are left out: {self.name_others()}.")
        if self.repeated:
            links = [str(link.relative_to(root)) for link in self.repeated]
            notes.append(f"Links to a folder that is read already are left out: {list_some(links)}.")
        return notes

    def name_others(self) -> str:
        """List extensions with their counts, most frequent first."""
        ordered = sorted(self.others.items(), key=lambda item: (-item[1], item[0]))
        return list_some([f"{n} {ending or 'without an ending'}" for ending, n in ordered])


def is_image(name: str) -> bool:
    """Say whether a file counts as an image by its extension."""
    return name.lower().endswith(EXTENSIONS)


def _missing_domains(
    path: Path, files: Sequence[ImageFile], direct: Sequence[str], loose: int, reader: _Reader
) -> UserError:
    """Say what was found instead of two domains: one, images in the wrong place, or no image at all."""
    if files:
        only = files[0].domain
        remedy = f"Give the folder whose sub-folders are the domains; if those are the domains, give {path / only}."
        return _one_domain(files, f"domain/class/image under {path}", remedy)
    expected = f"Expected images domain/class/image under {path}"
    if direct:
        return UserError(
            f"{expected}. Found images directly in its sub-folders ({list_some(direct)}): it looks like one domain. "
            "Give the folder that holds it and the other domains."
        )
    if loose:
        return UserError(f"{expected}. Found {loose} directly in it. Sort them, or list them in a CSV manifest.")
    others = f"none, but other files ({reader.name_others()})" if reader.others else "none"
    return UserError(f"{expected}. Found {others}. Images end in {', '.join(EXTENSIONS)}.")


def _one_domain(files: Sequence[ImageFile], where: str, remedy: str) -> UserError:
    only = f"one, {files[0].domain!r}, with classes {list_some(sorted({file.label for file in files}))}"
    return UserError(f"Expected at least two domains {where}. Found {only}. {remedy}")


# CSV manifests


def scan_manifest(path: Path, fewest: int = 2) -> Scan:
    """Read the images of a CSV manifest; UserError with line numbers if it is not valid."""
    root = path.parent
    lines = _read_lines(path)
    files = [
        ImageFile(
            cells["domain"], cells["label"], root / cells["path"], _parse_split(cells, number, path), cells.get("group")
        )
        for number, cells in lines
    ]
    _require_distinct(lines, path)
    times = _require_files(files, lines, path)
    files.sort(key=lambda file: (file.domain, file.label, str(file.path.parent), file.path.name))
    if len({file.domain for file in files}) < fewest:
        raise _one_domain(files, f"in {path}", "Add the images of another domain.")
    return Scan(root, tuple(files), frozenset(file.label for file in files), (), times)


def is_manifest(path: Path) -> bool:
    """Say whether a path means a CSV manifest and not a folder."""
    return path.suffix.lower() == ".csv" and not os.path.isdir(path)


def scan_images(path: Path, fewest: int = 2) -> Scan:
    """List the images of a folder or a CSV manifest."""
    return scan_manifest(path, fewest) if is_manifest(path) else scan_folder(path, fewest)


def manifest_paths(path: Path) -> list[Path]:
    """List the files of a manifest, in its order, whether they exist or not; only the column `path` is required."""
    return [path.parent / cells["path"] for _, cells in _read_lines(path, required=("path",))]


def _read_lines(path: Path, required: Sequence[str] = REQUIRED) -> list[_Line]:
    header, rows = read_csv(path)
    _require_columns(header, path, required)
    if not rows:
        raise UserError(f"Expected lines below the header of {path}. Found none. Add one for every image.")
    # a file name may end in a blank, a class name should not
    lines = [
        (number, {name: cell if name == "path" else cell.strip() for name, cell in zip(header, row)})
        for number, row in rows
    ]
    for number, cells in lines:
        if blank := [name for name in header if not cells[name].strip()]:
            raise UserError(f"Expected a value in every cell of {path}. Found no {blank[0]} in line {number}. Fill it.")
    return lines


def _require_columns(header: Sequence[str], path: Path, required: Sequence[str]) -> None:
    optional = [name for name in (*REQUIRED, *OPTIONAL) if name not in required]
    if not set(required) <= set(header) <= {*REQUIRED, *OPTIONAL} or len(set(header)) < len(header):
        raise UserError(
            f"Expected the columns {', '.join(required)} and, if wanted, {', '.join(optional)} in {path}, each once, "
            f"separated by commas. Found {', '.join(map(repr, header)) or 'nothing'}."
        )


def _parse_split(cells: dict[str, str], number: int, path: Path) -> bool | None:
    if "split" not in cells:
        return None
    if cells["split"] not in SPLITS:
        raise UserError(f"Expected train or holdout as split in {path}. Found {cells['split']!r} in line {number}.")
    return SPLITS[cells["split"]]


def _require_distinct(lines: Sequence[_Line], path: Path) -> None:
    first: dict[str, int] = {}
    for number, cells in lines:
        before = first.setdefault(os.path.abspath(path.parent / cells["path"]), number)
        if before != number:
            raise UserError(f"Expected every path once in {path}. Found {cells['path']!r} in {before} and {number}.")


def _require_files(files: Sequence[ImageFile], lines: Sequence[_Line], path: Path) -> tuple[tuple[Path, int], ...]:
    """Require that the files exist; return their folders, each with its modification time before the check."""
    times: dict[Path, int] = {}
    missing = []
    for file, (number, cells) in zip(files, lines):
        folder = file.path.parent
        try:
            if folder not in times:
                times[folder] = os.stat(folder).st_mtime_ns
            os.stat(file.path)
        except (OSError, ValueError):  # ValueError: a NUL character
            missing.append(f"{cells['path']!r} (line {number})")
    if missing:
        raise UserError(
            f"Expected the {len(files)} files that {path} names, relative to {path.parent.absolute()}. Found no "
            f"{list_some(missing)}. Correct the paths, or remove the lines."
        )
    return tuple(times.items())
