"""Time of an evaluation: the raw and the averaged model in one pass over the data, against a pass for each.

All ways evaluate the same two models on the same images in this process. Times are CPU seconds, summed over threads:
the work is compared, not its distribution over cores.

    ours          one pass; images from the decoded cache, prepared ahead; sums stay on the device
    two passes    a pass per model over the same cache, batch by batch; sums fetched with every batch
    DomainBed     a pass per model; every file decoded every time, batches of 64; sums fetched with every batch
    in memory     as DomainBed, but with decoded images in memory: the time of the network

The default network is trivial: a GPU would compute the logits while the CPU prepares images. Another one is in
channels-last layout on our side, as by default in runs, and contiguous on the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.data import THEIR_EVALUATION_BATCH, cache_at, cached_domains, make_photos, samples_of, spread
from benchmarks.per_image import ImageFiles, evaluation_transform, read
from benchmarks.steps import check_rounds
from benchmarks.turns import Turns, by_turns
from fgmix.algorithms import Algorithm, Predict, create
from fgmix.data.dataset import Domain
from fgmix.data.folders import ImageFile, scan_folder
from fgmix.data.loading import Batch
from fgmix.errors import bad_value
from fgmix.networks import build_featurizer
from fgmix.training.averaging import RunningMean
from fgmix.training.devices import torch_threads
from fgmix.training.evaluate import BATCH, Subset, bind_weights, evaluation_mode, score_subsets

Found = dict[str, list[tuple[float, float]]]  # accuracy and loss of each domain, by model
GLANCE = 32  # pixels: the trivial network uses every 32nd row and column


@dataclass(frozen=True)
class EvaluationSpeed:
    """Time of an evaluation.

    Args:
        image_size: side of the network's input.
        images: number of images in an evaluation, each predicted by two models.
        against: CPU seconds of ours and of another way, by the name of the other way.
    """

    image_size: int
    images: int
    against: Mapping[str, Turns]

    @property
    def ours(self) -> float:
        """Images per CPU second, median of all rounds."""
        return self.images / statistics.median(second for turns in self.against.values() for second in turns.ours)


def measure_evaluation(
    folder: Path | None = None,
    *,
    image_size: int = 224,
    images: int = 128,
    backbone: str | None = None,
    models: int = 2,
    rounds: int = 9,
) -> EvaluationSpeed:
    """Measure one evaluation of a raw and an averaged model in each way, alternating; no files are left on disk.

    Args:
        folder: images domain/class/image; None for synthetic photographs.
        image_size: side of the network's input.
        images: number of images of each domain, evenly spread over its files.
        backbone: network with random weights; None for a trivial one.
        models: 2, or 1 for the raw one alone.
        rounds: number of rounds.
    """
    check_rounds(rounds)
    for name, value in (("image_size", image_size), ("images", images)):
        if value < 1:
            raise bad_value(name, "a positive integer", value)
    with TemporaryDirectory() as temporary, torch_threads(1), cache_at(Path(temporary) / "cache"):
        root = folder or make_photos(Path(temporary) / "photos", images)
        files = spread(scan_folder(root).files, images)
        domains = cached_domains(files, image_size)
        classes = len({file.label for file in files})
        ours, theirs = (_algorithm(backbone, image_size, classes, channels_last=last) for last in (True, False))
        ways = {"two passes": in_two_passes(domains), "DomainBed": from_files(files, image_size)}
        if backbone:
            ways["in memory"] = from_memory(domains)
        with evaluation_mode(ours), evaluation_mode(theirs):
            one_pass, sides = in_one_pass(domains, ours.n_classes), (_models(ours, models), _models(theirs, models))
            against = {name: _measure(one_pass, way, sides, rounds) for name, way in ways.items()}
    return EvaluationSpeed(image_size, len(files), against)


Way = Callable[[Mapping[str, Predict]], Found]


def in_one_pass(domains: Sequence[Domain], classes: int) -> Way:
    """One pass for both models, as in a run."""
    parts = [Subset(domain, np.arange(len(domain))) for domain in domains]

    def way(models: Mapping[str, Predict]) -> Found:
        starts = {name: partial(lambda each: each, predict) for name, predict in models.items()}
        scores = score_subsets(starts, parts, torch.device("cpu"), classes)
        return {name: [(score.accuracy, score.loss) for score in found] for name, found in scores.items()}

    return way


def in_two_passes(domains: Sequence[Domain]) -> Way:
    """A pass for each model over the decoded cache."""

    def batches(domain: Domain) -> Iterator[Batch]:
        for start in range(0, len(domain), BATCH):
            rows = np.arange(start, min(start + BATCH, len(domain)))
            yield domain.inputs.clean(rows), torch.from_numpy(domain.y[rows])

    return lambda models: {name: [scored(model, batches(d)) for d in domains] for name, model in models.items()}


def from_files(files: Sequence[ImageFile], image_size: int) -> Way:
    """A pass for each model over the files, as DomainBed would evaluate two algorithms."""
    datasets = [ImageFiles(samples, evaluation_transform(image_size)) for samples in samples_of(files)]

    def batches(dataset: ImageFiles) -> list[Batch]:
        starts = range(0, len(dataset), THEIR_EVALUATION_BATCH)
        return read(dataset, [np.arange(i, min(i + THEIR_EVALUATION_BATCH, len(dataset))) for i in starts])

    return lambda models: {name: [scored(model, batches(d)) for d in datasets] for name, model in models.items()}


def from_memory(domains: Sequence[Domain]) -> Way:
    """A pass for each model over decoded images in memory, in DomainBed's batches."""
    held = [(domain.inputs.clean(np.arange(len(domain))), torch.from_numpy(domain.y)) for domain in domains]

    def batches(x: Tensor, y: Tensor) -> Iterator[Batch]:
        return zip(x.split(THEIR_EVALUATION_BATCH), y.split(THEIR_EVALUATION_BATCH))

    return lambda models: {name: [scored(model, batches(x, y)) for x, y in held] for name, model in models.items()}


def scored(predict: Predict, batches: Iterable[Batch]) -> tuple[float, float]:
    """Accuracy and mean loss, with the sums fetched after every batch."""
    n, hits, loss = 0, 0, 0.0
    for x, y in batches:
        logits = predict(x).float()
        hits += int((logits.argmax(1) == y).sum())
        loss += float(cross_entropy(logits, y, reduction="sum"))
        n += len(y)
    return hits / n, loss / n


def _measure(ours: Way, theirs: Way, models: tuple[Mapping[str, Predict], ...], rounds: int) -> Turns:
    our_models, their_models = models
    ours(our_models), theirs(their_models)  # the first read of a cached image verifies it
    return by_turns(lambda _: ours(our_models), lambda _: theirs(their_models), rounds, time.process_time)


class Glance(nn.Module):
    """Every 32nd pixel of an image as its code."""

    def forward(self, x: Tensor) -> Tensor:
        return x[..., ::GLANCE, ::GLANCE].flatten(1)


def _algorithm(backbone: str | None, image_size: int, classes: int, *, channels_last: bool = True) -> Algorithm:
    torch.manual_seed(0)
    shape = (3, image_size, image_size)
    featurizer = build_featurizer(backbone, shape, channels_last=channels_last) if backbone else Glance()
    width = featurizer.out_features if backbone else 3 * len(range(0, image_size, GLANCE)) ** 2
    classifier = nn.Linear(width, classes)  # type: ignore[arg-type]  # a featurizer's width is an integer
    return create("erm", featurizer=featurizer, classifier=classifier, n_domains=1)


def _models(algorithm: Algorithm, count: int = 2) -> dict[str, Predict]:
    """The raw model, and an average with its own copy of the weights."""
    if count == 1:
        return {"raw": algorithm.predict}
    average = RunningMean(algorithm, start=1)
    average.update(1)
    return {"raw": algorithm.predict, "swa": bind_weights(algorithm, average.average())}
