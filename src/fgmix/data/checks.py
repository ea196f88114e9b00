"""Check images before training: `fgmix data check FOLDER`; near-duplicate images.

A near-duplicate is a picture in other tones, another size or compression, mirrored or inverted.

    c = low frequencies of the cosine transform of the image in 32×32 grey pixels, without the mean, ‖c‖ = 1
    b = sign(c − m)                      m: median of c over all images; images in one pose share the signs of m
    similarity(i, j) = max (b_i · b_j′) / 255        j′: image j, its mirror image, and the negatives of both

Unrelated images have a similarity near 0, with a standard deviation of 1/16. Pictures that are cropped by more than a
few per cent, or drawn anew, are not found. docs/data/images.md has measurements.

Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions", 2010, https://phash.org/docs/pubs/thesis_zauner.pdf,
has the transform; the median, the mirror image and the negative are ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.fft import dctn

from fgmix.data.folders import ImageFile, class_notes, describe_shared_groups, scan_images
from fgmix.data.image_cache import READERS
from fgmix.data.image_dataset import choose_window
from fgmix.data.images import Change, Unreadable, change_notes, inspect_file, quiet_decoding, try_decode
from fgmix.data.loading import in_order
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
        classes = len(next(iter(self.counts.values())))
        ends = [f"{width}×{height}" for width, height in (*self.sizes[:1], *self.sizes[-1:])]
        sizes = f", {' to '.join(dict.fromkeys(ends))} pixels" if ends else ""
        return [
            f"{self.path}: {total} images, {len(self.counts)} domains, {classes} classes{sizes}",
            *self._table(),
            *([f"Groups: {', '.join(f'{domain} {n}' for domain, n in self.groups.items())}."] if self.groups else []),
            *self.notes,
            *(f"Cannot be decoded: {path} ({reason})" for path, reason in self.unreadable),
            *("The same image in several domains: " + ", ".join(map(self._name, each)) for each in self.duplicates),
            *("The same image with different labels: " + ", ".join(map(self._name, each)) for each in self.mislabelled),
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


Floats = npt.NDArray[np.float32]

SIDE = 32  # pixels
FREQUENCIES = 16  # of each direction
SIMILAR = 0.7  # similarity from which on two images are near-duplicates
BLOCK = 1000  # images that are compared with all others at a time
MOST = 100_000  # images that are compared: four minutes on one core

# Sign of every frequency in the mirror image: odd ones across change.
_MIRROR = np.tile(np.where(np.arange(FREQUENCIES) % 2, -1, 1), (FREQUENCIES, 1)).astype(np.float32).reshape(-1)


def describe_image(image: Image.Image) -> Floats:
    """Compute the low frequencies c of an image, (256,)."""
    pixels = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32)
    c = dctn(pixels, norm="ortho")[:FREQUENCIES, :FREQUENCIES].reshape(-1)
    c[0] = 0.0
    low: Floats = c / max(float(np.linalg.norm(c)), 1e-6)
    return low


def find_pairs(c: Floats, least: float = SIMILAR) -> list[tuple[int, int, float]]:
    """Find all pairs of images whose similarity is at least `least`, by their places, the most similar first.

    c (n, 256) are the low frequencies of the images. The similarity is the last number of a pair.
    """
    if len(c) < 2:
        return []
    best: dict[tuple[int, int], float] = {}
    m = np.median(c, axis=0)
    b = _signs(c, m)
    for other in (c, c * _MIRROR, -c, -c * _MIRROR):
        for i, j, similarity in _compare(b, _signs(other, m), least):
            best[i, j] = max(best.get((i, j), 0.0), similarity)
    return sorted(((i, j, similarity) for (i, j), similarity in best.items()), key=lambda pair: (-pair[2], pair))


def _signs(c: Floats, m: Floats) -> Floats:
    return np.where(c > m, 1, -1).astype(np.float32)[:, 1:]


def _compare(a: Floats, b: Floats, least: float) -> Iterator[tuple[int, int, float]]:
    """Yield the rows i < j of `a` and `b` that agree, and how much."""
    for start in range(0, len(a), BLOCK):
        agreement = a[start : start + BLOCK] @ b[start:].T / a.shape[1]
        rows, columns = np.nonzero(agreement >= least)
        for i, j in zip(rows.tolist(), columns.tolist()):
            if i < j:
                yield start + i, start + j, float(agreement[i, j])
