"""A CSV manifest: one line per image, for files in any folders.

    path,label,domain
    scans/0001.png,healthy,ct
    /data/mr/17.png,ill,mr

The columns `path`, `label` and `domain` are required, in any order. The optional column `split` is `train` or `holdout`
(or `val`, `validation`) for every image and replaces the random split. Paths are relative to the folder of the
manifest. Lines may be in any order: domains are sorted by name, and images of a domain by class, folder and file name,
which is the order of a folder `domain/class/image`. A manifest that lists such a folder gives the same dataset with the
same fingerprint.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fgmix.data.files import open_file
from fgmix.data.folders import ImageFile, Scan, list_some, require_two_domains, scan_folder
from fgmix.errors import UserError

REQUIRED = ("path", "label", "domain")
SPLITS = {"train": False, "holdout": True, "val": True, "validation": True}
LARGEST = 2_000_000_000  # bytes: more than ten million images need

_Line = tuple[int, dict[str, str]]  # its number, and its cells by column


def scan_manifest(path: Path) -> Scan:
    """Read the images of a CSV manifest; UserError with line numbers if it is not valid."""
    root = path.parent
    lines = _lines(path)
    files = [
        ImageFile(cells["domain"], cells["label"], root / cells["path"], _holdout(cells, number, path))
        for number, cells in lines
    ]
    _require_distinct(lines, path)
    times = _require_files(files, lines, path)
    files.sort(key=lambda file: (file.domain, file.label, str(file.path.parent), file.path.name))
    require_two_domains(files, f"in {path}", "Add the images of another domain.")
    return Scan(root, tuple(files), frozenset(file.label for file in files), (), times)


def is_manifest(path: Path) -> bool:
    """Whether a path means a CSV manifest and not a folder."""
    return path.suffix.lower() == ".csv" and not os.path.isdir(path)


def scan_images(path: Path) -> Scan:
    """List the images of a folder or a CSV manifest."""
    return scan_manifest(path) if is_manifest(path) else scan_folder(path)


def manifest_paths(path: Path) -> list[Path]:
    """List the files of a manifest, in its order, whether they exist or not; only the column `path` is required."""
    return [path.parent / cells["path"] for _, cells in _lines(path, required=("path",))]


def _lines(path: Path, required: Sequence[str] = REQUIRED) -> list[_Line]:
    try:
        with open_file(path) as file:
            if os.fstat(file.fileno()).st_size > LARGEST:
                raise UserError(f"Expected a manifest of at most {LARGEST / 1e9:g} GB at {path}. Found more.")
            text = file.read().decode("utf-8-sig")  # spreadsheets write a byte order mark
        lines = list(_cells(csv.reader(io.StringIO(text, newline=""), strict=True), path, required))
    except csv.Error as error:
        raise UserError(f"Expected a CSV file at {path}. It is not one ({error}). Save it again as CSV.") from error
    except OSError as error:
        raise UserError(f"Expected a CSV manifest at {path}. It cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UserError(f"Expected UTF-8 in {path}. Found another encoding at byte {error.start}.") from error
    if not lines:
        raise UserError(f"Expected lines below the header of {path}. Found none. Add one for every image.")
    return lines


def _cells(reader: Iterator[list[str]], path: Path, required: Sequence[str]) -> Iterator[_Line]:
    header = [name.strip() for name in next(reader, [])]
    _require_columns(header, path, required)
    for row in reader:
        number = reader.line_num  # type: ignore[attr-defined]
        if not row:
            continue
        if len(row) != len(header):
            raise UserError(f"Expected {len(header)} cells in line {number} of {path}. Found {len(row)}. Quote commas.")
        # a file name may end in a blank, a class name should not
        cells = {name: cell if name == "path" else cell.strip() for name, cell in zip(header, row)}
        blank = [name for name in header if not cells[name].strip()]
        if blank:
            raise UserError(f"Expected a value in every cell of {path}. Found no {blank[0]} in line {number}. Fill it.")
        yield number, cells


def _require_columns(header: Sequence[str], path: Path, required: Sequence[str]) -> None:
    optional = [name for name in (*REQUIRED, "split") if name not in required]
    if not set(required) <= set(header) <= {*REQUIRED, "split"} or len(set(header)) < len(header):
        raise UserError(
            f"Expected the columns {', '.join(required)} and, if wanted, {', '.join(optional)} in {path}, each once, "
            f"separated by commas. Found {', '.join(map(repr, header)) or 'nothing'}."
        )


def _holdout(cells: dict[str, str], number: int, path: Path) -> bool | None:
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
