"""Figures of trained models, from the weights and the dataset of runs: `fgmix.plot_models`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from fgmix.errors import UserError, unknown
from fgmix.figures.arrays import make_slug
from fgmix.figures.compute.embeddings import embed_codes, embed_mixing
from fgmix.figures.compute.flatness import compute_flatness
from fgmix.figures.compute.scores import compute_scores
from fgmix.figures.compute.surface import compute_surface
from fgmix.figures.plot import Plot
from fgmix.records.files import check_path
from fgmix.records.rows import record_row
from fgmix.records.schema import RunRecord
from fgmix.training.open_run import OpenedRun, open_run

Place = RunRecord | str | PathLike[str]  # a run that keeps its weights


class Computed(NamedTuple):
    """How a kind of figure is computed."""

    compute: Callable[..., Any]  # a row of it from one run or several
    split: Callable[[Sequence[OpenedRun]], list[list[OpenedRun]]]  # the runs of each row
    together: bool = False  # whether the runs of a row are one argument


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


def _split_all(runs: Sequence[OpenedRun]) -> list[list[OpenedRun]]:
    return [[run] for run in runs]


KINDS = {
    "tsne": Computed(embed_mixing, _split_all),
    "tsne-features": Computed(embed_codes, group_by_domain, together=True),
    "flatness": Computed(compute_flatness, group_by_domain, together=True),
    "surface": Computed(compute_surface, lambda runs: group_by_domain(runs, pairs=True)),
    "scores": Computed(compute_scores, _split_all),
}


def plot_models(
    kind: str,
    runs: Place | Iterable[Place],
    *,
    dataset: str | None = None,
    data_root: str | None = None,
    device: str = "auto",
    **options: Any,
) -> Plot:
    """Plot what the weights of runs show, one row per test domain.

    Args:
        kind: "tsne" (codes of runs of FGMix, original and mixed), "tsne-features" (codes of several methods),
            "flatness", "surface" (a run of ERM and one of FGMix for each test domain), or "scores".
        runs: records that were read from folders, or the folders; the runs must keep their weights.
        dataset: path of the dataset, if it has moved.
        data_root: folder of the datasets, if it has moved.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        options: of the kind, named as the options of `fgmix plot KIND`: `samples` of each domain at most, `seed`; but
            for surface, `which` ("last" or "best") and `model` ("raw", "swa" or "swad"); `mixed`, `scope`,
            `directions`, `resolution`, `pairs`, `same_class`.
    """
    if kind not in KINDS:
        raise unknown("kind of figure from weights", kind, KINDS)
    is_one = isinstance(runs, RunRecord | str | PathLike) or not isinstance(runs, Iterable)
    several: Any = [runs] if is_one else runs
    folders = [_find_folder(run) for run in several]
    if not folders:
        raise UserError("Expected at least one finished run. Found none. Name its folder.")
    first = open_run(folders[0], dataset=dataset, data_root=data_root, device=device)
    opened = [first, *(open_run(folder, dataset=first.dataset, device=device) for folder in folders[1:])]
    compute, split, together = KINDS[kind]
    rows = [compute(row, **options) if together else compute(*row, **options) for row in split(opened)]
    return Plot(
        name_figure(f"flatness-{options.get('scope', 'classifier')}" if kind == "flatness" else kind, opened), rows
    )


def _find_folder(run: Place) -> Path:
    if not isinstance(run, RunRecord):
        return check_path("runs", run)
    if run.folder is None:
        raise UserError(f"Expected a run with a folder, which keeps its weights. Found {run.spec.name} without one.")
    return run.folder
