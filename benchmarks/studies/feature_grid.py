"""Print the tables of the study of λ₀ and α in docs/replication.md from its records.

python benchmarks/studies/feature_grid.py docs/records/pacs-features-grid.records.xz
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fgmix.records.metrics import Floats
from fgmix.records.schema import RunRecord
from fgmix.records.store import unpack
from fgmix.results.selection import select
from fgmix.results.statistics import accuracies_by_row, bootstrap_interval
from fgmix.sweeps.presets import GRID

LAMBDAS, ALPHAS = GRID["lam"], GRID["alpha"]
BEST, LARGE, SMALL = 3.0, (0.1, 0.3), (0.01, 0.03)  # the paper's λ₀, its best α, and the others


def tables(records: Sequence[RunRecord]) -> list[str]:
    """Lines of two tables: mean accuracy by λ₀ and α, and the differences that the paper claims."""
    found = accuracies(records)  # (λ₀, α, pairs)
    head = [f"| λ₀ | {' | '.join(f'α = {alpha:g}' for alpha in ALPHAS)} |", f"| ---: |{' ---: |' * len(ALPHAS)}"]
    rows = [f"| {lam:g} | {' | '.join(f'{each.mean():.2f}' for each in row)} |" for lam, row in zip(LAMBDAS, found)]
    lines = [*head, *rows, "", "| difference | points |", "| --- | ---: |"]
    by_lam, by_alpha = found.mean(axis=1), found.mean(axis=0)
    best = LAMBDAS.index(BEST)
    for i, lam in enumerate(LAMBDAS):
        if i != best:
            lines.append(f"| λ₀ = {BEST:g} − λ₀ = {lam:g} | {_written(by_lam[best] - by_lam[i])} |")
    large, small = (by_alpha[[ALPHAS.index(alpha) for alpha in group]].mean(axis=0) for group in (LARGE, SMALL))
    return [*lines, f"| α = 0.1 and 0.3 − α = 0.01 and 0.03 | {_written(large - small)} |"]


def accuracies(records: Sequence[RunRecord]) -> Floats:
    """Accuracy in percent where validation selects (λ₀, α, pairs of trial and test domain)."""
    return np.array([[_by_pair(records, lam, alpha) for alpha in ALPHAS] for lam in LAMBDAS])


def _by_pair(records: Sequence[RunRecord], lam: float, alpha: float) -> list[float]:
    own = [r for r in records if (r.spec.settings["lam"], r.spec.settings["alpha"]) == (lam, alpha)]
    (by_pair,) = accuracies_by_row(select(own, "training_domain")).values()
    return [by_pair[pair] for pair in sorted(by_pair)]


def _written(d: Floats) -> str:
    return "{:+.2f} [{:+.2f}, {:+.2f}]".format(d.mean(), *bootstrap_interval(d))


if __name__ == "__main__":
    print("\n".join(tables(unpack(Path(sys.argv[1])))))
