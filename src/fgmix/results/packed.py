"""Records of many runs in one small file, to keep and to publish: `fgmix report RUNS --pack FILE`. No torch.

A packed file holds one sealed line for each record, compressed; `fgmix report FILE` rebuilds every table from it.
"""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

from fgmix.errors import UserError
from fgmix.files import new_file, read_bytes, write_bytes
from fgmix.runs.record import RunRecord, as_record
from fgmix.seals import damaged, open_line, seal_line

SUFFIX = ".records.xz"
_LARGEST = 2**30  # bytes after decompression, about 50,000 runs: a file that announces more is refused


def pack(records: Sequence[RunRecord], path: Path) -> None:
    """Write records to a new file; equal records give equal bytes, whatever their order.

    Args:
        records: of any runs, but no runs of grids, which only the plan of their sweep tells apart.
        path: a new file that ends in .records.xz.
    """
    if not path.name.endswith(SUFFIX):
        raise UserError(f"Expected a file name that ends in {SUFFIX}. Found {path.name}. Choose another name.")
    lines = sorted(seal_line(record.as_dict()) for record in records)
    write_bytes(new_file(path, "--pack"), lzma.compress(b"".join(lines), preset=9))


def unpack(path: Path) -> list[RunRecord]:
    """The records of a file that `pack` wrote; they belong to no folder."""
    decompressor = lzma.LZMADecompressor()
    try:
        text = decompressor.decompress(read_bytes(path), max_length=_LARGEST)
    except lzma.LZMAError as error:
        raise UserError(
            f"Expected a folder of runs, or a file of `fgmix report --pack`, at {path}. Found another file or a "
            "damaged one. Check the path."
        ) from error
    if not decompressor.eof or not text:
        raise damaged(str(path))
    lines = enumerate(text.splitlines(), start=1)
    return [as_record(open_line(line, str(path)), f"line {number} of {path}") for number, line in lines]
