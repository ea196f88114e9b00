"""Print the GPU-hours of the paper's tables at the paper's own time per step, as in docs/guides/reproduce.md.

    python benchmarks/studies/gpu_hours.py

Training alone: steps of a run × the paper's milliseconds per step (three source domains, its GPU is not named), scaled
by the number of source domains; variants A to F count as FGMix. Evaluations, and steps that runs share, are left out.
"""

from __future__ import annotations

from fgmix.records.benchmarks import BENCHMARKS
from fgmix.records.rows import Row
from fgmix.results.published import step_milliseconds
from fgmix.sweeps.design import Sweep
from fgmix.sweeps.presets import PRESETS

TIMED_SOURCES = 3


def table() -> list[str]:
    """A line for each preset that trains: its runs, steps and hours."""
    lines = ["| preset | runs | steps | GPU-hours |", "| --- | ---: | ---: | ---: |"]
    for name, scales in PRESETS.items():
        if name.startswith("paper-") and (sweeps := scales["paper"].sweeps):  # whose times are published
            runs, steps, hours = (sum(parts) for parts in zip(*(cost(sweep) for sweep in sweeps)))
            lines.append(f"| `{name}` | {runs:,} | {steps / 1e6:,.0f} million | {hours:,.0f} |")
    return lines


def cost(sweep: Sweep) -> tuple[int, int, float]:
    """Runs, steps and hours of a sweep."""
    runs, hours = 0, 0.0
    for dataset in sweep.datasets:
        domains = len(BENCHMARKS[dataset].domains)
        for algorithm in sweep.algorithms:
            count = domains * sweep.trials * sweep.hparams * len(sweep.list_points())
            runs += count
            hours += count * sweep.common["steps"] * seconds_per_step(algorithm) * (domains - 1) / TIMED_SOURCES / 3600
    return runs, runs * sweep.common["steps"], hours


def seconds_per_step(algorithm: str) -> float:
    """The paper's time, with three source domains."""
    return step_milliseconds()[Row("fgmix" if algorithm.startswith("fgmix") else algorithm)] / 1000


if __name__ == "__main__":
    print("\n".join(table()))
