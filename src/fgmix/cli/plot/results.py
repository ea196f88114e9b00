"""Figures from records alone: no weights are read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.options import AcceptCode, check_choice
from fgmix.cli.plot import FIGURES, Out, save
from fgmix.cli.report import Baseline, FromDomainbed, Selection, read_results
from fgmix.errors import UserError, unknown


def weights(out: Out = FIGURES) -> None:
    """Plot the effect of λ on ã, and the paper's toy example.

    Example: fgmix plot weights --out figures
    """
    from fgmix.figures.compute.weights import compute_weights

    save(compute_weights(), out, "weights")


def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS", help="folders of finished runs")], out: Out = FIGURES
) -> None:
    """Plot accuracy and losses of runs over their steps.

    For FGMix, λ and the extrapolated share are plotted, too.

    Example: fgmix plot curves runs/RUN --out figures
    """
    from fgmix.figures.curves import collect_curves
    from fgmix.records.store import read_record

    for folder in runs:
        save(collect_curves(read_record(folder)), out, f"curves-{folder.resolve().name}")


def cd(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="FOLDERS", help="folders of sweeps")] = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="one dataset; all by default")] = None,
    selection: Selection = "training_domain",
    from_domainbed: FromDomainbed = None,
    accept_code: AcceptCode = False,
    out: Out = FIGURES,
) -> None:
    """Plot the critical-difference diagram of the methods of sweeps.

    Example: fgmix plot cd sweep --out figures
    """
    from fgmix.figures.arrays import make_slug
    from fgmix.figures.cd import collect_ranks
    from fgmix.results.ranks import rank_rows
    from fgmix.results.selection import RULES, select

    name = f"cd-{make_slug(dataset)}" if dataset else "cd"
    collected = read_results(folders, from_domainbed, accept_code=accept_code)
    selected = select(collected.records, check_choice("selection rule", selection, RULES), collected.test_domains)
    if dataset is not None and dataset not in selected.domains:
        raise unknown("dataset of this sweep", dataset, selected.domains)
    save(collect_ranks(rank_rows(selected, dataset=dataset), selected.labels), out, name)


def results(
    places: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDERS", help="folders of sweeps, or .npz files of figures")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="one of these kinds of figures; all by default")] = None,
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

    A figure whose .npz file is named is drawn again beside it, without computing anything.

    Example: fgmix plot results sweep --kind domains --out figures
    """
    from fgmix.figures.arrays import Findings
    from fgmix.figures.kinds import RESULTS, collect_figures, load_arrays
    from fgmix.results.report import Choices
    from fgmix.results.selection import RULES, select
    from fgmix.results.statistics import BASELINE, check_baseline

    rule = check_choice("selection rule", selection, RULES)
    only = check_choice("kind of figure", kind, RESULTS) if kind else ""
    files = [path for path in places or () if path.suffix == ".npz"]
    for file in files:
        save(load_arrays(file), file.parent, file.stem)
    folders = [path for path in places or () if path not in files]
    if files and not folders:
        return
    figures: dict[str, Any] = {}
    grids = published and not folders and not from_domainbed  # the paper's alone
    if not grids:
        read = read_results(folders, from_domainbed, accept_code=accept_code)
        if baseline != BASELINE:
            check_baseline(read.records, baseline)
        findings = Findings(
            read, select(read.records, rule, read.test_domains), Choices(rule, published=published, baseline=baseline)
        )
        figures = {name: arrays for _, name, arrays in collect_figures(findings, only)}
        grids = published and bool(read.grids)
    if grids and only in ("", "sensitivity"):
        from fgmix.figures.sensitivity import read_paper_sensitivity

        figures["sensitivity-paper"] = read_paper_sensitivity()
    if not figures:
        raise UserError(
            f"Expected runs that allow {f'a figure of the kind {only}' if only else 'a figure'}. Found none. Name the "
            "folder of a sweep over two or more methods, over a grid (--grid), or of times per step."
        )
    for name, arrays in figures.items():
        save(arrays, out, name)
        if published and name.startswith("domains") and not arrays.published.any():
            print(f"note: the paper has no numbers for {arrays.title}: only ours are drawn", file=sys.stderr)
