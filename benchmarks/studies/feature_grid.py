"""Print the tables of the study of λ₀ and α in docs/replication/features.md from its records.

python benchmarks/studies/feature_grid.py docs/records/pacs-features-grid.records.xz
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from fgmix.records.schema import RunRecord
from fgmix.records.store import unpack
from fgmix.results.intervals import MeanDifference, detectable_difference
from fgmix.results.selection import select
from fgmix.results.statistics import Pair, accuracies_by_row, group_domains, paired_differences
from fgmix.sweeps.presets import GRID

LAMBDAS, ALPHAS = GRID["lam"], GRID["alpha"]
BEST, LARGE, SMALL = 3.0, (0.1, 0.3), (0.01, 0.03)  # the paper's λ₀, its best α, and the others


def tables(records: Sequence[RunRecord]) -> list[str]:
    """Lines of two tables: mean accuracy by λ₀ and α, and the differences that the paper claims."""
    found = {(lam, alpha): _by_pair(records, lam, alpha) for lam in LAMBDAS for alpha in ALPHAS}
    head = [f"| λ₀ | {' | '.join(f'α = {alpha:g}' for alpha in ALPHAS)} |", f"| ---: |{' ---: |' * len(ALPHAS)}"]
    rows = [
        f"| {lam:g} | {' | '.join(f'{fmean(found[lam, alpha].values()):.2f}' for alpha in ALPHAS)} |" for lam in LAMBDAS
    ]
    lines = [*head, *rows, "", "| difference | points | new domain | detectable |", "| --- | ---: | ---: | ---: |"]
    by_lam = {lam: _average([found[lam, alpha] for alpha in ALPHAS]) for lam in LAMBDAS}
    lines += [
        f"| λ₀ = {BEST:g} − λ₀ = {lam:g} | {_written(by_lam[BEST], by_lam[lam])} |" for lam in LAMBDAS if lam != BEST
    ]
    large, small = (_average([found[lam, a] for lam in LAMBDAS for a in group]) for group in (LARGE, SMALL))
    return [*lines, f"| α = 0.1 and 0.3 − α = 0.01 and 0.03 | {_written(large, small)} |"]


def _by_pair(records: Sequence[RunRecord], lam: float, alpha: float) -> dict[Pair, float]:
    """Accuracy in percent where validation selects, by trial and test domain."""
    own = [r for r in records if (r.spec.settings["lam"], r.spec.settings["alpha"]) == (lam, alpha)]
    (by_pair,) = accuracies_by_row(select(own, "training_domain"), None).values()
    return by_pair


def _average(settings: Sequence[dict[Pair, float]]) -> dict[Pair, float]:
    return {pair: fmean(each[pair] for each in settings) for pair in settings[0]}


def _written(x: dict[Pair, float], y: dict[Pair, float]) -> str:
    """The cells of a difference: with its interval for these test domains, for a new one, and what is detectable."""
    d = paired_differences(x, y)
    mean = MeanDifference(group_domains(d))
    own, new = mean.interval(), mean.interval_for_new()
    assert own is not None
    assert new is not None
    detectable = detectable_difference(stdev(d.values()), len(d))
    return "{:+.2f} [{:+.2f}, {:+.2f}] | [{:+.2f}, {:+.2f}] | {:.2f}".format(mean.mean, *own, *new, detectable)


if __name__ == "__main__":
    print("\n".join(tables(unpack(Path(sys.argv[1])))))
