"""Load the images of a folder or a manifest as a dataset, through the cache of decoded images.

The window of intensity of grey values of more than 8 bits is chosen from the pixels: of each domain some of some images
are read, and the window reaches from the lowest 0.5 % quantile of a domain to the highest 99.5 % quantile of one, so
that no domain is clipped much. No label is used, but every domain is, those that are held out for an estimate too: give
a window to rule that out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fgmix.data.arrays import note_groups
from fgmix.data.augment import ImageInputs
from fgmix.data.dataset import GROUPED, Domain, DomainDataset, fingerprint_of
from fgmix.data.files import StrPath
from fgmix.data.folders import Scan, class_notes, list_some, scan_images
from fgmix.data.grey import Window, parse_window
from fgmix.data.image_cache import QUALITY, CachedImages, decode_images, read_contents, remember
from fgmix.data.images import change_notes, check_size, read_grey
from fgmix.data.registry import LoadOptions
from fgmix.errors import UserError
from fgmix.records.files import cache_dir


def load_images(path: Path, options: LoadOptions, *, name: str | None = None) -> DomainDataset:
    """Load a folder `domain/class/image`, or a CSV manifest of images, as a dataset.

    By default it is named as the folder or the manifest.
    """
    check_size(options.file_size)  # before any file is read
    if options.window:
        parse_window(options.window)
    scan = scan_images(path, options.fewest)
    files = scan.paths()
    contents = read_contents(files, options)
    if contents.may_be_deep and not options.window:
        options = replace(options, window=choose_window(scan.by_domain().values(), options.cache))
    return _make_dataset(path, name, scan, decode_images(files, options, contents))


def prepare_images(path: Path, options: LoadOptions) -> list[str]:
    """Decode the images of a folder or manifest into the cache; return lines that describe the result."""
    dataset = load_images(path, options)
    images = cast("CachedImages", cast("ImageInputs", dataset.domains[0].inputs).images)
    domains = ", ".join(f"{domain.name} {len(domain):,}" for domain in dataset.domains)
    how = "pixels" if images.decoding.encoding == "pixels" else f"JPEGs of quality {QUALITY}"
    return [
        f"{dataset.name}: {len(images.readable):,} images in {len(dataset.classes)} classes ({domains}).",
        f"Decoded for {images.decoding.image_size} px as {how}: {images.file} ({len(images.pixels) / 1e9:.2f} GB).",
        *dataset.notes,
    ]


def _make_dataset(path: Path, name: str | None, scan: Scan, images: CachedImages) -> DomainDataset:
    """Make a dataset of the images that could be decoded, with notes on everything else."""
    full = Path(os.path.realpath(path))  # `resolve` fails on a loop of links, which is reported on opening
    size = images.decoding.image_size
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
        weights = np.array([file.weight for file in files], np.float64) if files[0].weight is not None else None
        paths = tuple(f"{domain}/{file.label}/{file.path.name}" for file in files)
        inputs = ImageInputs(images, mine, size)
        domains.append(Domain(domain, inputs, y, holdout, weights, groups=group, files=paths))
    fingerprint = fingerprint_of(
        [
            f"images {size}",
            images.key,
            images.readable,
            *classes,
            *(part for d in domains for part in (d.name, d.y)),
            *(d.holdout for d in domains if d.holdout is not None),
            *(d.groups for d in domains if d.groups is not None),
            *([GROUPED] if groups else []),
            *(d.weights for d in domains if d.weights is not None),
        ]
    )
    notes = [*scan.notes]
    if unreadable := [scan.name(row) for row in np.flatnonzero(images.heights == 0).tolist()]:
        notes.append(f"Files that cannot be decoded are left out: {len(unreadable)} ({list_some(unreadable)}).")
    if images.changes.any():
        notes += change_notes(images.changes, images.decoding.background, images.decoding.window)
    if images.decoding.encoding == "jpeg":
        notes.append(f"Images are kept as JPEGs of quality {QUALITY}: their pixels would not fit into memory.")
    present = {d.name: [classes[label] for label in np.unique(d.y)] for d in domains}
    notes += class_notes(present, scan.class_folders)
    if groups:
        notes += note_groups(domains, groups)
    return DomainDataset(
        name=name or (full.name if os.path.isdir(full) else full.stem),
        domains=tuple(domains),
        classes=tuple(classes),
        input_shape=(3, size, size),
        kind="images",
        fingerprint=fingerprint,
        notes=tuple(notes),
        window=images.decoding.window,
        group_names=tuple(groups),
    )


SHARES = 0.005, 0.995  # quantiles of a domain's grey values between which its window lies
SAMPLED = 32  # files of each domain that are read
PIXELS = 10_000  # of each of them


def choose_window(domains: Iterable[Sequence[StrPath]], cache: Path | None = None) -> str:
    """Choose a window; empty if none of the files that are read has more than 8 bits.

    Args:
        domains: the files of each domain.
        cache: folder where the window of unchanged files is kept; None for `cache_dir()`.
    """
    spaced = ((files, np.linspace(0, len(files) - 1, SAMPLED).astype(np.int64)) for files in domains)
    sampled = [[files[place] for place in np.unique(places)] for files, places in spaced]
    folder = (cache or cache_dir()) / "windows" / fingerprint_of(str(len(each)) for each in sampled)
    files = [file for each in sampled for file in each]
    return str(remember(files, folder, lambda: {"window": np.array(_span(sampled))})["window"])


def _span(domains: Iterable[Sequence[StrPath]]) -> str:
    """Span the quantiles of the domains; empty if no file has grey values of more than 8 bits."""
    values = [[_thin(grey.values) for file in files if (grey := read_grey(file)) is not None] for files in domains]
    ranges = [np.quantile(np.concatenate(each), SHARES) for each in values if each]
    if not ranges:
        return ""
    lows, highs = zip(*ranges)
    low = math.floor(min(lows))
    return str(Window(low, max(math.ceil(max(highs)), low + 1)))


def _thin(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.reshape(-1)[:: max(1, values.size // PIXELS)].copy()
