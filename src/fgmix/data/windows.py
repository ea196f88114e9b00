"""Choose the window of intensity of a dataset from its grey values of more than 8 bits.

Of each domain some pixels of some images are read. The window reaches from the lowest 0.5 % quantile of a domain to the
highest 99.5 % quantile of one, so that no domain is clipped much. No label is used, but every domain is, those that are
held out for an estimate too: give a window to rule that out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import fingerprint_of
from fgmix.data.files import StrPath
from fgmix.data.grey import Window
from fgmix.data.image_cache import remember
from fgmix.data.images import read_grey
from fgmix.records.files import cache_dir

SHARES = 0.005, 0.995  # quantiles of a domain's grey values between which its window lies
SAMPLED = 32  # files of each domain that are read
PIXELS = 10_000  # of each of them


def choose_window(domains: Iterable[Sequence[StrPath]], cache: Path | None = None) -> str:
    """Choose a window; empty if none of the files that are read has more than 8 bits.

    Args:
        domains: the files of each domain.
        cache: folder where the window of unchanged files is kept; None for `cache_dir()`.
    """
    sampled = [_sample(files) for files in domains]
    files = [file for each in sampled for file in each]
    folder = (cache or cache_dir()) / "windows" / fingerprint_of(str(len(each)) for each in sampled)
    return str(remember(files, folder, lambda: {"window": np.array(_choose(sampled))})["window"])


def _choose(domains: Iterable[Sequence[StrPath]]) -> str:
    ranges = [np.quantile(values, SHARES) for files in domains if len(values := _read_values(files))]
    if not ranges:
        return ""
    lows, highs = zip(*ranges)
    low = math.floor(min(lows))
    return str(Window(low, max(math.ceil(max(highs)), low + 1)))


def _sample(files: Sequence[StrPath]) -> list[StrPath]:
    return [files[place] for place in np.unique(np.linspace(0, len(files) - 1, SAMPLED).astype(np.int64))]


def _read_values(files: Sequence[StrPath]) -> npt.NDArray[Any]:
    greys = map(read_grey, files)
    values = [grey.values.reshape(-1) for grey in greys if grey is not None]
    return np.concatenate([each[:: max(1, each.size // PIXELS)] for each in values]) if values else np.zeros(0)
