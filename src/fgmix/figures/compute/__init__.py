"""The arrays of figures that need the weights of a run, or torch. One kind per file.

Most functions share these arguments: `which` are the weights after the last step, or the best; `model` is raw or
averaged; `samples` is the number of samples of each domain, at most; `seed` is that of every random draw; `progress`
shows a bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fgmix.errors import UserError
from fgmix.figures.arrays import make_slug
from fgmix.records.rows import record_row

if TYPE_CHECKING:
    from fgmix.training.open_run import OpenedRun


def group_by_domain(runs: Sequence[OpenedRun], pairs: bool = False) -> list[list[OpenedRun]]:
    """Group runs by test domain, the rows of a figure, each with the same methods: two of them for `pairs`."""
    rows: dict[tuple[str, ...], list[OpenedRun]] = {}
    for run in runs:
        rows.setdefault(run.test_domains, []).append(run)
    methods = [[record_row(run.record).key for run in row] for row in rows.values()]
    if any(sorted(each) != sorted(methods[0]) for each in methods):
        listing = "; ".join(f"{' and '.join(test)}: {', '.join(row)}" for test, row in zip(rows, methods))
        raise UserError(f"Expected the same methods for every test domain. Found {listing}. Name the missing runs.")
    if pairs and (other := next((row for row in rows.values() if len(row) != 2), None)):
        raise UserError(
            f"Expected two runs for each test domain, for example of ERM and of FGMix. Found {len(other)} for "
            f"{' and '.join(other[0].test_domains)}. Name one of each."
        )
    return list(rows.values())


def name_figure(kind: str, runs: Sequence[OpenedRun]) -> str:
    """Name a figure: that of a single run, or dataset, test domains, methods and trials of several."""
    if len(runs) == 1:
        return f"{kind}-{runs[0].folder.resolve().name}"
    domains = dict.fromkeys(name for run in runs for name in run.test_domains)
    methods = dict.fromkeys(record_row(run.record).key for run in runs)
    trials = dict.fromkeys(str(run.record.spec.trial_seed) for run in runs)
    words = (runs[0].prepared.dataset.name, _shorten(domains), _shorten(methods), f"trial {_shorten(trials)}")
    return "-".join([kind, *map(make_slug, words)])


def _shorten(names: Iterable[str]) -> str:
    """Join all names, or of more than six the first, the last and their number, to keep file names short."""
    every = list(names)
    return " ".join(every) if len(every) <= 6 else f"{every[0]} to {every[-1]}, {len(every)}"
