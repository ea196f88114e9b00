"""Figures from records alone: no weights are read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgmix.cli.options import check_choice
from fgmix.cli.plot import FIGURES, Out, save
from fgmix.cli.report import FromDomainbed, Selection, read_results
from fgmix.errors import UserError, unknown

if TYPE_CHECKING:
    from fgmix.results.collect import Results
    from fgmix.results.selection import Rule


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
    selected = select(read_results(folders, from_domainbed).records, check_choice("selection rule", selection, RULES))
    if dataset is not None and dataset not in selected.domains:
        raise unknown("dataset of this sweep", dataset, selected.domains)
    save(collect_ranks(rank_rows(selected, dataset=dataset), selected.labels), out, name)


def results(
    places: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDERS", help="folders of sweeps, or .npz files of figures")
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="also draw the paper's numbers")] = False,
    selection: Selection = "training_domain",
    from_domainbed: FromDomainbed = None,
    out: Out = FIGURES,
) -> None:
    """Plot the ablation, the sensitivity and the cost of sweeps.

    ablation: accuracy of ERM, variants A to F and FGMix, for each dataset and folder that has variants.
    sensitivity: heat map of accuracy by two settings such as α and λ₀, for each grid (`fgmix sweep --grid …`).
    cost: time of a step relative to ERM's.

    A figure whose .npz file is named is drawn again beside it, without computing anything.

    Example: fgmix plot results sweep --out figures
    """
    from fgmix.figures.kinds import load_arrays
    from fgmix.results.selection import RULES

    rule = check_choice("selection rule", selection, RULES)
    files = [path for path in places or () if path.suffix == ".npz"]
    for file in files:
        save(load_arrays(file), file.parent, file.stem)
    folders = [path for path in places or () if path not in files]
    if files and not folders:
        return
    paper_alone = published and not folders and not from_domainbed
    collected = None if paper_alone else read_results(folders, from_domainbed)
    figures = dict(_compute_results(collected, rule, published)) if collected else {}
    if paper_alone or (published and collected and collected.grids):
        from fgmix.figures.sensitivity import read_paper_sensitivity

        figures["sensitivity-paper"] = read_paper_sensitivity()
    if not figures:
        raise UserError(
            "Expected a sweep over variants of FGMix or over a grid (--grid), or times per step. Found none of them. "
            "Compare other methods with `fgmix plot cd`."
        )
    for name, arrays in figures.items():
        save(arrays, out, name)


def _compute_results(collected: Results, rule: Rule, published: bool) -> Iterator[tuple[str, Any]]:
    """Compute the figures that results allow, each with its name."""
    from fgmix.figures.ablation import collect_ablation, find_variants
    from fgmix.figures.arrays import make_slug
    from fgmix.figures.cost import collect_cost
    from fgmix.figures.sensitivity import collect_sensitivities
    from fgmix.results.selection import select

    selected = select(collected.records, rule)
    for dataset, origin in find_variants(selected, least=2):
        arrays = collect_ablation(selected, dataset, origin=origin, published=published)
        yield f"ablation-{make_slug(f'{dataset} {origin}')}", arrays
        if published and not arrays.published.any():
            print(f"note: the paper has no numbers for {dataset}: only ours are drawn", file=sys.stderr)
    for grid in collected.grids:
        for sensitivity in collect_sensitivities(grid, rule=rule):
            yield f"sensitivity-{make_slug(sensitivity.title)}", sensitivity
    if collected.costs is not None:
        yield "cost", collect_cost(collected.costs)
