"""Check images before training: `fgmix data check FOLDER`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fgmix.data.catalogue import scan_images
from fgmix.data.folders import ImageFile, class_notes
from fgmix.data.image_cache import READERS, open_all, read_contents
from fgmix.data.images import Change, Unreadable, change_notes, inspect_file, quiet_decoding, try_decode
from fgmix.data.loading import in_order
from fgmix.data.registry import LoadOptions
from fgmix.errors import UserError
from fgmix.progress import Progress

TINY = 5  # a class with fewer images in a domain is reported: a holdout part of 20 % may have none of it


@dataclass(frozen=True)
class FolderReport:
    """Contents and problems of a folder or a manifest.

    Args:
        path: path of the folder or the manifest.
        root: the folder to which file names are relative.
        counts: readable images of each class in each domain; domains and classes sorted, zeros included.
        notes: files, folders and classes that are left out, classes that domains lack, images that decoding changes.
        unreadable: files that cannot be decoded, each with the reason.
        duplicates: groups of files with identical content in more than one domain.
        tiny: (domain, class, number) with 1 to 4 images.
        smallest: (width, height) of the image with the fewest pixels; None if no image is readable.
        largest: (width, height) of the image with the most pixels.
    """

    path: Path
    root: Path
    counts: dict[str, dict[str, int]]
    notes: tuple[str, ...]
    unreadable: tuple[tuple[Path, str], ...]
    duplicates: tuple[tuple[Path, ...], ...]
    tiny: tuple[tuple[str, str, int], ...]
    smallest: tuple[int, int] | None
    largest: tuple[int, int] | None

    @property
    def clean(self) -> bool:
        """Whether no problem was found."""
        return not (self.notes or self.unreadable or self.duplicates or self.tiny)

    def lines(self) -> list[str]:
        """Write the report as lines of text."""
        return [
            *self._overview(),
            *self._table(),
            *self.notes,
            *(f"Cannot be decoded: {path} ({reason})" for path, reason in self.unreadable),
            *("The same image in several domains: " + ", ".join(map(self._name, group)) for group in self.duplicates),
            *(f"Few images of class {label!r} in domain {domain!r}: {n}" for domain, label, n in self.tiny),
            *(["No problems found."] if self.clean else []),
        ]

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root) if path.is_relative_to(self.root) else path)

    def _overview(self) -> list[str]:
        total = sum(sum(row.values()) for row in self.counts.values())
        classes = len(next(iter(self.counts.values())))
        sizes = f", {_size(self.smallest)} to {_size(self.largest)} pixels" if self.smallest and self.largest else ""
        return [f"{self.path}: {total} images, {len(self.counts)} domains, {classes} classes{sizes}"]

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
class _Look:
    """The check of one file: its (width, height) and what decoding changed, or why it cannot be decoded."""

    file: ImageFile
    digest: bytes
    outcome: tuple[tuple[int, int], Change] | Unreadable


def check_images(path: Path, *, progress: bool = True) -> FolderReport:
    """Decode every image of a folder or manifest and report problems; UserError unless there are two domains.

    Args:
        path: a folder domain/class/image, or a CSV manifest.
        progress: show a progress bar.
    """
    scan = scan_images(path)
    looks = _look_at(scan.files, progress)
    readable = [look.file for look in looks if not isinstance(look.outcome, Unreadable)]
    counts = _counts(scan.files, readable)
    decoded = [look.outcome for look in looks if not isinstance(look.outcome, Unreadable)]
    sizes = sorted((size for size, _ in decoded), key=_area)
    present = {domain: [label for label, n in row.items() if n] for domain, row in counts.items()}
    return FolderReport(
        path=path,
        root=scan.root,
        counts=counts,
        notes=(
            *scan.notes,
            *change_notes(np.array([changes for _, changes in decoded], dtype=np.uint8)),
            *class_notes(present, scan.class_folders),
        ),
        unreadable=tuple((k.file.path, k.outcome.reason) for k in looks if isinstance(k.outcome, Unreadable)),
        duplicates=_duplicates(looks),
        tiny=tuple((d, c, n) for d, row in counts.items() for c, n in row.items() if 0 < n < TINY),
        smallest=sizes[0] if sizes else None,
        largest=sizes[-1] if sizes else None,
    )


@dataclass(frozen=True)
class CacheReport:
    """The result of a full check of one decoded cache, after repairing what can be repaired."""

    file: Path
    image_size: int
    images: int
    damaged: int
    problem: str | None

    def line(self) -> str:
        """Write the result as a sentence."""
        what = f"{self.file}: {self.images} images for {self.image_size} px"
        if self.problem:
            return f"{what}. {self.problem}"
        return f"{what}, {self.damaged} damaged and decoded again." if self.damaged else f"{what}, all as written."


def check_caches(path: Path, *, cache: Path | None = None, progress: bool = True) -> list[CacheReport]:
    """Verify every image in the decoded caches of a folder or manifest.

    Args:
        path: a folder domain/class/image, or a CSV manifest.
        cache: folder of the cache; None for `cache_dir()`.
        progress: show a progress bar.
    """
    files = [file.path for file in scan_images(path).files]
    options = LoadOptions(cache=cache, progress=progress)
    reports = []
    for images in open_all(files, options, read_contents(files, options)):
        damaged, problem = 0, None
        with Progress("verify cache", len(images), show=progress) as bar:
            for row in images.readable.tolist():
                if not images.is_sound(row):
                    damaged += 1
                    try:
                        images.repair(row)
                    except UserError as error:
                        problem = str(error)
                        break
                bar.advance()
        reports.append(CacheReport(images.file, images.recipe.image_size, len(images), damaged, problem))
    return reports


def _look_at(files: Sequence[ImageFile], progress: bool) -> list[_Look]:
    def look(file: ImageFile) -> _Look:
        picture = try_decode(file.path)
        outcome = picture if isinstance(picture, Unreadable) else (picture.image.size, picture.changes)
        return _Look(file, inspect_file(file.path)[0], outcome)

    looks = []
    with quiet_decoding(), Progress("check images", len(files), show=progress) as bar:
        for each in in_order(look, files, READERS):
            looks.append(each)
            bar.advance()
    return looks


def _counts(files: Sequence[ImageFile], readable: Sequence[ImageFile]) -> dict[str, dict[str, int]]:
    classes = sorted({file.label for file in files})
    counts = {domain: dict.fromkeys(classes, 0) for domain in dict.fromkeys(file.domain for file in files)}
    for file in readable:
        counts[file.domain][file.label] += 1
    return counts


def _duplicates(looks: Sequence[_Look]) -> tuple[tuple[Path, ...], ...]:
    groups: dict[bytes, list[ImageFile]] = {}
    for look in looks:
        if not isinstance(look.outcome, Unreadable):
            groups.setdefault(look.digest, []).append(look.file)
    return tuple(
        tuple(file.path for file in group) for group in groups.values() if len({file.domain for file in group}) > 1
    )


def _area(size: tuple[int, int]) -> int:
    return size[0] * size[1]


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"
