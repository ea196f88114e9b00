"""Figures of trained models, from the weights and the dataset of runs: `fgmix.plot_models`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from fgmix.errors import UserError, unknown
from fgmix.figures.compute import group_by_domain, name_figure
from fgmix.figures.compute.embeddings import embed_codes, embed_mixing
from fgmix.figures.compute.flatness import compute_flatness
from fgmix.figures.compute.scores import compute_scores
from fgmix.figures.compute.shift import compute_shift
from fgmix.figures.compute.surface import compute_surface
from fgmix.figures.plot import Plot
from fgmix.records.files import check_path
from fgmix.records.schema import RunRecord
from fgmix.training.open_run import OpenedRun, open_run

Place = RunRecord | str | PathLike[str]  # a run that keeps its weights


class Computed(NamedTuple):
    """How a kind of figure is computed."""

    compute: Callable[..., Any]  # a row of it from one run or several
    split: Callable[[Sequence[OpenedRun]], list[list[OpenedRun]]]  # the runs of each row
    together: bool = False  # whether the runs of a row are one argument


def _split_all(runs: Sequence[OpenedRun]) -> list[list[OpenedRun]]:
    return [[run] for run in runs]


KINDS = {
    "tsne": Computed(embed_mixing, _split_all),
    "tsne-features": Computed(embed_codes, group_by_domain, together=True),
    "flatness": Computed(compute_flatness, group_by_domain, together=True),
    "surface": Computed(compute_surface, lambda runs: group_by_domain(runs, pairs=True)),
    "scores": Computed(compute_scores, _split_all),
    "shift": Computed(compute_shift, _split_all),
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
            "flatness", "surface" (a run of ERM and one of FGMix for each test domain), "scores" or "shift".
        runs: records that were read from folders, or the folders; the runs must keep their weights.
        dataset: path of the dataset, if it has moved.
        data_root: folder of the datasets, if it has moved.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        options: of the kind, named as the options of `fgmix plot KIND`: `samples` of each domain at most, `seed`; but
            for surface, `which` ("last" or "best") and `model` ("raw", "swa" or "swad"); `mixed`, `scope`,
            `directions`, `resolution`, `pairs`, `same_class`, `permutations`.
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
