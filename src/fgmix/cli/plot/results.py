"""Figures from records alone: no weights are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.options import AcceptCode, check_choice, flags
from fgmix.cli.plot import SAVING, save
from fgmix.cli.report import Baseline, Selection, read_folders
from fgmix.terminal import print_notes

FromDomainbed = Annotated[
    list[Path] | None, typer.Option(help="folder of a DomainBed sweep; repeat for several", hidden=True)
]


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
    cost: time of a step relative to ERM's.
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
