"""Any folder `domain/class/image` as a dataset, in the file order of torchvision's ImageFolder (so of DomainBed).

Domains are the sub-folders, sorted by name; classes the sorted union of their sub-folders. Within a class, folders are
walked in sorted order and files sorted in each. A file counts as an image by its extension. Unlike ImageFolder, hidden
folders are ignored, a domain may lack a class (labels are the dataset's, the same in every domain), and a class without
any image is dropped; a note tells each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from fgmix.data._dataset import Domain, DomainDataset, fingerprint_of
from fgmix.data._registry import LoadOptions
from fgmix.data.augment import ImageInputs
from fgmix.data.decoded import DecodedImages, decoded_images
from fgmix.errors import UserError, bad_value

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
IMAGE_SIZE = 224
NAMED = 5  # how many files or classes a note names


@dataclass(frozen=True)
class ImageFile:
    """One image of a folder: its domain, its class, where it is."""

    domain: str
    label: str
    path: Path


@dataclass(frozen=True)
class Scan:
    """What a folder holds.

    Args:
        root: the folder.
        files: its images in ImageFolder's order.
        class_folders: names of the class folders of all domains; some may be empty.
        notes: what was left out.
    """

    root: Path
    files: tuple[ImageFile, ...]
    class_folders: frozenset[str]
    notes: tuple[str, ...]

    def counts(self) -> dict[str, int]:
        """Number of images of each domain."""
        return {domain: len(list(files)) for domain, files in groupby(self.files, lambda file: file.domain)}


def load_folder(path: Path, options: LoadOptions, *, name: str | None = None) -> DomainDataset:
    """A folder `domain/class/image` as a dataset of images.

    Args:
        path: the folder that holds the domains' folders.
        options: image_size (default 224), skip_unreadable and progress are used.
        name: of the dataset; else the folder's.
    """
    size = options.image_size if options.image_size is not None else IMAGE_SIZE
    if size < 1:
        raise bad_value("image_size", "a positive number of pixels", size)
    scan = scan_folder(path)
    images = decoded_images(
        [file.path for file in scan.files],
        size,
        skip_unreadable=options.skip_unreadable,
        progress=options.progress,
    )
    kept = _readable(scan, images)
    classes = sorted({file.label for file in kept})
    domains = tuple(_domains(kept, images, classes, size))
    fingerprint = fingerprint_of(
        [f"images {size}", images.key, images.readable, *classes, *(part for d in domains for part in (d.name, d.y))]
    )
    notes = (*scan.notes, *_unreadable_note(scan, images), *class_notes(kept, scan.class_folders))
    name = name or path.resolve().name
    return DomainDataset(name, domains, tuple(classes), (3, size, size), "images", fingerprint, notes)


def scan_folder(path: Path) -> Scan:
    """Find the images under `path` without reading any; UserError if they do not make at least two domains."""
    if not path.is_dir():
        raise UserError(f"Expected a folder domain/class/image at {path}. Found {_what_is(path)}.")
    files: list[ImageFile] = []
    class_folders: set[str] = set()
    notes: list[str] = []
    for domain in _subfolders(path):
        labels = _subfolders(path / domain)
        found = [ImageFile(domain, label, file) for label in labels for file in _images_under(path / domain / label)]
        loose = _loose_images(path / domain)
        files += found
        if found:
            class_folders |= set(labels)
        else:
            notes.append(f"Folder {domain!r} holds no class/image and is left out.")
        if loose:
            notes.append(f"Images directly in {domain!r} belong to no class and are left out: {loose}.")
    _require_domains(path, files)
    return Scan(path, tuple(files), frozenset(class_folders), tuple(notes))


def class_notes(files: Sequence[ImageFile], class_folders: Iterable[str]) -> list[str]:
    """A note about classes without any image, and one for every domain that lacks classes which another domain has."""
    classes = {file.label for file in files}
    dropped = sorted(set(class_folders) - classes)
    present: dict[str, set[str]] = {}
    for file in files:
        present.setdefault(file.domain, set()).add(file.label)
    notes = [f"Classes without an image in any domain are dropped: {listed(dropped)}."] if dropped else []
    return notes + [
        f"Domain {domain!r} has no image of {listed(sorted(classes - has))}."
        for domain, has in present.items()
        if classes - has
    ]


def listed(items: Sequence[str]) -> str:
    """The first few of `items`, and how many more there are.

    >>> listed(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return ", ".join(items[:NAMED]) + more


def _domains(files: Sequence[ImageFile], images: DecodedImages, classes: list[str], size: int) -> Iterator[Domain]:
    """Domains over the readable rows of `images`; files[i] is the i-th of them."""
    number = {label: i for i, label in enumerate(classes)}
    labels = np.array([number[file.label] for file in files], dtype=np.int64)
    start = 0
    for domain, group in groupby(files, lambda file: file.domain):
        stop = start + len(list(group))
        yield Domain(domain, ImageInputs(images, images.readable[start:stop], size), labels[start:stop])
        start = stop


def _subfolders(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    except PermissionError as error:
        raise UserError(
            f"Expected a folder that can be read at {folder}. It is not allowed. Change its mode."
        ) from error


def _loose_images(folder: Path) -> int:
    """Number of images directly in `folder`."""
    return sum(_is_image(entry.name) and entry.is_file() for entry in os.scandir(folder))


def _images_under(folder: Path) -> Iterator[Path]:
    """Images of a class, nested folders included, in the order of sorted(os.walk)."""
    for root, _, names in sorted(os.walk(folder, followlinks=True)):
        hidden = any(part.startswith(".") for part in Path(root).relative_to(folder).parts)
        if not hidden:
            yield from (Path(root, name) for name in sorted(names) if _is_image(name))


def _is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS)


def _require_domains(path: Path, files: Sequence[ImageFile]) -> None:
    domains = sorted({file.domain for file in files})
    if len(domains) >= 2:
        return
    if domains:
        classes = sorted({file.label for file in files})
        raise UserError(
            f"Expected at least two domains domain/class/image under {path}. Found one, {domains[0]!r}, with classes "
            f"{listed(classes)}. Give the folder whose sub-folders are the domains; if those are the domains, give "
            f"{path / domains[0]}."
        )
    direct = [name for name in _subfolders(path) if _loose_images(path / name)]
    if direct:
        raise UserError(
            f"Expected at least two domains domain/class/image under {path}. Found images directly in its sub-folders "
            f"({listed(direct)}): it looks like one domain. Give the folder that holds it and the other domains."
        )
    raise UserError(
        f"Expected images domain/class/image under {path}. Found none. Images end in {', '.join(EXTENSIONS)}."
    )


def _readable(scan: Scan, images: DecodedImages) -> list[ImageFile]:
    """The files that could be decoded; UserError if a domain loses all of its own."""
    kept = [scan.files[row] for row in images.readable]
    lost = sorted(set(scan.counts()) - {file.domain for file in kept})
    if lost:
        raise UserError(f"Expected images in every domain of {scan.root}. None of {listed(lost)} can be decoded.")
    return kept


def _unreadable_note(scan: Scan, images: DecodedImages) -> list[str]:
    paths = [str(scan.files[row].path.relative_to(scan.root)) for row in np.flatnonzero(images.heights == 0)]
    return [f"Files that cannot be decoded are left out: {len(paths)} ({listed(paths)})."] if paths else []


def _what_is(path: Path) -> str:
    return "a file" if path.exists() else "nothing there"
