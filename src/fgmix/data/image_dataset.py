"""Load the images of a folder or a manifest as a dataset, through the cache of decoded images."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from fgmix.data.augment import ImageInputs
from fgmix.data.catalogue import Catalogue, SavedCatalogue, scan_images
from fgmix.data.dataset import Domain, DomainDataset, Indices, fingerprint_of
from fgmix.data.folders import class_notes, list_some
from fgmix.data.image_cache import QUALITY, CachedImages, cache_dir, decode_images, open_images, read_contents
from fgmix.data.images import change_notes, check_size
from fgmix.data.registry import LoadOptions
from fgmix.errors import UserError


def load_images(path: Path, options: LoadOptions, *, name: str | None = None) -> DomainDataset:
    """Load a folder `domain/class/image`, or a CSV manifest of images, as a dataset.

    After `prepare_images` no image file is accessed: the modification times of the folders show whether files were
    added, removed or renamed. By default the dataset is named as the folder or the manifest.
    """
    check_size(options.image_size)  # before any file is read
    name = name or _name(path)
    saved = SavedCatalogue.read(path, options.cache or cache_dir())
    changed = saved.changed_folders() if saved else []
    if saved and not changed:
        images = open_images(saved.catalogue.files, options, saved.contents)
        if images is not None:
            return _make_dataset(name, saved.catalogue, images)
    if changed and options.progress:
        _print_once(
            f"Changed since `fgmix data prepare`: {list_some(changed)}. Every file was looked at. Prepare again."
        )
    return _read_in_full(path, options, name)[0]


@cache  # a sweep loads its data several times
def _print_once(note: str) -> None:
    """Print a note once. It concerns the files on this machine, while notes on the data are part of every record."""
    print(f"note: {note}", file=sys.stderr)


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
    check_size(options.image_size)
    dataset, catalogue, images = _read_in_full(path, options, _name(path))
    return Preparation(dataset, images, catalogue.write(options.cache or cache_dir()))


def _read_in_full(path: Path, options: LoadOptions, name: str) -> tuple[DomainDataset, SavedCatalogue, CachedImages]:
    """List all files, read their contents, and decode them if they are not cached yet."""
    scan = scan_images(path)
    catalogue = Catalogue.of(scan)
    contents = read_contents(catalogue.files, options)
    images = decode_images(catalogue.files, options, contents)
    return _make_dataset(name, catalogue, images), SavedCatalogue(path, catalogue, contents, scan.folders), images


def _name(path: Path) -> str:
    full = Path(os.path.realpath(path))  # `resolve` fails on a loop of links, which is reported on opening
    return full.name if os.path.isdir(full) else full.stem


def _make_dataset(name: str, catalogue: Catalogue, images: CachedImages) -> DomainDataset:
    rows = images.readable
    size = images.recipe.image_size
    _require_all_domains(catalogue, rows)
    numbers = np.unique(catalogue.label[rows])  # of the classes that have an image
    classes = tuple(catalogue.classes[number] for number in numbers)
    domains = []
    for number, domain in enumerate(catalogue.domains):
        mine = rows[catalogue.domain[rows] == number]
        y = np.searchsorted(numbers, catalogue.label[mine])
        holdout = None if catalogue.holdout is None else catalogue.holdout[mine]
        domains.append(Domain(domain, ImageInputs(images, mine, size), y, holdout))
    fingerprint = fingerprint_of(
        [
            f"images {size}",
            images.key,
            rows,
            *classes,
            *(part for d in domains for part in (d.name, d.y)),
            *(d.holdout for d in domains if d.holdout is not None),
        ]
    )
    present = {d.name: [classes[label] for label in np.unique(d.y)] for d in domains}
    notes = [*catalogue.notes]
    if unreadable := [catalogue.files.names[row] for row in np.flatnonzero(images.heights == 0).tolist()]:
        notes.append(f"Files that cannot be decoded are left out: {len(unreadable)} ({list_some(unreadable)}).")
    notes += change_notes(images.changes, images.recipe.background)
    if images.recipe.encoding == "jpeg":
        notes.append(f"Images are kept as JPEGs of quality {QUALITY}: their pixels would not fit into memory.")
    notes += class_notes(present, catalogue.classes)
    return DomainDataset(name, tuple(domains), classes, (3, size, size), "images", fingerprint, tuple(notes))


def _require_all_domains(catalogue: Catalogue, rows: Indices) -> None:
    lost = sorted(set(range(len(catalogue.domains))) - set(np.unique(catalogue.domain[rows]).tolist()))
    if lost:
        names = list_some([catalogue.domains[number] for number in lost])
        raise UserError(f"Expected images in every domain of {catalogue.files.root}. None of {names} can be decoded.")
