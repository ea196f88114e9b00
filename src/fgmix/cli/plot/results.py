"""Figures from records alone: no weights are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgmix.cli.options import AcceptCode, check_choice
from fgmix.cli.plot import FIGURES, Out, save
from fgmix.cli.report import Baseline, FromDomainbed, Selection, read_folders
from fgmix.terminal import print_notes


def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS", help="folders of finished runs")], out: Out = FIGURES
) -> None:
    """Plot accuracy and losses of runs over their steps.

    For FGMix, λ and the extrapolated share are plotted, too.

    Example: fgmix plot curves runs/RUN --out figures
    """
    from fgmix.figures.plot import plot
    from fgmix.records.store import read_record

    for each in plot("curves", map(read_record, runs)):
        save(each, out)


def results(
    places: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDERS", help="folders of sweeps, or .npz files of figures")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="one of these kinds of figures; all by default")] = None,
    dataset: Annotated[str | None, typer.Option(help="runs on one dataset; all by default", hidden=True)] = None,
    published: Annotated[bool, typer.Option("--published", help="also draw the paper's numbers")] = False,
    baseline: Baseline = "erm",
    selection: Selection = "training_domain",
    from_domainbed: FromDomainbed = None,
    accept_code: AcceptCode = False,
    out: Out = FIGURES,
) -> None:
    """Plot what the records of sweeps show, one kind or all.

    differences: differences of every method and arm from a baseline, with intervals.
    domains: accuracy of every method and arm, by test domain.
    line: source validation against test accuracy, a point for each run.
    budget: accuracy and calibration error against the compute of training.
    mixing: loss and margin of mixed codes against the share that is extrapolated.
    sensitivity: heat map of accuracy by two settings such as α and λ₀, for each grid (`fgmix sweep --grid …`).
    cost: time of a step relative to ERM's.
    cd: critical-difference diagram of the methods, which is not among all.

    A figure whose .npz file is named is drawn again beside it, without computing anything.

    Example: fgmix plot results sweep --kind domains --out figures
    """
    from fgmix.figures.arrays import make_slug
    from fgmix.figures.kinds import RESULTS
    from fgmix.figures.plot import ALL, load_plot, plot, plot_paper_sensitivity
    from fgmix.results.selection import RULES

    rule = check_choice("selection rule", selection, RULES)
    only = check_choice("kind of figure", kind, (*RESULTS, "cd")) if kind else ALL
    files = [path for path in places or () if path.suffix == ".npz"]
    for file in files:
        save(load_plot(file), file.parent)
    folders = [path for path in places or () if path not in files]
    if files and not folders:
        return
    if published and not folders and not from_domainbed and only in (ALL, "sensitivity"):
        save(plot_paper_sensitivity(), out)
        return
    runs = read_folders(folders, from_domainbed, accept_code=accept_code, datasets=dataset or ())
    for each in plot(only, runs, rule=rule, baseline=baseline, published=published):
        save(each, out, f"{each.name}-{make_slug(dataset)}" if dataset else "")
        if published and each.name.startswith("domains") and not each.arrays.published.any():
            print_notes(f"the paper has no numbers for {each.arrays.title}: only ours are drawn")
