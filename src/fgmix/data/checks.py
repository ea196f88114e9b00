"""Check images before training: `fgmix data check FOLDER`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from fgmix.data.folders import ImageFile, class_notes, describe_shared_groups, scan_images
from fgmix.data.image_cache import READERS
from fgmix.data.image_dataset import choose_window
from fgmix.data.images import Change, Unreadable, change_notes, inspect_file, quiet_decoding, try_decode
from fgmix.data.loading import in_order
from fgmix.data.near_duplicates import MOST, Floats, describe_image, find_pairs
from fgmix.progress import Progress

Pairs = tuple[tuple[Path, Path], ...]  # of files

EXAMPLES = 3  # near-duplicates that are named
SAME = "If a pair shows the same object, name it in the column `group` of a manifest:"
ACROSS = f"{SAME} a model that is tested on one has seen the other."
WITHIN = f"{SAME} one may be in the training part and the other in the holdout part."
MANY = 100  # images of a domain: among fewer, images that are only alike are often twins (docs/data/images.md)
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
    mislabelled: tuple[tuple[Path, ...], ...]  # files with identical content and different labels
    # pairs of other images that are near-duplicates: in different domains, and in one; the most similar first
    near_across: Pairs
    near_within: Pairs
    tiny: tuple[tuple[str, str, int], ...]  # (domain, class, number) with 1 to 4 images
    sizes: tuple[tuple[int, int], ...]  # (width, height) of every readable image, sorted by their areas
    groups: dict[str, int]  # number of groups of readable images by domain; empty without groups

    @property
    def clean(self) -> bool:
        """Whether no problem was found."""
        copies = self.duplicates or self.mislabelled or self.near_across or self.near_within
        return not (self.notes or self.unreadable or copies or self.tiny)

    def lines(self) -> list[str]:
        """Write the report as lines of text."""
        total = sum(sum(row.values()) for row in self.counts.values())
        number = len(next(iter(self.counts.values())))
        classes = f"{number} class{'es' if number != 1 else ''}"
        ends = [f"{width}×{height}" for width, height in (*self.sizes[:1], *self.sizes[-1:])]
        sizes = f", {' to '.join(dict.fromkeys(ends))} pixels" if ends else ""
        return [
            f"{self.path}: {total} images, {len(self.counts)} domains, {classes}{sizes}",
            *self._table(),
            *([f"Groups: {', '.join(f'{domain} {n}' for domain, n in self.groups.items())}."] if self.groups else []),
            *self.notes,
            *(f"Cannot be decoded: {path} ({reason})" for path, reason in self.unreadable),
            *("The same image in several domains: " + ", ".join(map(self._name, each)) for each in self.duplicates),
            *("The same image with different labels: " + ", ".join(map(self._name, each)) for each in self.mislabelled),
            *self._describe_pairs("Near-duplicates in several domains", self.near_across, ACROSS),
            *self._describe_pairs("Near-duplicates within a domain", self.near_within, WITHIN),
            *(f"Few images of class {label!r} in domain {domain!r}: {n}" for domain, label, n in self.tiny),
        ]

    def describe_twins(self, twins: Sequence[tuple[Path, Path]]) -> list[str]:
        """Write a line about twins that are neither identical files nor near-duplicates."""
        known = {frozenset(pair) for each in self.duplicates for pair in combinations(each, 2)}
        known |= set(map(frozenset, self.near_across))
        others = [pair for pair in twins if frozenset(pair) not in known]
        few = min(sum(row.values()) for row in self.counts.values()) < MANY
        unsure = " Among so few images, some are only alike." if few else ""
        return self._describe_pairs("Alike in two domains, and unlike all others", others, f"{ACROSS}{unsure}")

    def _describe_pairs(self, kind: str, pairs: Sequence[tuple[Path, Path]], meaning: str) -> list[str]:
        """Write a line about pairs of files, with examples; none without pairs."""
        if not pairs:
            return []
        examples = "; ".join(" and ".join(map(self._name, pair)) for pair in pairs[:EXAMPLES])
        return [f"{kind}: {len(pairs):,} pair{'s' if len(pairs) > 1 else ''}, such as {examples}. {meaning}"]

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
    groups: dict[str, set[str]] = {}
    for each in decoded:
        counts[each.file.domain][each.file.label] += 1
        if each.file.group is not None:
            groups.setdefault(each.file.domain, set()).add(each.file.group)
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
        duplicates=_find_copies(decoded, lambda file: file.domain),
        mislabelled=_find_copies(decoded, lambda file: file.label),
        near_across=across,
        near_within=within,
        tiny=tuple((d, c, n) for d, row in counts.items() for c, n in row.items() if 0 < n < TINY),
        sizes=tuple(sorted((each.size for each in decoded), key=math.prod)),
        groups={domain: len(names) for domain, names in groups.items()},
    )


def _note_groups(groups: Mapping[str, Collection[str]]) -> list[str]:
    """Note domains that cannot be split, and groups that make domains dependent."""
    several = Counter(name for names in groups.values() for name in names)
    shared = sorted(name for name, count in several.items() if count > 1)
    single = [
        f"Domain {domain!r} has one group and cannot be split." for domain, names in groups.items() if len(names) < 2
    ]
    return [*single, *([describe_shared_groups(shared)] if shared else [])]


def _decode(window: str, every: int, numbered: tuple[int, ImageFile]) -> _Decoded | Unreadable:
    number, file = numbered
    picture = try_decode(file.path, window=window)
    if isinstance(picture, Unreadable):
        return picture
    low = None if number % every else describe_image(picture.image)
    return _Decoded(file, inspect_file(file.path)[0], picture.image.size, picture.changes, low)


def _find_copies(decoded: Sequence[_Decoded], name: Callable[[ImageFile], str]) -> tuple[tuple[Path, ...], ...]:
    """Find files with identical content that differ in what is named: their domain or their label."""
    copies: dict[bytes, list[ImageFile]] = {}
    for each in decoded:
        copies.setdefault(each.digest, []).append(each.file)
    return tuple(tuple(file.path for file in files) for files in copies.values() if len(set(map(name, files))) > 1)


def _find_near_duplicates(decoded: Sequence[_Decoded]) -> tuple[Pairs, Pairs]:
    """Find pairs across domains and within them, but for identical files in several domains and images of one group."""
    compared = [(each, each.low) for each in decoded if each.low is not None]
    low = np.array([low for _, low in compared], dtype=np.float32)
    across, within = [], []
    for i, j, _ in find_pairs(low):
        (one, _), (other, _) = compared[i], compared[j]
        if one.file.group is not None and one.file.group == other.file.group:
            continue  # the user has named the object that they show
        if one.file.domain == other.file.domain:
            within.append((one.file.path, other.file.path))
        elif one.digest != other.digest:
            across.append((one.file.path, other.file.path))
    return tuple(across), tuple(within)
