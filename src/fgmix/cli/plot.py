"""fgmix plot: figures of runs and sweeps, each as PNG, PDF, SVG and the arrays behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgmix.cli.options import AcceptCode, Checked, Flags, check_choice, declare, flags, forbid, split_names
from fgmix.cli.report import Baseline, Selection, read_folders
from fgmix.terminal import print_lines, print_notes

if TYPE_CHECKING:
    from fgmix.figures.plot import Plot

Run = Annotated[Path, typer.Argument(metavar="RUN", help="folder of a finished run")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUNS", help="folders of finished runs")]
Samples = Annotated[int, typer.Option(help="samples of each domain, at most", min=2, max=100_000, hidden=True)]
LARGEST_SEED = 2**32 - 1  # of scikit-learn
FromDomainbed = Annotated[
    list[Path] | None, typer.Option(help="folder of a DomainBed sweep; repeat for several", hidden=True)
]


@dataclass(frozen=True)
class Saving(Checked):
    """Where a figure is saved, and how it is drawn."""

    out: str = declare("figures", help="folder for the figure")
    format: str = declare("", help="png, pdf, svg or npz (the arrays), comma-separated; all by default")
    width: float | None = declare(None, help="inches; a column of a paper has 3.5, a page 7.16", gt=0, metavar="INCHES")
    font: str = declare("", help="family of fonts, such as serif")
    title: bool = declare(True, help="draw the title and the caption, which a paper writes itself")


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


SAVING = Flags(Saving, everyday=("out",))
OPENING = Flags(Opening, everyday=("device", "model"))


def save(plot: Plot, saving: Mapping[str, Any], name: str = "", *, beside: Path | None = None) -> None:
    """Draw and save a figure; print its files and its claims.

    It is saved in `beside` if the user has given no folder.
    """
    how = Saving(**saving)
    stem = (beside if beside and "out" not in saving else Path(how.out)) / (name or plot.name)
    replaced = plot.replaces_another(stem)
    files = plot.save(stem, split_names([how.format]), width=how.width, font=how.font, titled=how.title)
    if replaced:
        print_notes(f"replaced {stem}, which showed something else")
    print_lines([*map(str, files), *plot.claims])


# What records show


@flags(saving=SAVING)
def weights(saving: dict[str, Any]) -> None:
    """Plot the effect of λ on ã, and the paper's toy example.

    Example: fgmix plot weights --out figures
    """
    from fgmix.figures.compute.weights import compute_weights
    from fgmix.figures.plot import Plot

    save(Plot("weights", compute_weights()), saving)


@flags(saving=SAVING)
def cd(
    saving: dict[str, Any],
    folders: Annotated[list[Path] | None, typer.Argument(metavar="FOLDERS", help="folders of sweeps")] = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="one dataset; all by default")] = None,
    selection: Selection = "training_domain",
    from_domainbed: FromDomainbed = None,
    accept_code: AcceptCode = False,
) -> None:
    """Plot the critical-difference diagram of the methods of sweeps.

    Example: fgmix plot cd sweep --out figures
    """
    from fgmix.figures.arrays import make_slug
    from fgmix.figures.plot import plot
    from fgmix.results.selection import RULES

    rule = check_choice("selection rule", selection, RULES)
    runs = read_folders(folders, from_domainbed, accept_code=accept_code, datasets=dataset or ())
    (diagram,) = plot("cd", runs, rule=rule)
    save(diagram, saving, f"cd-{make_slug(dataset)}" if dataset else "")


@flags(saving=SAVING)
def results(
    saving: dict[str, Any],
    places: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDERS", help="folders of sweeps, or .npz files of figures")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="one of these kinds of figures; all by default")] = None,
    published: Annotated[bool, typer.Option("--published", help="also draw the paper's numbers")] = False,
    baseline: Baseline = "erm",
    selection: Selection = "training_domain",
    from_domainbed: FromDomainbed = None,
    accept_code: AcceptCode = False,
) -> None:
    """Plot what the records of sweeps show, one kind or all.

    differences: differences of every method and arm from a baseline, with intervals.
    domains: accuracy of every method and arm, by test domain.
    line: source validation against test accuracy, a point for each run.
    budget: accuracy and calibration error against the compute of training.
    mixing: loss and margin of mixed codes against the share that is extrapolated.
    sensitivity: heat map of accuracy by two settings such as α and λ₀, for each grid (`fgmix sweep --grid …`).
    curves: accuracy and losses of each run over its steps, which are not among all.

    A figure whose .npz file is named is drawn again beside it, without computing anything.

    Example: fgmix plot results sweep --kind domains --out figures
    """
    from fgmix.figures.kinds import RESULTS
    from fgmix.figures.plot import ALL, load_plot, plot, plot_paper_sensitivity
    from fgmix.results.selection import RULES

    rule = check_choice("selection rule", selection, RULES)
    only = check_choice("kind of figure", kind, (*RESULTS, "curves")) if kind else ALL
    files = [path for path in places or () if path.suffix == ".npz"]
    for file in files:
        save(load_plot(file), saving, beside=file.parent)
    folders = [path for path in places or () if path not in files]
    if files and not folders:
        return
    if published and not folders and not from_domainbed and only in (ALL, "sensitivity"):
        save(plot_paper_sensitivity(), saving)
        return
    runs = read_folders(folders, from_domainbed, accept_code=accept_code)
    for each in plot(only, runs, rule=rule, baseline=baseline, published=published):
        save(each, saving)
        if published and each.name.startswith("domains") and not each.arrays.published.any():
            print_notes(f"the paper has no numbers for {each.arrays.title}: only ours are drawn")


# What weights show


@flags(saving=SAVING, opening=OPENING)
def tsne(
    context: typer.Context,
    opening: dict[str, Any],
    saving: dict[str, Any],
    runs: Runs,
    beside: Annotated[list[Path] | None, typer.Option(help="runs whose codes to show beside these runs'")] = None,
    samples: Samples = 150,
    mixed: Annotated[int, typer.Option(help="mixed codes of each kind", min=1, max=100_000, hidden=True)] = 300,
) -> None:
    """Plot latent codes: original, random interpolation, FGMix.

    With --beside, the codes of several methods are plotted instead.

    Several runs give one row per test domain.

    Example: fgmix plot tsne runs/RUN --out figures
    """
    if beside:
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
