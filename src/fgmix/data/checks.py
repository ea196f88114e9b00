"""Check images before training: `fgmix data check FOLDER`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fgmix.data.folders import ImageFile, class_notes, describe_shared_groups, scan_images
from fgmix.data.image_cache import READERS, open_all
from fgmix.data.images import Change, Unreadable, change_notes, inspect_file, quiet_decoding, try_decode
from fgmix.data.loading import in_order
from fgmix.data.near_duplicates import MOST, Floats, describe_image, find_pairs
from fgmix.data.registry import LoadOptions
from fgmix.data.windows import choose_window
from fgmix.progress import Progress

Pairs = tuple[tuple[Path, Path], ...]  # of files

EXAMPLES = 3  # near-duplicates that are named
SAME = "If a pair shows the same object, name it in the column `group` of a manifest:"
ACROSS = f"{SAME} a model that is tested on one has seen the other."
WITHIN = f"{SAME} one may be in the training part and the other in the holdout part."
TINY = 5  # a class with fewer images in a domain is reported: a holdout part of 20 % may have none of it


@dataclass(frozen=True)
class FolderReport:
    """Contents and problems of a folder or a manifest."""

    path: Path
    root: Path  # file names are relative to it
    counts: dict[str, dict[str, int]]  # readable images by domain and class, both sorted, zeros included
    notes: tuple[str, ...]  # what is left out, classes that domains lack, images that decoding changes
    unreadable: tuple[tuple[Path, str], ...]  # files that cannot be decoded, each with the reason
    duplicates: tuple[tuple[Path, ...], ...]  # files with identical content in more than one domain
    # pairs of other images that are near-duplicates: in different domains, and in one; the most similar first
    near_across: Pairs
    near_within: Pairs
    tiny: tuple[tuple[str, str, int], ...]  # (domain, class, number) with 1 to 4 images
    sizes: tuple[tuple[int, int], ...]  # (width, height) of every readable image, sorted by their areas
    groups: dict[str, int]  # number of groups of readable images by domain; empty without groups

    @property
    def clean(self) -> bool:
        """Whether no problem was found."""
        return not (
            self.notes or self.unreadable or self.duplicates or self.near_across or self.near_within or self.tiny
        )

    def lines(self) -> list[str]:
        """Write the report as lines of text."""
        total = sum(sum(row.values()) for row in self.counts.values())
        classes = len(next(iter(self.counts.values())))
        ends = [f"{width}×{height}" for width, height in (*self.sizes[:1], *self.sizes[-1:])]
        sizes = f", {' to '.join(ends)} pixels" if ends else ""
        return [
            f"{self.path}: {total} images, {len(self.counts)} domains, {classes} classes{sizes}",
            *self._table(),
            *([f"Groups: {', '.join(f'{domain} {n}' for domain, n in self.groups.items())}."] if self.groups else []),
            *self.notes,
            *(f"Cannot be decoded: {path} ({reason})" for path, reason in self.unreadable),
            *("The same image in several domains: " + ", ".join(map(self._name, group)) for group in self.duplicates),
            *self._describe_near("in several domains", self.near_across, ACROSS),
            *self._describe_near("within a domain", self.near_within, WITHIN),
            *(f"Few images of class {label!r} in domain {domain!r}: {n}" for domain, label, n in self.tiny),
            *(["No problems found."] if self.clean else []),
        ]

    def _describe_near(self, where: str, pairs: Pairs, meaning: str) -> list[str]:
        if not pairs:
            return []
        examples = "; ".join(" and ".join(map(self._name, pair)) for pair in pairs[:EXAMPLES])
        return [
            f"Near-duplicates {where}: {len(pairs)} pair{'s' if len(pairs) > 1 else ''}, such as {examples}. {meaning}"
        ]

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root) if path.is_relative_to(self.root) else path)

    def _table(self) -> list[str]:
        """Lay out a table with a row per class and a column per domain."""
        domains = list(self.counts)
        classes = list(next(iter(self.counts.values())))
        rows = [["", *domains], *([c, *(str(self.counts[d][c]) for d in domains)] for c in classes)]
        rows.append(["all", *(str(sum(self.counts[d].values())) for d in domains)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(domains) + 1)]
        return [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
            for row in rows
        ]


@dataclass(frozen=True)
class _Decoded:
    """An image file that can be decoded."""

    file: ImageFile
    digest: bytes
    size: tuple[int, int]
    changes: Change
    low: Floats | None  # its low frequencies; None if it is not compared with others


def check_images(path: Path, *, progress: bool = True) -> FolderReport:
    """Decode every image of a folder or manifest and report problems; UserError unless there are two domains."""
    scan = scan_images(path)
    window = choose_window(scan.by_domain().values())
    every = -(-len(scan.files) // MOST)
    decoded: list[_Decoded] = []
    unreadable: list[tuple[Path, str]] = []
    with quiet_decoding(), Progress("check images", len(scan.files), "images", show=progress) as bar:
        for file, outcome in zip(scan.files, in_order(partial(_decode, window, every), enumerate(scan.files), READERS)):
            if isinstance(outcome, Unreadable):
                unreadable.append((file.path, outcome.reason))
            else:
                decoded.append(outcome)
            bar.advance()
    classes = sorted({file.label for file in scan.files})
    counts = {domain: dict.fromkeys(classes, 0) for domain in scan.counts()}
    for each in decoded:
        counts[each.file.domain][each.file.label] += 1
    groups = _collect_groups(decoded)
    across, within = _find_near_duplicates(decoded)
    present = {domain: [label for label, n in row.items() if n] for domain, row in counts.items()}
    return FolderReport(
        path=path,
        root=scan.root,
        counts=counts,
        notes=(
            *scan.notes,
            *change_notes(np.array([each.changes for each in decoded], dtype=np.uint8), window=window),
            *class_notes(present, scan.class_folders),
            *_note_groups(groups),
        ),
        unreadable=tuple(unreadable),
        duplicates=_duplicates(decoded),
        near_across=across,
        near_within=within,
        tiny=tuple((d, c, n) for d, row in counts.items() for c, n in row.items() if 0 < n < TINY),
        sizes=tuple(sorted((each.size for each in decoded), key=math.prod)),
        groups={domain: len(names) for domain, names in groups.items()},
    )


def _collect_groups(decoded: Sequence[_Decoded]) -> dict[str, set[str]]:
    """Collect the groups of each domain; empty without groups."""
    groups: dict[str, set[str]] = {}
    for each in decoded:
        if each.file.group is not None:
            groups.setdefault(each.file.domain, set()).add(each.file.group)
    return groups


def _note_groups(groups: Mapping[str, Collection[str]]) -> list[str]:
    """Note domains that cannot be split, and groups that make domains dependent."""
    several = Counter(name for names in groups.values() for name in names)
    shared = sorted(name for name, count in several.items() if count > 1)
    return [
        *(
            f"Domain {domain!r} has one group and cannot be split."
            for domain, names in groups.items()
            if len(names) < 2
        ),
        *([describe_shared_groups(shared)] if shared else []),
    ]


def _decode(window: str, every: int, numbered: tuple[int, ImageFile]) -> _Decoded | Unreadable:
    number, file = numbered
    picture = try_decode(file.path, window=window)
    if isinstance(picture, Unreadable):
        return picture
    low = None if number % every else describe_image(picture.image)
    return _Decoded(file, inspect_file(file.path)[0], picture.image.size, picture.changes, low)


def _duplicates(decoded: Sequence[_Decoded]) -> tuple[tuple[Path, ...], ...]:
    groups: dict[bytes, list[ImageFile]] = {}
    for each in decoded:
        groups.setdefault(each.digest, []).append(each.file)
    return tuple(
        tuple(file.path for file in group) for group in groups.values() if len({file.domain for file in group}) > 1
    )


def _find_near_duplicates(decoded: Sequence[_Decoded]) -> tuple[Pairs, Pairs]:
    """Find pairs across domains and within them, without the identical files that `_duplicates` finds."""
    compared = [(each, each.low) for each in decoded if each.low is not None]
    low = np.array([low for _, low in compared], dtype=np.float32)
    across, within = [], []
    for i, j, _ in find_pairs(low):
        (one, _), (other, _) = compared[i], compared[j]
        if one.file.domain == other.file.domain:
            within.append((one.file.path, other.file.path))
        elif one.digest != other.digest:
            across.append((one.file.path, other.file.path))
    return tuple(across), tuple(within)


@dataclass(frozen=True)
class CacheReport:
    """The result of a full check of one decoded cache."""

    file: Path
    image_size: int
    images: int
    damaged: int

    def line(self) -> str:
        """Write the result as a sentence."""
        what = f"{self.file}: {self.images} images for {self.image_size} px"
        return f"{what}, {self.damaged} damaged: it is deleted." if self.damaged else f"{what}, all as written."


def check_caches(path: Path, *, cache: Path | None = None, progress: bool = True) -> list[CacheReport]:
    """Verify every image in the decoded caches of a folder or manifest, and delete the damaged ones."""
    files = [file.path for file in scan_images(path).files]
    reports = []
    for images in open_all(files, LoadOptions(cache=cache, progress=progress)):
        damaged = 0
        with Progress("verify cache", len(images), "images", show=progress) as bar:
            for row in range(len(images)):
                damaged += not images.is_sound(row)
                bar.advance()
        if damaged:
            images.delete()
        reports.append(CacheReport(images.file, images.recipe.image_size, len(images), damaged))
    return reports
