"""Load the images of a folder or a manifest as a dataset, through the cache of decoded images.

`fgmix data prepare` also saves the list of the files, so that runs look at none: `cache_dir()/prepared/<digest of the
path>.json` contains the name, domain and class of every file, what the cache needs to know of their contents, and the
modification time of every folder. The time of a folder changes when files are added, removed or renamed; a file that is
changed in place is not detected.
"""

from __future__ import annotations

import json
import os
from dataclasses import astuple, replace
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np

from fgmix.data.arrays import note_groups
from fgmix.data.augment import ImageInputs
from fgmix.data.dataset import Domain, DomainDataset, fingerprint_of
from fgmix.data.folders import ImageFile, Scan, class_notes, is_manifest, list_some, scan_images
from fgmix.data.grey import parse_window
from fgmix.data.image_cache import QUALITY, CachedImages, Contents, decode_images, open_images, read_contents
from fgmix.data.images import change_notes, check_size, inspect_file
from fgmix.data.registry import LoadOptions
from fgmix.data.windows import choose_window
from fgmix.errors import UserError
from fgmix.records.digests import Damaged, seal_line, strip_line
from fgmix.records.files import cache_dir, make_folder, read_bytes, write_bytes
from fgmix.terminal import print_notes

Listing = tuple[Scan, Contents, str]  # the files, their contents, and the window that is chosen for them


def load_images(path: Path, options: LoadOptions, *, name: str | None = None) -> DomainDataset:
    """Load a folder `domain/class/image`, or a CSV manifest of images, as a dataset.

    After `prepare_images` no image file is accessed: the modification times of the folders show whether files were
    added, removed or renamed. By default the dataset is named as the folder or the manifest.
    """
    _check_options(options)
    name = name or _name_dataset(path)
    if saved := _read_listing(path, options):
        scan, contents, window = saved
        images = open_images(_name_files(scan), replace(options, window=options.window or window), contents)
        if images is not None:
            return _make_dataset(name, scan, images)
    scan = scan_images(path, options.fewest)
    return _make_dataset(name, scan, _decode(scan, options, read_contents(_name_files(scan), options)))


def prepare_images(path: Path, options: LoadOptions) -> list[str]:
    """Decode the images of a folder or manifest into the cache, and save the list of files for later runs; return lines
    that describe the result."""
    _check_options(options)
    scan = scan_images(path, options.fewest)
    contents = read_contents(_name_files(scan), options)
    images = _decode(scan, options, contents)
    dataset = _make_dataset(_name_dataset(path), scan, images)
    file = _write_listing(path, (scan, contents, choose_window(scan.by_domain().values(), options.cache)), options)
    domains = ", ".join(f"{domain.name} {len(domain):,}" for domain in dataset.domains)
    how = "pixels" if images.recipe.encoding == "pixels" else f"JPEGs of quality {QUALITY}"
    return [
        f"{dataset.name}: {len(images.readable):,} images in {len(dataset.classes)} classes ({domains}).",
        f"Decoded for {images.recipe.image_size} px as {how}: {images.file} ({len(images.pixels) / 1e9:.2f} GB).",
        f"List of files: {file}. Run this command again after files were changed in place.",
        *dataset.notes,
    ]


def _check_options(options: LoadOptions) -> None:
    """Raise an error for a bad size or window before any file is read."""
    check_size(options.file_size)
    parse_window(options.window)


def _name_dataset(path: Path) -> str:
    full = Path(os.path.realpath(path))  # `resolve` fails on a loop of links, which is reported on opening
    return full.name if os.path.isdir(full) else full.stem


def _decode(scan: Scan, options: LoadOptions, contents: Contents) -> CachedImages:
    window = options.window or choose_window(scan.by_domain().values(), options.cache)
    return decode_images(_name_files(scan), replace(options, window=window), contents)


def _name_files(scan: Scan) -> list[str]:
    return [str(file.path) for file in scan.files]


def _write_listing(path: Path, listing: Listing, options: LoadOptions) -> Path:
    """Save the list of the files of a folder or manifest; return the file."""
    scan, contents, window = listing
    content = {
        "manifest": _digest_manifest(path),
        "files": [(f.domain, f.label, scan.name(row), f.holdout, f.group) for row, f in enumerate(scan.files)],
        "classes": sorted(scan.class_folders),
        "notes": scan.notes,
        "folders": [(_shorten_path(folder, scan.root), time) for folder, time in scan.folders],
        "contents": astuple(contents),
        "window": window,
    }
    file = _locate_listing(path, options)
    make_folder(file.parent, option="--cache")
    write_bytes(file, seal_line(content))
    return file


def _read_listing(path: Path, options: LoadOptions) -> Listing | None:
    """Read the list of the files of a folder or manifest; None if there is none, or if a folder has changed since."""
    file = _locate_listing(path, options)
    try:
        if not file.is_file():
            return None
        content = json.loads(strip_line(read_bytes(file).rstrip(b"\n"), str(file)))
    except (Damaged, OSError) as error:
        print_notes(f"{error} Every file is looked at; run `fgmix data prepare` again.")
        return None
    root = path.parent if is_manifest(path) else path
    changed = [str(root / folder) for folder, time in content["folders"] if _read_time(root / folder) != time]
    if changed or content["manifest"] != _digest_manifest(path):
        if options.progress:
            where = list_some(changed or [str(path)])
            _note_once(f"Changed since `fgmix data prepare`: {where}. All files were looked at. Prepare again.")
        return None
    files = tuple(ImageFile(domain, label, root / name, *more) for domain, label, name, *more in content["files"])
    scan = Scan(root, files, frozenset(content["classes"]), tuple(content["notes"]), ())
    digest, sizes = content["contents"]
    return scan, Contents(digest, tuple((w, h) for w, h in sizes)), content["window"]


@cache  # a sweep loads its data several times
def _note_once(note: str) -> None:
    """Print a note once. It concerns the files on this machine, while notes on the data are part of every record."""
    print_notes(note)


def _locate_listing(path: Path, options: LoadOptions) -> Path:
    return (options.cache or cache_dir()) / "prepared" / f"{fingerprint_of([os.path.realpath(path)])}.json"


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
