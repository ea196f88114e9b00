"""Records of many runs in one small file, to archive and publish: `fgmix report RUNS --pack FILE`. No torch.

A packed file contains one sealed line per record, compressed; `fgmix report FILE` rebuilds every table from it.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Sequence
from pathlib import Path

from fgmix.errors import UserError
from fgmix.records.digests import Damaged, damaged, seal_line, strip_line
from fgmix.records.files import new_file, read_bytes, write_bytes
from fgmix.records.schema import RunRecord, to_plain
from fgmix.records.store import parse_record

SUFFIX = ".records.xz"
_PIECE = 2**24  # bytes that are decompressed at a time
_LONGEST = 2**28  # bytes of a line, at most; that of a run has some thousands


def pack(records: Sequence[RunRecord], path: Path) -> None:
    """Write records to a new file; equal records give equal bytes, whatever their order.

    Args:
        records: of any runs except those of grids, which cannot be distinguished by their records alone.
        path: a new file that ends in .records.xz.
    """
    if not path.name.endswith(SUFFIX):
        raise UserError(f"Expected a file name that ends in {SUFFIX}. Found {path.name}. Choose another name.")
    lines = sorted(seal_line(to_plain(record)) for record in records)
    write_bytes(new_file(path, "--pack"), lzma.compress(b"".join(lines), preset=9))


def unpack(path: Path) -> list[RunRecord]:
    """The records of a file that `pack` wrote; they have no folder."""
    try:
        numbered = enumerate(_lines(path), start=1)
        found = [parse_record(strip_line(line, str(path)), f"line {number} of {path}") for number, line in numbered]
    except lzma.LZMAError as error:
        raise UserError(
            f"Expected a folder of runs, or a file of `fgmix report --pack`, at {path}. Found another file or a "
            "damaged one. Check the path."
        ) from error
    except Damaged as error:
        raise Damaged(f"{error} Copy it again, or pack the runs again.") from error
    if not found:
        raise UserError(f"Expected records in {path}. Found none. Pack finished runs.")
    return found


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a compressed file, decompressed in pieces, so that a damaged or malicious one cannot fill memory."""
    decompressor, data, rest = lzma.LZMADecompressor(), read_bytes(path), b""
    while not decompressor.eof:
        piece = decompressor.decompress(data, max_length=_PIECE)
        if (not piece and decompressor.needs_input) or len(rest) > _LONGEST:
            raise damaged(str(path))
        *lines, rest = (rest + piece).split(b"\n")
        data = b""
        yield from lines
    if decompressor.unused_data:  # in a `cat` of two such files, the second would be lost
        raise UserError(f"Expected one packed file at {path}. Found more after its end. Name each file by itself.")
    if rest:
        raise damaged(str(path))
