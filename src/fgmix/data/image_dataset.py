"""Load the images of a folder or a manifest as a dataset, through the cache of decoded images."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from fgmix.data.arrays import note_groups
from fgmix.data.augment import ImageInputs
from fgmix.data.dataset import Domain, DomainDataset, fingerprint_of
from fgmix.data.folders import Scan, class_notes, list_some, scan_images
from fgmix.data.grey import parse_window
from fgmix.data.image_cache import QUALITY, CachedImages, decode_images
from fgmix.data.images import change_notes, check_size
from fgmix.data.registry import LoadOptions
from fgmix.data.windows import choose_window
from fgmix.errors import UserError


def load_images(path: Path, options: LoadOptions, *, name: str | None = None) -> DomainDataset:
    """Load a folder `domain/class/image`, or a CSV manifest of images, as a dataset.

    By default it is named as the folder or the manifest.
    """
    check_size(options.file_size)  # before any file is read
    parse_window(options.window)
    scan = scan_images(path, options.fewest)
    options = replace(options, window=options.window or choose_window(scan.by_domain().values(), options.cache))
    images = decode_images([str(file.path) for file in scan.files], options)
    full = Path(os.path.realpath(path))  # `resolve` fails on a loop of links, which is reported on opening
    return _make_dataset(name or (full.name if os.path.isdir(full) else full.stem), scan, images)


def prepare_images(path: Path, options: LoadOptions) -> list[str]:
    """Decode the images of a folder or manifest into the cache; return lines that describe the result."""
    dataset = load_images(path, options)
    images: CachedImages = dataset.domains[0].inputs.images  # type: ignore[attr-defined]
    domains = ", ".join(f"{domain.name} {len(domain):,}" for domain in dataset.domains)
    how = "pixels" if images.recipe.encoding == "pixels" else f"JPEGs of quality {QUALITY}"
    return [
        f"{dataset.name}: {len(images.readable):,} images in {len(dataset.classes)} classes ({domains}).",
        f"Decoded for {images.recipe.image_size} px as {how}: {images.file} ({len(images.pixels) / 1e9:.2f} GB).",
        *dataset.notes,
    ]


def _make_dataset(name: str, scan: Scan, images: CachedImages) -> DomainDataset:
    """Make a dataset of the images that could be decoded, with notes on everything else."""
    size = images.recipe.image_size
    classes = sorted({scan.files[row].label for row in images.readable})
    groups = sorted({file.group for file in scan.files if file.group is not None})
    label_of, group_of = ({name: number for number, name in enumerate(names)} for names in (classes, groups))
    domains = []
    for domain, rows in groupby(range(len(scan.files)), lambda row: scan.files[row].domain):
        mine = np.array([row for row in rows if images.heights[row]], dtype=np.int64)
        files = [scan.files[row] for row in mine]
        if not files:
            raise UserError(f"Expected images in every domain of {scan.root}. None of {domain} can be decoded.")
        y = np.array([label_of[file.label] for file in files])
        holdout = np.array([file.holdout for file in files], np.bool_) if files[0].holdout is not None else None
        group = np.array([group_of[file.group] for file in files if file.group is not None]) if groups else None
        paths = tuple(f"{domain}/{file.label}/{file.path.name}" for file in files)
        domains.append(Domain(domain, ImageInputs(images, mine, size), y, holdout, groups=group, files=paths))
    fingerprint = fingerprint_of(
        [
            f"images {size}",
            images.key,
            images.readable,
            *classes,
            *(part for d in domains for part in (d.name, d.y)),
            *(d.holdout for d in domains if d.holdout is not None),
            *(d.groups for d in domains if d.groups is not None),
        ]
    )
    notes = [*scan.notes]
    if unreadable := [scan.name(row) for row in np.flatnonzero(images.heights == 0).tolist()]:
        notes.append(f"Files that cannot be decoded are left out: {len(unreadable)} ({list_some(unreadable)}).")
    notes += change_notes(images.changes, images.recipe.background, images.recipe.window)
    if images.recipe.encoding == "jpeg":
        notes.append(f"Images are kept as JPEGs of quality {QUALITY}: their pixels would not fit into memory.")
    present = {d.name: [classes[label] for label in np.unique(d.y)] for d in domains}
    notes += class_notes(present, scan.class_folders) + note_groups(domains, groups)
    return DomainDataset(
        name=name,
        domains=tuple(domains),
        classes=tuple(classes),
        input_shape=(3, size, size),
        kind="images",
        fingerprint=fingerprint,
        notes=tuple(notes),
        window=images.recipe.window,
    )
