"""Shift between domains: accuracy of a domain classifier, and maximum mean discrepancy of their codes.

    accuracy   of a logistic regression that predicts the domain of a code, by 5-fold cross-validation; both domains
               with the same number of codes, so that chance is 0.5
    MMD²       = sᵀ K s,  s_i = 1/n for codes of one domain and −1/m for those of the other (biased: zero for equal
               samples); K sums Gaussian kernels with bandwidths around the median distance
    p          the share of permutations of s, the identity included, with an MMD² at least as large

Ben-David et al., "A theory of learning from different domains", 2010; Gretton et al., "A Kernel Two-Sample Test", 2012.
Domains with different class frequencies also differ for that reason.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch

from fgmix.errors import UserError
from fgmix.figures.arrays import Floats
from fgmix.figures.shift import Shift
from fgmix.functional.kernels import rbf_kernel
from fgmix.progress import track
from fgmix.records.evaluations import Model
from fgmix.records.schema import Which
from fgmix.seeding import numpy_generator
from fgmix.training.open_run import OpenedRun

FOLDS = 5
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the kernels' γ, around 1 / median squared distance


def compute_shift(
    run: OpenedRun,
    *,
    which: Which = "last",
    model: Model = "raw",
    samples: int = 200,
    permutations: int = 500,
    seed: int = 0,
    progress: bool = True,
) -> Shift:
    """Compare all pairs of the run's domains, on codes of the holdout parts: the training parts were fitted.

    Args:
        run: a finished run.
        permutations: for the p-values, the smallest of which is 1 / (1 + permutations).
    """
    algorithm = run.algorithm(which, model)
    names = run.prepared.dataset.domain_names
    codes = {
        name: run.sample([name], "holdout", samples, seed).codes(algorithm).cpu().numpy().astype(np.float64)
        for name in names
    }
    pairs = list(combinations(range(len(names)), 2))
    rows = []
    for first, second in track(pairs, "shift", show=progress):
        x, y = codes[names[first]], codes[names[second]]
        rows.append([classify_domains([x, y], seed), *compare_samples(x, y, permutations, seed)])
    accuracy, distance, p = (_fill_symmetric(len(names), pairs, *of) for of in zip(np.array(rows).T, (0.5, 0.0, 1.0)))
    return Shift(
        title=f"{run.prepared.dataset.name}, codes of {run.label(model)}",
        domains=np.array(names),
        is_test=np.isin(names, run.test_domains),
        accuracy=accuracy,
        mmd=distance,
        p=p,
        overall=classify_domains(list(codes.values()), seed),
    )


def _fill_symmetric(k: int, pairs: list[tuple[int, int]], values: Floats, diagonal: float) -> Floats:
    """Fill a symmetric (k, k) matrix with the values of the pairs, with `diagonal` on its diagonal."""
    matrix = np.full((k, k), diagonal)
    for (i, j), value in zip(pairs, values):
        matrix[i, j] = matrix[j, i] = value
    return matrix


def classify_domains(samples: list[Floats], seed: int = 0) -> float:
    """Compute the cross-validated accuracy of predicting the set of a code, with equally many codes of each set."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    size = min(map(len, samples))
    if size < FOLDS:
        raise UserError(
            f"Expected at least {FOLDS} held-out samples of each domain. Found {size}. Increase --samples, or train "
            "with a larger --holdout-fraction."
        )
    rng = numpy_generator("balance", seed, size)
    x = np.concatenate([sample[rng.permutation(len(sample))[:size]] for sample in samples])
    y = np.repeat(np.arange(len(samples)), size)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
    return float(cross_val_score(model, x, y, cv=folds).mean())


def compare_samples(x: Floats, y: Floats, permutations: int = 500, seed: int = 0) -> tuple[float, float]:
    """Compute MMD² of two sets of codes and its permutation p-value.

    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> statistic, p = compare_samples(x, x, permutations=99)
    >>> round(statistic, 12), p
    (0.0, 1.0)
    """
    pooled = torch.from_numpy(np.concatenate([x, y]))
    squared = torch.cdist(pooled, pooled).square()
    median = float(squared[~torch.eye(len(pooled), dtype=torch.bool)].median())
    if median == 0:
        return 0.0, 1.0  # every code is the same
    K = rbf_kernel(pooled, pooled, [scale / median for scale in SCALES]).numpy()
    s = np.repeat([1 / len(x), -1 / len(y)], [len(x), len(y)])
    rng = numpy_generator("permutations", seed, len(s))
    permuted = np.stack([s, *(rng.permutation(s) for _ in range(permutations))])
    statistics = np.einsum("bi,bi->b", permuted @ K, permuted)
    at_least = int((statistics >= statistics[0] - 1e-12).sum())  # the observed one is among them
    return float(statistics[0]), at_least / (1 + permutations)
