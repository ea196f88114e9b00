"""fgmix plot: figures of runs and sweeps, each as PNG, PDF and the arrays behind it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgmix.cli.options import flags, refuse
from fgmix.errors import UserError, unknown
from fgmix.fields import check_fields, declare

if TYPE_CHECKING:
    from fgmix.results.collect import Results
    from fgmix.results.selection import Selection
    from fgmix.runs.opening import OpenedRun

app = typer.Typer(help="Draw figures of finished runs and sweeps.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(help="folder of a finished run")]
Runs = Annotated[list[Path], typer.Argument(help="folders of finished runs")]
Sweeps = Annotated[list[Path], typer.Argument(help="folders of sweeps")]
SomeSweeps = Annotated[list[Path] | None, typer.Argument(help="folders of sweeps")]
FromDomainbed = Annotated[list[Path] | None, typer.Option(help="folder of a DomainBed sweep; repeat for several")]
Out = Annotated[Path, typer.Option(help="folder for the figure")]
Rule = Annotated[str, typer.Option(help="training_domain, last_evaluations, leave_one_out or oracle")]
Samples = Annotated[int, typer.Option(help="samples of each domain, at most", min=2, max=100_000)]
FIGURES = Path("figures")
LARGEST_SEED = 2**32 - 1  # of scikit-learn


@dataclass(frozen=True)
class Opening:
    """How finished runs are opened."""

    dataset: str = declare("", help="path of the dataset, if it has moved", group="Data")
    data_root: str = declare("", help="folder of the datasets, if it moved", group="Data", envvar="FGMIX_DATA")
    device: str = declare("auto", help="auto, cpu, cuda, cuda:1 or mps", group="Data")

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Weights:
    """Which weights of a run are looked at, and the seed of what is drawn to do so."""

    which: Literal["last", "best"] = declare(
        "last", help="weights after the last or at the selected step", group="Weights"
    )
    model: Literal["raw", "swa", "swad"] = declare("raw", help="raw or averaged weights", group="Weights")
    seed: int = declare(0, help="seed of every random draw", group="Weights", ge=0, le=LARGEST_SEED)

    def __post_init__(self) -> None:
        check_fields(self)


@app.command()
def weights(out: Out = FIGURES) -> None:
    """Plot the effect of λ on ã, and the paper's toy example.

    Example: fgmix plot weights --out figures
    """
    from fgmix.analysis.weights import weight_effect

    _finish(weight_effect(), out, "weights")


@app.command()
def curves(runs: Runs, out: Out = FIGURES) -> None:
    """Plot accuracy, losses, λ and extrapolated share over the steps of each run.

    Example: fgmix plot curves runs/RUN --out figures
    """
    from fgmix.analysis.results import run_curves
    from fgmix.runs.record import read_record

    for folder in runs:
        _finish(run_curves(read_record(folder)), out, f"curves-{folder.resolve().name}")


@app.command()
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
    from fgmix.analysis.results import method_ranks
    from fgmix.results.ranks import rank_methods

    name = f"cd-{_slug(dataset)}" if dataset else "cd"
    found = _selected(folders, selection, from_domainbed)
    if dataset is not None and dataset not in found.domains:
        raise unknown("dataset of this sweep", dataset, found.domains)
    _finish(method_ranks(rank_methods(found, dataset=dataset), found.labels), out, name)


@app.command()
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
    from fgmix.analysis.results import grid_sensitivities, paper_sensitivity

    if not folders:
        refuse(context, ("selection",), "without the folder of a sweep")
    found = _collected(folders).grids if folders else []
    if not found and not published:
        raise UserError("Expected a sweep over a grid of settings. Found none. Make one with `fgmix sweep --grid …`.")
    for grid in found:
        for arrays in grid_sensitivities(grid, rule=_rule(selection)):
            _finish(arrays, out, f"sensitivity-{_slug(arrays.title)}")
    if published:
        _finish(paper_sensitivity(), out, "sensitivity-paper")


@app.command()
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
    from fgmix.analysis.results import variant_ablation, with_variants

    found = _selected(folders, selection, from_domainbed)
    nothing = [(name, "") for name in found.domains]  # where none has a variant, the first says so
    for dataset, origin in with_variants(found) or nothing:
        arrays = variant_ablation(found, dataset, origin=origin, published=published)
        _finish(arrays, out, f"ablation-{_slug(f'{dataset} {origin}')}")
        if published and not arrays.published.any():
            print(f"note: the paper has no numbers for {dataset}: only ours are drawn", file=sys.stderr)


@app.command()
def cost(folders: Sweeps, out: Out = FIGURES) -> None:
    """Plot the time of a step relative to ERM's, ours and the paper's.

    Example: fgmix plot cost sweep --out figures
    """
    from fgmix.analysis.results import step_cost

    costs = _collected(folders).costs
    if costs is None:
        places = ", ".join(map(str, folders))
        raise UserError(
            f"Expected times per step in {places}. Found none. Measure them with `fgmix sweep --preset paper-cost`."
        )
    _finish(step_cost(costs), out, "cost")


@app.command()
@flags(Opening, "opening")
@flags(Weights, "weights")
def tsne(
    context: typer.Context,
    opening: dict[str, Any],
    weights: dict[str, Any],
    runs: Runs,
    beside: Annotated[list[Path] | None, typer.Option(help="runs whose codes to show beside these runs'")] = None,
    samples: Samples = 150,
    mixed: Annotated[int, typer.Option(help="mixed codes of each kind", min=1, max=100_000)] = 300,
    out: Out = FIGURES,
) -> None:
    """Plot latent codes: original, random interpolation, FGMix; with --beside the codes of several methods.

    Several runs give one row per test domain.

    Example: fgmix plot tsne runs/RUN --out figures
    """
    from fgmix.analysis.embeddings import code_embedding, mixing_embedding

    taken = {**vars(Weights(**weights)), "samples": samples}
    opened = _opened([*(beside or []), *runs], opening)
    if beside:
        refuse(context, ("mixed",), "with --beside")
        name = _named("tsne-features", opened)
        rows = [code_embedding(row, keep=out / name, **taken) for row in _by_test_domain(opened)]
    else:
        name = _named("tsne", opened)
        rows = [mixing_embedding(run, mixed=mixed, keep=out / name, **taken) for run in opened]
    _finish_rows(rows, out, name)


@app.command()
@flags(Opening, "opening")
@flags(Weights, "weights")
def flatness(
    opening: dict[str, Any],
    weights: dict[str, Any],
    runs: Runs,
    scope: Annotated[
        str, typer.Option(help="what is moved: classifier, or network (filter-normalised)")
    ] = "classifier",
    directions: Annotated[int, typer.Option(help="random directions", min=1, max=100_000)] = 50,
    samples: Samples = 300,
    out: Out = FIGURES,
) -> None:
    """Plot the squared loss difference at distance γ = 1 … 10 from each run's minimum.

    Runs on several test domains give one row per domain.

    Example: fgmix plot flatness runs/RUN1 runs/RUN2 --out figures
    """
    from fgmix.analysis.flatness import flatness as compute

    opened = _opened(runs, opening)
    name = _named(f"flatness-{scope}", opened)
    rows = [
        compute(
            row,
            scope=scope,  # type: ignore[arg-type]  # checked by the library
            directions=directions,
            samples=samples,
            **vars(Weights(**weights)),
            keep=out / name,
        )
        for row in _by_test_domain(opened)
    ]
    _finish_rows(rows, out, name)


@app.command()
@flags(Opening, "opening")
def surface(
    opening: dict[str, Any],
    runs: Annotated[list[Path], typer.Argument(help="a run of ERM and one of FGMix for each test domain")],
    resolution: Annotated[int, typer.Option(help="points on each side of the grid", min=2, max=1000)] = 21,
    samples: Samples = 150,
    seed: Annotated[int, typer.Option(help="seed of every random draw", min=0, max=LARGEST_SEED)] = 0,
    out: Out = FIGURES,
) -> None:
    """Plot train losses and test accuracy on the plane through three models, with the paths of both runs.

    Runs on several test domains give one row per domain.

    Example: fgmix plot surface runs/ERM runs/FGMIX --out figures
    """
    from fgmix.analysis.surface import surface as compute

    opened = _opened(runs, opening)
    name = _named("surface", opened)
    pairs = _by_test_domain(opened)
    for pair in pairs:
        if len(pair) != 2:
            raise UserError(
                f"Expected two runs for each test domain, of ERM and of FGMix, say. Found {len(pair)} for "
                f"{' and '.join(pair[0].test_domains)}. Name one of each."
            )
    rows = [compute(*pair, resolution=resolution, samples=samples, seed=seed, keep=out / name) for pair in pairs]
    _finish_rows(rows, out, name)


@app.command()
@flags(Opening, "opening")
@flags(Weights, "weights")
def scores(
    opening: dict[str, Any],
    weights: dict[str, Any],
    run: Run,
    pairs: Annotated[int, typer.Option(help="pairs of samples for each pair of domains", min=1, max=100_000)] = 200,
    any_class: Annotated[bool, typer.Option("--any-class", help="pairs need not share their class")] = False,
    out: Out = FIGURES,
) -> None:
    """Plot the learned compatibility A_ω against the cosine, by pair of source domains.

    Example: fgmix plot scores runs/RUN --out figures
    """
    from fgmix.analysis.compatibility import compatibility

    (opened,) = _opened([run], opening)
    arrays = compatibility(
        opened,
        pairs=pairs,
        same_class=not any_class,
        **vars(Weights(**weights)),
    )
    _finish(arrays, out, f"scores-{run.resolve().name}")


@app.command()
@flags(Opening, "opening")
@flags(Weights, "weights")
def shift(
    opening: dict[str, Any],
    weights: dict[str, Any],
    run: Run,
    permutations: Annotated[int, typer.Option(help="permutations behind a p value", min=1, max=100_000)] = 500,
    samples: Samples = 200,
    out: Out = FIGURES,
) -> None:
    """Plot how far apart the domains are: accuracy of a domain classifier and a kernel two-sample test on latent codes.

    Example: fgmix plot shift runs/RUN --out figures
    """
    from fgmix.analysis.shift import shift as compute

    (opened,) = _opened([run], opening)
    name = f"shift-{run.resolve().name}"
    arrays = compute(
        opened,
        permutations=permutations,
        samples=samples,
        **vars(Weights(**weights)),
        keep=out / name,
    )
    _finish(arrays, out, name)


@app.command()
def redraw(files: Annotated[list[Path], typer.Argument(help=".npz files that `fgmix plot` wrote")]) -> None:
    """Draw figures again from their arrays, without computing anything.

    Example: fgmix plot redraw figures/flatness.npz
    """
    from fgmix.analysis.arrays import load_arrays

    for file in files:
        _finish(load_arrays(file), file.parent, file.stem)


def _finish(arrays: Any, out: Path, name: str) -> None:
    """Draw, save, and say where, and what the figure decides."""
    from fgmix.analysis.claims import claims
    from fgmix.analysis.resumable import remove_partial
    from fgmix.plots.draw import draw
    from fgmix.plots.style import save_figure

    drawn = draw(arrays)
    if _replaces(out / f"{name}.npz", arrays):
        print(f"note: replaced {out / name}, which showed something else", file=sys.stderr)
    print("\n".join([*map(str, save_figure(drawn, out / name, arrays)), *claims(arrays)]))
    remove_partial(out / name)


def _finish_rows(rows: list[Any], out: Path, name: str) -> None:
    from fgmix.analysis.arrays import Rows

    _finish(Rows.of(rows), out, name)


def _replaces(file: Path, arrays: Any) -> bool:
    """Whether a file holds the arrays of another figure."""
    from fgmix.analysis.arrays import load_arrays, same_arrays

    try:
        return file.exists() and not same_arrays(load_arrays(file), arrays)
    except UserError:  # damaged, or of another version
        return True


def _opened(folders: list[Path], opening: dict[str, Any]) -> list[OpenedRun]:
    """The runs, with the dataset that they share loaded once."""
    from fgmix.runs.opening import open_run

    how = Opening(**opening)
    first = open_run(folders[0], dataset=how.dataset or None, data_root=how.data_root or None, device=how.device)
    return [first, *(open_run(folder, dataset=first.prepared.dataset, device=how.device) for folder in folders[1:])]


def _by_test_domain(runs: list[OpenedRun]) -> list[list[OpenedRun]]:
    """The runs of each row of a figure: the same methods for every test domain, in the order given."""
    rows: dict[tuple[str, ...], list[OpenedRun]] = {}
    for run in runs:
        rows.setdefault(run.test_domains, []).append(run)
    methods = [[run.record.method for run in row] for row in rows.values()]
    if any(sorted(each) != sorted(methods[0]) for each in methods):
        found = "; ".join(f"{' and '.join(test)}: {', '.join(row)}" for test, row in zip(rows, methods))
        raise UserError(f"Expected the same methods for every test domain. Found {found}. Name the missing runs.")
    return list(rows.values())


def _named(kind: str, runs: list[OpenedRun]) -> str:
    """The name of a figure: a run's own, or the dataset, test domains, methods and trials of several."""
    if len(runs) == 1:
        return f"{kind}-{runs[0].folder.resolve().name}"
    domains = dict.fromkeys(name for run in runs for name in run.test_domains)
    methods = dict.fromkeys(run.record.method for run in runs)
    trials = dict.fromkeys(str(run.record.spec.trial_seed) for run in runs)
    words = (runs[0].prepared.dataset.name, _few(domains), _few(methods), f"trial {_few(trials)}")
    return "-".join([kind, *map(_slug, words)])


def _few(names: Iterable[str]) -> str:
    """Names, or how many there are where a file's name would be too long."""
    found = list(names)
    return " ".join(found) if len(found) <= 6 else f"{found[0]} to {found[-1]}, {len(found)}"


def _rule(name: str) -> Any:
    from fgmix.results.selection import RULES

    if name not in RULES:
        raise unknown("selection rule", name, RULES)
    return name


def _collected(folders: list[Path] | None, from_domainbed: list[Path] | None = None) -> Results:
    """The results in one folder or several; what was skipped is named."""
    from fgmix.results.origins import collect_all

    results = collect_all(folders or (), from_domainbed or ())
    for note in results.notes:
        print(f"note: {note}", file=sys.stderr)
    return results


def _selected(folders: list[Path] | None, rule: str, from_domainbed: list[Path] | None = None) -> Selection:
    from fgmix.results.selection import select

    return select(_collected(folders, from_domainbed).records, _rule(rule))


def _slug(text: str) -> str:
    """Words of a title, as part of a file's name."""
    return "-".join("".join(c if c.isalnum() else " " for c in text).split())
