"""Figures from records alone: no weights are read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgmix.cli.options import refuse
from fgmix.cli.plot.saving import FIGURES, Out, finish, slug
from fgmix.errors import UserError, unknown

if TYPE_CHECKING:
    from fgmix.results.collect import Results
    from fgmix.results.selection import Selection

Sweeps = Annotated[list[Path], typer.Argument(help="folders of sweeps")]
SomeSweeps = Annotated[list[Path] | None, typer.Argument(help="folders of sweeps")]
FromDomainbed = Annotated[list[Path] | None, typer.Option(help="folder of a DomainBed sweep; repeat for several")]
Rule = Annotated[str, typer.Option(help="training_domain, last_evaluations, leave_one_out or oracle")]


def weights(out: Out = FIGURES) -> None:
    """Plot the effect of λ on ã, and the paper's toy example.

    Example: fgmix plot weights --out figures
    """
    from fgmix.figures.compute.weights import compute_weights

    finish(compute_weights(), out, "weights")


def curves(runs: Annotated[list[Path], typer.Argument(help="folders of finished runs")], out: Out = FIGURES) -> None:
    """Plot accuracy, losses, λ and extrapolated share over the steps of each run.

    Example: fgmix plot curves runs/RUN --out figures
    """
    from fgmix.figures.curves import collect_curves
    from fgmix.records.schema import read_record

    for folder in runs:
        finish(collect_curves(read_record(folder)), out, f"curves-{folder.resolve().name}")


def cd(
    folders: SomeSweeps = None,
    dataset: Annotated[str | None, typer.Option(help="one dataset; all by default")] = None,
    selection: Rule = "training_domain",
    from_domainbed: FromDomainbed = None,
    out: Out = FIGURES,
) -> None:
    """Plot the critical-difference diagram of the methods of one sweep or several.

    Example: fgmix plot cd sweep --out figures
    """
    from fgmix.figures.cd import collect_ranks
    from fgmix.results.ranks import rank_methods

    name = f"cd-{slug(dataset)}" if dataset else "cd"
    found = _selected(folders, selection, from_domainbed)
    if dataset is not None and dataset not in found.domains:
        raise unknown("dataset of this sweep", dataset, found.domains)
    finish(collect_ranks(rank_methods(found, dataset=dataset), found.labels), out, name)


def sensitivity(
    context: typer.Context,
    folders: Annotated[list[Path] | None, typer.Argument(help="folders of sweeps over a grid")] = None,
    published: Annotated[bool, typer.Option(help="also draw the paper's own")] = False,
    selection: Rule = "training_domain",
    out: Out = FIGURES,
) -> None:
    """Plot a heat map of accuracy by two settings, such as α and λ₀.

    Example: fgmix plot sensitivity sweep --out figures
    """
    from fgmix.figures.sensitivity import collect_sensitivities, read_paper_sensitivity

    if not folders:
        refuse(context, ("selection",), "without the folder of a sweep")
    found = _collected(folders).grids if folders else []
    if not found and not published:
        raise UserError("Expected a sweep over a grid of settings. Found none. Make one with `fgmix sweep --grid …`.")
    for grid in found:
        for arrays in collect_sensitivities(grid, rule=_rule(selection)):
            finish(arrays, out, f"sensitivity-{slug(arrays.title)}")
    if published:
        finish(read_paper_sensitivity(), out, "sensitivity-paper")


def ablation(
    folders: SomeSweeps = None,
    published: Annotated[bool, typer.Option(help="put the paper's numbers beside ours")] = False,
    selection: Rule = "training_domain",
    from_domainbed: FromDomainbed = None,
    out: Out = FIGURES,
) -> None:
    """Plot the accuracy of ERM, variants A to F and FGMix, one figure per dataset and folder.

    Example: fgmix plot ablation sweep --out figures
    """
    from fgmix.figures.ablation import collect_ablation, find_variants

    found = _selected(folders, selection, from_domainbed)
    nothing = [(name, "") for name in found.domains]  # without variants, the first raises an error
    for dataset, origin in find_variants(found) or nothing:
        arrays = collect_ablation(found, dataset, origin=origin, published=published)
        finish(arrays, out, f"ablation-{slug(f'{dataset} {origin}')}")
        if published and not arrays.published.any():
            print(f"note: the paper has no numbers for {dataset}: only ours are drawn", file=sys.stderr)


def cost(folders: Sweeps, out: Out = FIGURES) -> None:
    """Plot the time of a step relative to ERM's, ours and the paper's.

    Example: fgmix plot cost sweep --out figures
    """
    from fgmix.figures.cost import collect_cost

    costs = _collected(folders).costs
    if costs is None:
        places = ", ".join(map(str, folders))
        raise UserError(
            f"Expected times per step in {places}. Found none. Measure them with `fgmix sweep --preset paper-cost`."
        )
    finish(collect_cost(costs), out, "cost")


def _rule(name: str) -> Any:
    from fgmix.results.selection import RULES

    if name not in RULES:
        raise unknown("selection rule", name, RULES)
    return name


def _collected(folders: list[Path] | None, from_domainbed: list[Path] | None = None) -> Results:
    """The results in one folder or several; notes on skipped runs are printed."""
    from fgmix.results.origins import collect_all

    results = collect_all(folders or (), from_domainbed or ())
    for note in results.notes:
        print(f"note: {note}", file=sys.stderr)
    return results


def _selected(folders: list[Path] | None, rule: str, from_domainbed: list[Path] | None = None) -> Selection:
    from fgmix.results.selection import select

    return select(_collected(folders, from_domainbed).records, _rule(rule))
