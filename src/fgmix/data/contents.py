"""A digest of what many files hold, remembered so that only the first start reads them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fgmix.data._dataset import fingerprint_of
from fgmix.data._registry import cache_dir
from fgmix.data._threads import in_threads
from fgmix.data.images import digest_of
from fgmix.errors import UserError
from fgmix.files import read_json, write_json
from fgmix.progress import Progress

SETTLED_NS = 2 * 10**9  # a file changed longer ago than the clock's coarsest tick shows its next change in its times


def contents_of(files: Sequence[Path], *, cache: Path | None = None, progress: bool = True) -> str:
    """A digest of the contents of files, in order; their names do not matter.

    Reading the 118 MB of PACS takes 0.3 s from memory and 2 s from disk, and DomainNet is 150 times larger: the digest
    is remembered under the files' paths, sizes and times.

    Args:
        files: which.
        cache: where it is remembered; else `cache_dir()`.
        progress: show a bar.
    """
    stamps = [_stamp(path) for path in files]
    name = fingerprint_of(f"{os.path.abspath(p)} {s}" for p, s in zip(files, stamps))
    memo = (cache or cache_dir()) / "contents" / f"{name}.json"
    with suppress(UserError):  # none, or a damaged one
        return str(read_json(memo)["contents"])
    settled = time.time_ns() - SETTLED_NS
    with Progress("read images", len(files), show=progress) as bar:
        digests = []
        for digest in in_threads(digest_of, files):
            digests.append(digest)
            bar.advance()
    contents = fingerprint_of(digests)
    if all(changed < settled for _, _, changed in stamps):
        with suppress(OSError, UserError):  # only a shortcut: a read-only cache that is complete serves without it
            memo.parent.mkdir(parents=True, exist_ok=True)
            write_json(memo, {"contents": contents})
    return contents


def _stamp(path: Path) -> tuple[int, int, int]:
    """Size, modification and change time: they tell without reading a file that it is as it was.

    The change time (in ns, last) moves even where a copy keeps size and modification time.
    """
    try:
        stat = os.stat(path)
    except OSError:
        return -1, 0, 0
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
