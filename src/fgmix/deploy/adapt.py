"""Adapt a model to a batch of a new domain, without labels: its own statistics replace those of the source domains.

Features and channels are standardised by the mean and variance of the batch (`data.standardisation.fit_to_batch`). A
network with batch-norm layers computes their statistics on it. A prediction then depends on the other samples of its
batch: few of them, or another balance of the classes than in training, can make it worse. Both are measured here.

Li et al., "Revisiting Batch Normalization For Practical Domain Adaptation", 2016, https://arxiv.org/abs/1603.04779.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fgmix.data.dataset import Indices
from fgmix.data.standardisation import fit_to_batch
from fgmix.deploy.network import Network, Standardise
from fgmix.errors import UserError
from fgmix.records.model import BatchGain
from fgmix.seeding import numpy_generator

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)  # of batches that are measured
SAMPLED = 512  # samples per domain and size
SKEWED = 128  # size of batches with another balance of classes
SHARE = 0.75  # of one class in them
REPEATS = 5  # batches of that kind per domain

Guess = Callable[[Sequence[Indices]], Indices]  # batches of rows of a domain → their predicted classes, joined
Measured = tuple[Indices, Guess, Indices]  # of a held-out domain: labels, adapted predictions, plain ones of all rows


def adapt_network(network: Network, batches: Iterable[Tensor], backbone: nn.Module) -> Network:
    """Return a copy of a network with the statistics of a batch, given in parts, on the features of a backbone.

    UserError for a network without statistics.
    """
    adapted = copy.deepcopy(network)
    adapted.backbone = backbone
    with torch.inference_mode():
        if isinstance(adapted.standardise, Standardise):
            x = np.concatenate([backbone(part).cpu().numpy() for part in batches])
            own = Standardise(fit_to_batch(x, adapted.standardise.standard))
            adapted.standardise = own.to(adapted.temperature.device)
        elif not adapt_norms(adapted.featurizer, batches):
            raise UserError(
                "Expected a model of standardised features, or a network with batch-norm layers, to adapt. Found "
                "neither. Drop --adapt."
            )
    return adapted.eval()


def adapt_norms(featurizer: nn.Module, batches: Iterable[Tensor]) -> bool:
    """Set the statistics of all batch-norm layers to those of a batch, given in parts; False if there are none."""
    norms = [module for module in featurizer.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    if not norms:
        return False
    featurizer.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all parts
        norm.training = True
    with torch.no_grad():
        for x in batches:
            featurizer(x)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
        norm.training = False
    return True


def measure_sizes(domains: Sequence[Measured]) -> tuple[BatchGain, ...]:
    """Measure the accuracy by batch size, with and without adaptation, mean over the domains that are large enough."""
    gains = []
    for size in SIZES:
        large = [each for each in domains if len(each[0]) > size]
        if large:
            gains.append(_compare(size, large, _draw_batches))
    return tuple(gains)


def measure_skewed(domains: Sequence[Measured]) -> BatchGain:
    """Measure the same on batches of which `SHARE` is of one class."""
    size = min(SKEWED, *(len(y) // 2 for y, _, _ in domains))
    return _compare(size, domains, _draw_skewed)


def find_least(gains: Sequence[BatchGain]) -> int | None:
    """Find the size from which on adaptation never lowers the accuracy; None if it lowers that of the largest.

    >>> find_least([BatchGain(4, 0.5, 0.6), BatchGain(8, 0.7, 0.6), BatchGain(16, 0.8, 0.6)])
    8
    """
    least = None
    for gain in reversed(gains):
        if gain.adapted < gain.plain:
            break
        least = gain.samples
    return least


def _compare(
    size: int,
    domains: Sequence[Measured],
    draw: Callable[[Indices, int, np.random.Generator], list[Indices]],
) -> BatchGain:
    adapted: list[float] = []
    plain: list[float] = []
    for number, (y, guess, known) in enumerate(domains):
        batches = draw(y, size, numpy_generator("batches", number, size))
        rows, ends = np.concatenate(batches), np.cumsum([len(batch) for batch in batches])[:-1]
        for guesses, means in ((guess(batches), adapted), (known[rows], plain)):
            means.append(fmean(float(hits.mean()) for hits in np.split(guesses == y[rows], ends)))
    return BatchGain(size, fmean(adapted), fmean(plain))


def _draw_batches(y: Indices, size: int, rng: np.random.Generator) -> list[Indices]:
    """Draw disjoint batches, as many as `SAMPLED` samples have, at least one."""
    rows = rng.permutation(len(y))[: max(size, min(len(y), SAMPLED) // size * size)]
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _draw_skewed(y: Indices, size: int, rng: np.random.Generator) -> list[Indices]:
    """Draw batches of which `SHARE` is of one class, or as many as it has."""
    batches = []
    for _ in range(REPEATS):
        own = rng.permutation(np.flatnonzero(y == rng.choice(np.unique(y))))[: round(SHARE * size)]
        others: npt.NDArray[np.int64] = rng.permutation(np.setdiff1d(np.arange(len(y)), own))
        fewer = np.flatnonzero(y[others] != y[own[0]])[: max(1, round(len(own) * (1 - SHARE) / SHARE))]
        batches.append(np.concatenate([own, others[fewer]]))
    return batches
