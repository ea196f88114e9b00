"""Print what the figures of the PACS study in docs/replication/pacs.md claim, from their arrays.

    python benchmarks/studies/pacs_figures.py docs/records/pacs-figures

The arrays are those that `fgmix plot flatness`, `scores` and `surface` write beside their figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fgmix.figures.flatness import Flatness, divide_areas
from fgmix.figures.kinds import load_arrays, split_rows
from fgmix.figures.scatter import Scores, bound_rho
from fgmix.figures.surface import Surface, is_at_edge, measure_ends
from fgmix.results.intervals import MeanDifference

MEAN = "mean [95 % interval]"


def tables(folder: Path) -> list[str]:
    """Lines of a table for each kind of figure; the names of files end in the trial."""
    found = {path: load_arrays(path) for path in sorted(folder.glob("*.npz"))}
    parts = [(path.stem.rsplit("-", 1)[1], part) for path, arrays in found.items() for part in split_rows(arrays)]
    return [*flatness(parts), "", *scores(parts), "", *surfaces(parts)]


def flatness(parts: Sequence[tuple[str, object]]) -> list[str]:
    """The ratios of areas to ERM's of each pair of trial and test domain, and their geometric means over the pairs."""
    lines = ["| area ÷ ERM's: test domain | trial | FGMix-A | FGMix |", "| --- | ---: | ---: | ---: |"]
    logs: list[list[tuple[str, float]]] = []
    for trial, part in parts:
        if isinstance(part, Flatness):
            ratios = {ratio.method: ratio for ratio in divide_areas(part.methods, part.gammas, part.gaps)}
            both = [ratios["FGMix-A"], ratios["FGMix"]]
            cells = [f"{r.value:.2f} [{r.low:.2f}, {r.high:.2f}] {r.verdict}" for r in both]
            lines.append(f"| {part.test_domains} | {trial} | {' | '.join(cells)} |")
            logs.append([(str(part.test_domains), float(np.log(r.value))) for r in both])
    means = [np.exp(average_domains(d)) for d in zip(*logs)]
    return [*lines, f"| {MEAN} | | {' | '.join('{:.2f} [{:.2f}, {:.2f}]'.format(*mean) for mean in means)} |"]


def scores(parts: Sequence[tuple[str, object]]) -> list[str]:
    """Spearman's ρ of A_ω and the cosine in the six ordered pairs of sources of a run, and the mean over runs."""
    head = "| ρ of A_ω and cosine: test domain | trial | lowest | mean | highest | above 0 | below 0 |"
    lines, means = [head, "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"], []
    total = np.zeros(2, int)
    for trial, part in parts:
        if isinstance(part, Scores):
            intervals = [bound_rho(float(rho), part.score.shape[1]) for rho in part.rho]
            signs = np.array([sum(low > 0 for low, _ in intervals), sum(high < 0 for _, high in intervals)])
            cells = [*(f"{each:+.2f}" for each in (part.rho.min(), part.rho.mean(), part.rho.max())), *map(str, signs)]
            lines.append(f"| {part.test_domains} | {trial} | {' | '.join(cells)} |")
            means.append((str(part.test_domains), float(part.rho.mean())))
            total += signs
    mean, most = "{:+.2f} [{:+.2f}, {:+.2f}]".format(*average_domains(means)), 6 * len(means)
    return [*lines, f"| {MEAN} | | | {mean} | | {total[0]} of {most} | {total[1]} of {most} |"]


def average_domains(values: Sequence[tuple[str, float]]) -> tuple[float, ...]:
    """The mean over test domains of the domains' means over trials, and its t interval for these domains."""
    names = dict.fromkeys(name for name, _ in values)
    mean = MeanDifference({name: np.array([value for own, value in values if own == name]) for name in names})
    return mean.mean, *(mean.interval() or ())


def surfaces(parts: Sequence[tuple[str, object]]) -> list[str]:
    """By how much FGMix + SWA ends nearer to the highest test accuracy on the plane than ERM + SWA."""
    lines = [
        "| test domain | trial | ERM's distance − FGMix's | the grid resolves | result |",
        "| --- |" + " ---: |" * 4,
    ]
    for trial, part in parts:
        if isinstance(part, Surface):
            ends = measure_ends(part)
            assert ends.interval is not None
            low, high = ends.interval
            result = "highest at the edge: not measured" if is_at_edge(part) else "a tie" if ends.is_tie else "decided"
            cells = [f"{ends.closer:+.1f} [{low:+.1f}, {high:+.1f}]", f"{ends.resolution:.1f}", result]
            lines.append(f"| {part.test_domains} | {trial} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(tables(Path(sys.argv[1]))))
