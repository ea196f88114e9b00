"""Long computations in rows, each saved when it is done, so that they resume after an interruption. No torch."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fgmix.analysis.arrays import Floats
from fgmix.progress import Progress
from fgmix.records.files import make_folder, read_bytes, write_bytes


def compute_rows(
    compute: Callable[[int], Floats],
    count: int,
    *,
    description: str,
    key: object = None,
    partial: Path | None = None,
    progress: bool = True,
) -> Floats:
    """`compute(0)` … `compute(count − 1)`, stacked.

    Args:
        compute: a row from its number, independent of what was computed before.
        count: how many rows.
        description: text of the progress bar.
        key: everything that the rows depend on; rows saved under another key are not used.
        partial: file for the finished rows, which `remove_partial` deletes; None saves nothing.
        progress: show the bar.
    """
    digest = hashlib.blake2b(repr((key, count)).encode(), digest_size=16).hexdigest()
    rows = _kept(partial, digest)
    with Progress(description, count, done=len(rows), show=progress) as bar:
        for i in range(len(rows), count):
            rows.append(compute(i))
            if partial is not None:
                _keep(partial, digest, rows)
            bar.advance()
    return np.stack(rows)


def partial_file(stem: Path, part: str = "") -> Path:
    """The file for the finished rows of a figure."""
    make_folder(stem.parent)
    return stem.with_name(f".{stem.name}@{part}.partial.npz")  # @: `surface-1` must not match `surface-15`


def remove_partial(stem: Path) -> None:
    """Delete the saved rows of a finished figure."""
    for path in stem.parent.glob(f".{stem.name}@*.partial.npz"):
        path.unlink()


def _kept(partial: Path | None, digest: str) -> list[Floats]:
    if partial is None or not partial.exists():
        return []
    try:
        with np.load(io.BytesIO(read_bytes(partial)), allow_pickle=False) as archive:
            return list(archive["rows"]) if str(archive["key"]) == digest else []
    except Exception:  # a damaged file, with errors of numpy, zipfile or zlib: the rows are computed again
        return []


def _keep(partial: Path, digest: str, rows: list[Floats]) -> None:
    packed = io.BytesIO()
    np.savez(packed, key=np.asarray(digest), rows=np.stack(rows))
    write_bytes(partial, packed.getvalue())
