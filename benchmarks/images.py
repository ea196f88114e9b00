"""The cache of decoded images: filling it from large photos, and reading JPEGs from it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

from benchmarks.data import cache_at, cached_domains, make_photos, photograph, spread, training
from benchmarks.turns import Turns, by_turns
from fgmix.data.folders import scan_folder
from fgmix.data.image_cache import Decoding
from fgmix.data.images import decode, reduce_image
from fgmix.training.devices import torch_threads

SIZES = ((1024, 768), (1536, 1152), (2048, 1536))  # of photos
PHOTOS, QUALITY = 3, 90


@dataclass(frozen=True)
class Filling:
    """CPU seconds to decode and reduce an image, at a fraction of its size and whole, and the mean difference."""

    size: tuple[int, int]
    image_size: int
    turns: Turns
    difference: float  # in grey levels


def measure_filling(*, rounds: int = 9) -> Iterator[Filling]:
    """Time the decoding of large JPEG photos for the cache against decoding them whole."""
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as folder:
        for width, height in SIZES:
            paths = [Path(folder) / f"{i}.jpg" for i in range(PHOTOS)]
            for path in paths:
                photograph(rng, width, height).save(path, quality=QUALITY)
            for image_size in (64, 224):
                yield _measure_filling(paths, (width, height), image_size, rounds)


def _measure_filling(paths: list[Path], size: tuple[int, int], image_size: int, rounds: int) -> Filling:
    decoding = Decoding(image_size, "#ffffff", "pixels")

    def ours(_: int) -> list[object]:
        return [decoding.encode(path) for path in paths]

    def whole(_: int) -> list[np.ndarray]:
        return [np.asarray(reduce_image(decode(path).image, image_size)) for path in paths]

    turns = by_turns(ours, whole, rounds, time.thread_time)
    stored = [np.asarray(reduce_image(decode(path, image_size=image_size).image, image_size)) for path in paths]
    differences = [np.abs(a.astype(float) - b).mean() for a, b in zip(stored, whole(0), strict=True)]
    return Filling(size, image_size, turns, float(np.mean(differences)))


def measure_jpegs(folder: Path | None = None, *, images: int = 64, rounds: int = 9) -> float:
    """Return the images per CPU second that the host prepares for training at 224 px from a cache of JPEGs."""
    as_jpegs = patch.dict(os.environ, FGMIX_DECODED_GB="0")
    with TemporaryDirectory() as temporary, torch_threads(1), cache_at(Path(temporary) / "cache"), as_jpegs:
        files = spread(scan_folder(folder or make_photos(Path(temporary) / "photos", images)).files, images)
        ways = training(cached_domains(files, 224), files, 224, 32)
        count = sum(len(batch.y) for batch in ways.host(0))  # the first read of an image verifies it
        seconds = []
        for number in range(rounds):
            started = time.thread_time()
            ways.host(number)
            seconds.append(time.thread_time() - started)
    return count / statistics.median(seconds)
