"""Read and write arrays of ours in .npz files with a checksum."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data._opening import open_file
from fgmix.records.digests import check_zip, damaged, seal_zip
from fgmix.records.files import write_bytes

Arrays = Mapping[str, npt.NDArray[Any]]


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write the file atomically and with its digest."""
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    write_bytes(path, seal_zip(packed.getvalue()))


def read_arrays(path: Path) -> Arrays:
    """The arrays that `write_arrays` wrote; Damaged if the content is not as written, OSError if it cannot be read."""
    with open_file(path) as file:
        data = file.read()
    check_zip(data, str(path))
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as packed:
            return dict(packed)
    except Exception as error:  # the digest matches but it is no .npz: numpy, zipfile and zlib raise different errors
        raise damaged(str(path)) from error
