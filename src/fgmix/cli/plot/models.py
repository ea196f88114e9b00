"""Figures of trained models, from the weights and the dataset of runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgmix.cli.options import Checked, Flags, declare, flags, forbid
from fgmix.cli.plot import FIGURES, Out, save

if TYPE_CHECKING:
    from fgmix.training.open_run import OpenedRun

Run = Annotated[Path, typer.Argument(metavar="RUN", help="folder of a finished run")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUNS", help="folders of finished runs")]
Samples = Annotated[int, typer.Option(help="samples of each domain, at most", min=2, max=100_000, hidden=True)]
LARGEST_SEED = 2**32 - 1  # of scikit-learn


@dataclass(frozen=True)
class Opening(Checked):
    """How finished runs are opened, which of their weights are analysed, and the seed of the random draws."""

    dataset: str = declare("", help="path of the dataset, if it has moved", group="Data")
    data_root: str = declare("", help="folder of the datasets, if it moved", group="Data", envvar="FGMIX_DATA")
    device: str = declare("auto", help="auto, cpu, cuda, cuda:1 or mps", group="Data")
    which: Literal["last", "best"] = declare(
        "last", help="weights after the last or at the selected step", group="Weights"
    )
    model: Literal["raw", "swa", "swad"] = declare("raw", help="raw or averaged weights", group="Weights")
    seed: int = declare(0, help="seed of every random draw", group="Weights", ge=0, le=LARGEST_SEED)

    @property
    def weights(self) -> dict[str, Any]:
        """The arguments of all figures of one model."""
        return {"which": self.which, "model": self.model, "seed": self.seed}

    def open(self, folders: list[Path]) -> list[OpenedRun]:
        """Open runs; their common dataset is loaded once."""
        from fgmix.training.open_run import open_run

        dataset, root = self.dataset or None, self.data_root or None
        first = open_run(folders[0], dataset=dataset, data_root=root, device=self.device)
        return [first, *(open_run(folder, dataset=first.dataset, device=self.device) for folder in folders[1:])]


OPENING = Flags(Opening, everyday=("device", "model"))


@flags(opening=OPENING)
def tsne(
    context: typer.Context,
    opening: dict[str, Any],
    runs: Runs,
    beside: Annotated[list[Path] | None, typer.Option(help="runs whose codes to show beside these runs'")] = None,
    samples: Samples = 150,
    mixed: Annotated[int, typer.Option(help="mixed codes of each kind", min=1, max=100_000, hidden=True)] = 300,
    out: Out = FIGURES,
) -> None:
    """Plot latent codes: original, random interpolation, FGMix.

    With --beside, the codes of several methods are plotted instead.

    Several runs give one row per test domain.

    Example: fgmix plot tsne runs/RUN --out figures
    """
    from fgmix.figures.compute.embeddings import embed_codes, embed_mixing

    how = Opening(**opening)
    opened = how.open([*(beside or []), *runs])
    if beside:
        forbid(context, ("mixed",), "with --beside")
        _save_rows("tsne-features", opened, out, lambda row: embed_codes(row, samples=samples, **how.weights))
    else:
        rows = [[run] for run in opened]
        _save_rows(
            "tsne", opened, out, lambda row: embed_mixing(*row, mixed=mixed, samples=samples, **how.weights), rows
        )


@flags(opening=OPENING)
def flatness(
    opening: dict[str, Any],
    runs: Runs,
    scope: Annotated[
        str, typer.Option(help="what is moved: classifier, or network (filter-normalised)")
    ] = "classifier",
    directions: Annotated[int, typer.Option(help="random directions", min=1, max=100_000)] = 50,
    samples: Samples = 300,
    out: Out = FIGURES,
) -> None:
    """Plot how flat the minima of runs are.

    That is the squared loss difference at distance γ = 1 … 10 from the minimum.

    Runs on several test domains give one row per domain.

    Example: fgmix plot flatness runs/RUN1 runs/RUN2 --out figures
    """
    from fgmix.figures.compute.flatness import compute_flatness

    how = Opening(**opening)
    options: dict[str, Any] = {"scope": scope, "directions": directions, "samples": samples, **how.weights}
    _save_rows(f"flatness-{scope}", how.open(runs), out, lambda row: compute_flatness(row, **options))


@flags(opening=Flags(Opening, omit=("which", "model"), everyday=("device",)))
def surface(
    opening: dict[str, Any],
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS", help="a run of ERM and one of FGMix for each test domain")
    ],
    resolution: Annotated[int, typer.Option(help="points on each side of the grid", min=2, max=1000)] = 21,
    samples: Samples = 150,
    out: Out = FIGURES,
) -> None:
    """Plot losses and accuracy on the plane through three models.

    The paths of both runs are drawn on it.

    Runs on several test domains give one row per domain.

    Example: fgmix plot surface runs/ERM runs/FGMIX --out figures
    """
    from fgmix.figures.compute import group_by_domain
    from fgmix.figures.compute.surface import compute_surface

    how = Opening(**opening)
    options: dict[str, Any] = {"resolution": resolution, "samples": samples, "seed": how.seed}
    opened = how.open(runs)
    rows = group_by_domain(opened, pairs=True)
    _save_rows("surface", opened, out, lambda pair: compute_surface(*pair, **options), rows)


@flags(opening=OPENING)
def scores(
    opening: dict[str, Any],
    run: Run,
    pairs: Annotated[int, typer.Option(help="pairs of samples for each pair of domains", min=1, max=100_000)] = 200,
    any_class: Annotated[bool, typer.Option("--any-class", help="pairs need not share their class")] = False,
    out: Out = FIGURES,
) -> None:
    """Plot the learned compatibility A_ω against the cosine.

    One panel for each pair of source domains.

    Example: fgmix plot scores runs/RUN --out figures
    """
    from fgmix.figures.compute.scores import compute_scores

    how = Opening(**opening)
    options = {"pairs": pairs, "same_class": not any_class, **how.weights}
    _save_rows("scores", how.open([run]), out, lambda row: compute_scores(*row, **options))


@flags(opening=OPENING)
def shift(
    opening: dict[str, Any],
    run: Run,
    permutations: Annotated[
        int, typer.Option(help="permutations behind a p value", min=1, max=100_000, hidden=True)
    ] = 500,
    samples: Samples = 200,
    out: Out = FIGURES,
) -> None:
    """Plot how far apart the domains are.

    Measured by a domain classifier and a kernel two-sample test on latent codes.

    Example: fgmix plot shift runs/RUN --out figures
    """
    from fgmix.figures.compute.shift import compute_shift

    how = Opening(**opening)
    options = {"permutations": permutations, "samples": samples, **how.weights}
    _save_rows("shift", how.open([run]), out, lambda row: compute_shift(*row, **options))


def _save_rows(
    kind: str,
    runs: list[OpenedRun],
    out: Path,
    compute: Callable[[list[OpenedRun]], Any],
    rows: list[list[OpenedRun]] | None = None,
) -> None:
    """Compute and save a figure of several rows, by default one for each test domain."""
    from fgmix.figures.compute import group_by_domain, name_figure

    name = name_figure(kind, runs)
    save([compute(row) for row in rows or group_by_domain(runs)], out, name)
