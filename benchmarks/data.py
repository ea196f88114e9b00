"""Images per second: our decoded cache and batched augmentation against DomainBed's loading, file by file.

Both sides run in this process with the same number of torch threads and read the same images in the same order, from
memory: files and cache have been read before the first round, so disk speed is not measured. The work is compared, not
its distribution over cores: DomainBed uses loader processes, fgmix threads.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from unittest.mock import patch

import numpy as np
from PIL import Image

from benchmarks.per_image import ImageFiles, evaluation_transform, read, training_transform
from benchmarks.steps import check_rounds
from benchmarks.turns import Turns, by_turns
from fgmix.data.augment import ImageInputs
from fgmix.data.dataset import Domain
from fgmix.data.folders import ImageFile, scan_folder
from fgmix.data.image_cache import decode_images
from fgmix.data.loading import Batch, BatchSource, HostBatch, finish
from fgmix.data.registry import LoadOptions
from fgmix.data.sampling import UniformSampler
from fgmix.errors import bad_value
from fgmix.training.devices import torch_threads

Work = Literal["train", "evaluate"]

PHOTO = (500, 375)  # width and height: larger than PACS's 227×227, smaller than a camera's
DOMAINS = 3
EVALUATED = 256  # images of a round of evaluation, which is one batch in a run
THEIR_EVALUATION_BATCH = 64


@dataclass(frozen=True)
class Ways:
    """Our way and DomainBed's to load the batches of a round, by its number.

    Args:
        host: the host's part of our way.
        theirs: DomainBed's way.
    """

    host: Callable[[int], list[HostBatch]]
    theirs: Callable[[int], list[Batch]]

    def ours(self, number: int) -> list[Batch]:
        """Our way: the host's part and the rest."""
        return finish(self.host(number))


@dataclass(frozen=True)
class DataSpeed:
    """Speed of loading images.

    Args:
        work: "train" (augmented) or "evaluate" (clean).
        image_size: side of the network's input.
        images: number of images in a round.
        turns: seconds of the rounds.
        host_seconds: CPU seconds of each round for the host's part of our way; a GPU would do the rest.
        decoding: CPU seconds per image to build the cache, once.
    """

    work: Work
    image_size: int
    images: int
    turns: Turns
    host_seconds: tuple[float, ...]
    decoding: float

    @property
    def ours(self) -> float:
        """Images per second, median of the rounds."""
        return self.images / statistics.median(self.turns.ours)

    @property
    def theirs(self) -> float:
        """Images per second, median of the rounds."""
        return self.images / statistics.median(self.turns.theirs)

    @property
    def host(self) -> float:
        """Images per CPU second of the host's part alone (crop and resize to bytes), median of the rounds."""
        return self.images / statistics.median(self.host_seconds)

    @property
    def paid_after(self) -> float:
        """Number of reads of an image after which the cache has saved the time to build it; infinite if it saves none.

        >>> turns = Turns(ours=(1.0, 1.0, 1.0), theirs=(3.0, 3.0, 3.0))
        >>> round(DataSpeed("train", 224, 100, turns, host_seconds=(0.5,), decoding=0.05).paid_after, 6)
        2.5
        """
        saved = 1 / self.theirs - 1 / self.ours
        return self.decoding / saved if saved > 0 else float("inf")


def measure_data(
    folder: Path | None = None,
    *,
    image_size: int = 224,
    images: int = 64,
    batch_size: int = 32,
    rounds: int = 9,
    threads: int = 1,
) -> list[DataSpeed]:
    """Measure the speed of loading for training and for evaluation, alternating; no files are left on disk.

    Args:
        folder: images domain/class/image; None for synthetic photographs.
        image_size: side of the network's input.
        images: number of images of each domain, evenly spread over its files.
        batch_size: samples per domain; a round of training loads a batch of every domain.
        rounds: number of rounds.
        threads: torch threads, on both sides.
    """
    check_rounds(rounds)
    for name, value in (("image_size", image_size), ("images", images), ("batch_size", batch_size)):
        if value < 1:
            raise bad_value(name, "a positive integer", value)
    with TemporaryDirectory() as temporary, torch_threads(threads), cache_at(Path(temporary) / "cache"):
        root = folder or make_photos(Path(temporary) / "photos", images)
        files = spread(scan_folder(root).files, images)
        started = time.process_time()
        domains = cached_domains(files, image_size)
        decoding = (time.process_time() - started) / len(files)
        for domain in domains:
            domain.inputs.prepare(np.arange(len(domain)))  # the first read of an image verifies it
        ways: dict[Work, Ways] = {
            "train": training(domains, files, image_size, batch_size),
            "evaluate": evaluation(domains, files, image_size),
        }
        return [_measure(work, image_size, ways[work], rounds, decoding) for work in ways]


def training(domains: Sequence[Domain], files: Sequence[ImageFile], image_size: int, batch_size: int) -> Ways:
    """Both ways to load the batches of a training step, one per domain, with the same images."""
    pools = tuple(np.arange(len(domain)) for domain in domains)
    source = BatchSource(tuple(domains), UniformSampler(0, pools, batch_size), seed=0)
    transform = training_transform(image_size)
    datasets = [ImageFiles(samples, transform) for samples in samples_of(files)]

    def theirs(step: int) -> list[Batch]:
        drawn = source.sampler.draw(step)
        return [batch for dataset, indices in zip(datasets, drawn) for batch in read(dataset, [indices])]

    return Ways(source.prepare, theirs)


def evaluation(domains: Sequence[Domain], files: Sequence[ImageFile], image_size: int) -> Ways:
    """Both ways to load clean images of the first domain, each with its own batch size."""
    domain, dataset = domains[0], ImageFiles(samples_of(files)[0], evaluation_transform(image_size))
    indices = np.arange(EVALUATED) % len(domain)
    parts = [indices[start : start + THEIR_EVALUATION_BATCH] for start in range(0, EVALUATED, THEIR_EVALUATION_BATCH)]
    return Ways(lambda _: [HostBatch.of(domain, indices)], lambda _: read(dataset, parts))


def cached_domains(files: Sequence[ImageFile], image_size: int) -> list[Domain]:
    """The files as domains on the decoded cache, which is built if missing."""
    cached = decode_images([file.path for file in files], LoadOptions(image_size=image_size, progress=False))
    domains, start = [], 0
    for samples, (name, _) in zip(samples_of(files), groupby(files, lambda file: file.domain)):
        rows = np.arange(start, start := start + len(samples))
        y = np.array([label for _, label in samples], dtype=np.int64)
        domains.append(Domain(name, ImageInputs(cached, rows, image_size), y))
    return domains


def spread(files: Sequence[ImageFile], per_domain: int) -> list[ImageFile]:
    """At most `per_domain` files of each domain, evenly spread, since files are sorted by class."""
    chosen: list[ImageFile] = []
    for _, group in groupby(files, lambda file: file.domain):
        members = list(group)
        kept = min(per_domain, len(members))
        chosen += [members[i * len(members) // kept] for i in range(kept)]
    return chosen


def make_photos(root: Path, per_domain: int) -> Path:
    """A folder of synthetic JPEG photographs, the same every time."""
    rng = np.random.default_rng(0)
    for domain in range(DOMAINS):
        folder = root / f"domain{domain}" / "photo"
        folder.mkdir(parents=True)
        for i in range(per_domain):
            photograph(rng, *PHOTO).save(folder / f"{i:04d}.jpg")
    return root


def photograph(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Noise with a 1/f amplitude spectrum, as in photographs, so that decoding takes as long.

    White noise would take longer, smooth shapes less time.
    """
    f = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    f[0, 0] = np.inf  # no constant component: the mean is set below
    grey, *tints = np.fft.irfft2(np.fft.rfft2(rng.normal(size=(4, height, width))) / f, s=(height, width))
    planes = np.stack([grey + 0.3 * tint for tint in tints], axis=-1)  # correlated colours
    return Image.fromarray(np.clip(128 + 50 * planes / planes.std(), 0, 255).astype(np.uint8))


def _measure(work: Work, image_size: int, ways: Ways, rounds: int, decoding: float) -> DataSpeed:
    ways.theirs(0)
    images = sum(len(y) for _, y in ways.ours(0))  # also the warm-up
    turns = by_turns(ways.ours, ways.theirs, rounds)
    return DataSpeed(
        work, image_size, images, turns, tuple(_cpu_seconds(ways.host, n) for n in range(rounds)), decoding
    )


def _cpu_seconds(way: Callable[[int], object], number: int) -> float:
    """CPU seconds of this thread, which other processes on the machine hardly change."""
    started = time.thread_time()
    way(number)
    return time.thread_time() - started


def samples_of(files: Sequence[ImageFile]) -> list[list[tuple[Path, int]]]:
    """Path and label of every file, domain by domain."""
    number = {label: i for i, label in enumerate(sorted({file.label for file in files}))}
    return [
        [(file.path, number[file.label]) for file in group] for _, group in groupby(files, lambda file: file.domain)
    ]


@contextmanager
def cache_at(folder: Path) -> Iterator[None]:
    """Use `folder` as the cache within the block: a measurement must neither find a cache nor leave one."""
    with patch.dict(os.environ, FGMIX_CACHE=str(folder)):
        yield
