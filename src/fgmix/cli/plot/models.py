"""Figures of trained models, from the weights and the dataset of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fgmix.cli.options import Checked, Flags, declare, flags, forbid
from fgmix.cli.plot import SAVING, save
from fgmix.errors import UserError

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


OPENING = Flags(Opening, everyday=("device", "model"))


@flags(saving=SAVING, opening=OPENING)
def tsne(
    context: typer.Context,
    opening: dict[str, Any],
    saving: dict[str, Any],
    runs: Runs,
    beside: Annotated[list[Path] | None, typer.Option(help="runs whose codes to show beside these runs'")] = None,
    samples: Samples = 150,
    mixed: Annotated[int, typer.Option(help="mixed codes of each kind", min=1, max=100_000, hidden=True)] = 300,
    shift: Annotated[bool, typer.Option("--shift", help="how far apart the domains are, instead of the codes")] = False,
    permutations: Annotated[
        int, typer.Option(help="with --shift: permutations behind a p value", min=1, max=100_000, hidden=True)
    ] = 500,
) -> None:
    """Plot latent codes: original, random interpolation, FGMix.

    With --beside, the codes of several methods are plotted instead. With --shift, the distances between the domains of
    one run, by a domain classifier and a kernel two-sample test on the codes.

    Several runs give one row per test domain.

    Example: fgmix plot tsne runs/RUN --out figures
    """
    forbid(context, ("beside", "mixed") if shift else ("permutations",), f"with{'' if shift else 'out'} --shift")
    if shift:
        if len(runs) > 1:
            raise UserError(f"--shift measures one run. Found {len(runs)}. Name one.")
        _save("shift", runs, saving, opening, permutations=permutations, samples=samples)
    elif beside:
        forbid(context, ("mixed",), "with --beside")
        _save("tsne-features", [*beside, *runs], saving, opening, samples=samples)
    else:
        _save("tsne", runs, saving, opening, samples=samples, mixed=mixed)


@flags(saving=SAVING, opening=OPENING)
def flatness(
    opening: dict[str, Any],
    saving: dict[str, Any],
    runs: Runs,
    scope: Annotated[
        str, typer.Option(help="what is moved: classifier, or network (filter-normalised)", hidden=True)
    ] = "classifier",
    directions: Annotated[int, typer.Option(help="random directions", min=1, max=100_000, hidden=True)] = 50,
    samples: Samples = 300,
) -> None:
    """Plot how flat the minima of runs are.

    That is the squared loss difference at distance γ = 1 … 10 from the minimum.

    Runs on several test domains give one row per domain.

    Example: fgmix plot flatness runs/RUN1 runs/RUN2 --out figures
    """
    _save("flatness", runs, saving, opening, scope=scope, directions=directions, samples=samples)


@flags(saving=SAVING, opening=Flags(Opening, omit=("which", "model"), everyday=("device",)))
def surface(
    opening: dict[str, Any],
    saving: dict[str, Any],
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS", help="a run of ERM and one of FGMix for each test domain")
    ],
    resolution: Annotated[int, typer.Option(help="points on each side of the grid", min=2, max=1000, hidden=True)] = 21,
    samples: Samples = 150,
) -> None:
    """Plot losses and accuracy on the plane through three models.

    The paths of both runs are drawn on it.

    Runs on several test domains give one row per domain.

    Example: fgmix plot surface runs/ERM runs/FGMIX --out figures
    """
    _save("surface", runs, saving, opening, resolution=resolution, samples=samples)


@flags(saving=SAVING, opening=OPENING)
def scores(
    opening: dict[str, Any],
    saving: dict[str, Any],
    run: Run,
    pairs: Annotated[
        int, typer.Option(help="pairs of samples for each pair of domains", min=1, max=100_000, hidden=True)
    ] = 200,
    any_class: Annotated[
        bool, typer.Option("--any-class", help="pairs need not share their class", hidden=True)
    ] = False,
) -> None:
    """Plot the learned compatibility A_ω against the cosine.

    One panel for each pair of source domains.

    Example: fgmix plot scores runs/RUN --out figures
    """
    _save("scores", [run], saving, opening, pairs=pairs, same_class=not any_class)


def _save(kind: str, runs: list[Path], saving: dict[str, Any], opening: dict[str, Any], **options: Any) -> None:
    """Plot and save a figure of runs; `opening` are those fields of `Opening` that the kind has."""
    from fgmix.figures.compute.plot import plot_models

    how = vars(Opening(**opening))
    places = {"dataset": how["dataset"] or None, "data_root": how["data_root"] or None, "device": how["device"]}
    weights = {name: how[name] for name in opening.keys() & {"which", "model", "seed"}}
    save(plot_models(kind, runs, **places, **weights, **options), saving)
