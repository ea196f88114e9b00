"""fgmix plot: figures of runs and sweeps, each as PNG, PDF and the arrays behind it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgmix.cli.options import Device
from fgmix.errors import UserError, unknown

if TYPE_CHECKING:
    from fgmix.results.selection import Selection
    from fgmix.runs.opening import OpenedRun

app = typer.Typer(help="Draw figures of finished runs and sweeps.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(help="folder of a finished run")]
Runs = Annotated[list[Path], typer.Argument(help="folders of finished runs")]
Sweep = Annotated[Path, typer.Argument(help="folder of a sweep")]
Out = Annotated[Path, typer.Option(help="folder for the figure")]
Rule = Annotated[str, typer.Option(help="training_domain, last_evaluations, leave_one_out or oracle")]
Data = Annotated[str | None, typer.Option(help="where the dataset lies now, if it moved")]
Root = Annotated[str | None, typer.Option(envvar="FGMIX_DATA", help="folder of the datasets, if it moved")]
Which = Annotated[str, typer.Option(help="weights after the last step, or the best: last or best")]
Model = Annotated[str, typer.Option(help="raw, swa or swad")]
Samples = Annotated[int, typer.Option(help="samples of each domain, at most")]
Seed = Annotated[int, typer.Option(help="of every draw")]
FIGURES = Path("figures")


@app.command()
def weights(out: Out = FIGURES) -> None:
    """Effect of λ on ã, and the toy example."""
    from fgmix.analysis.weights import weight_effect

    _finish(weight_effect(), out, "weights")


@app.command()
def curves(runs: Runs, out: Out = FIGURES) -> None:
    """Accuracy, losses, λ and extrapolated share over the steps of each run."""
    from fgmix.analysis.results import run_curves
    from fgmix.runs.record import read_record

    for folder in runs:
        _finish(run_curves(read_record(folder)), out, f"curves-{folder.resolve().name}")


@app.command()
def cd(
    folder: Sweep,
    dataset: Annotated[str | None, typer.Option(help="one dataset; all by default")] = None,
    selection: Rule = "training_domain",
    out: Out = FIGURES,
) -> None:
    """Critical-difference diagram of a sweep's methods."""
    from fgmix.analysis.results import method_ranks
    from fgmix.results.statistics import rank_methods

    name = f"cd-{_slug(dataset)}" if dataset else "cd"
    found = _selected(folder, selection)
    _finish(method_ranks(rank_methods(found, dataset=dataset), found.labels), out, name)


@app.command()
def sensitivity(
    folder: Annotated[Path | None, typer.Argument(help="folder of a sweep over a grid")] = None,
    published: Annotated[bool, typer.Option(help="also draw the paper's own")] = False,
    selection: Rule = "training_domain",
    out: Out = FIGURES,
) -> None:
    """Heat map of accuracy by two settings, such as α and λ₀."""
    from fgmix.analysis.results import grid_sensitivities, paper_sensitivity
    from fgmix.results.collect import collect

    found = [] if folder is None else collect(folder).grids
    if not found and not published:
        raise UserError("Expected a sweep over a grid of settings. Found none. Make one with `fgmix sweep --grid …`.")
    for grid in found:
        for arrays in grid_sensitivities(grid, rule=_rule(selection)):
            _finish(arrays, out, f"sensitivity-{_slug(arrays.title)}")
    if published:
        _finish(paper_sensitivity(), out, "sensitivity-paper")


@app.command()
def ablation(
    folder: Sweep,
    published: Annotated[bool, typer.Option(help="put the paper's numbers beside ours")] = False,
    selection: Rule = "training_domain",
    out: Out = FIGURES,
) -> None:
    """Accuracy of ERM, variants A to F and FGMix, a figure for each dataset."""
    from fgmix.analysis.results import VARIANTS, variant_ablation

    found = _selected(folder, selection)
    having = [name for name in found.domains if any(c.dataset == name and c.algorithm in VARIANTS for c in found.cells)]
    for dataset in having or found.domains:  # where none has a variant, the first says so
        _finish(variant_ablation(found, dataset, published=published), out, f"ablation-{_slug(dataset)}")


@app.command()
def cost(folder: Sweep, out: Out = FIGURES) -> None:
    """Time of a step over ERM's, ours and the paper's."""
    from fgmix.analysis.results import step_cost
    from fgmix.results.collect import collect

    costs = collect(folder).costs
    if costs is None:
        raise UserError(
            f"Expected times per step in {folder}. Found none. Measure them with `fgmix sweep --preset paper-cost`."
        )
    _finish(step_cost(costs), out, "cost")


@app.command()
def tsne(
    run: Run,
    beside: Annotated[list[Path] | None, typer.Option(help="runs whose codes to show beside this run's")] = None,
    which: Which = "last",
    model: Model = "raw",
    samples: Samples = 150,
    mixed: Annotated[int, typer.Option(help="mixed codes of each kind")] = 300,
    seed: Seed = 0,
    dataset: Data = None,
    data_root: Root = None,
    device: Device = "auto",
    out: Out = FIGURES,
) -> None:
    """Latent codes: original, random interpolation, FGMix; with --beside the codes of several methods."""
    from fgmix.analysis.embeddings import code_embedding, mixing_embedding

    taken: dict[str, Any] = {"which": _which(which), "model": model, "samples": samples, "seed": seed}
    if beside:
        runs = _opened([*beside, run], dataset, data_root, device)
        name = f"tsne-features-{run.resolve().name}"
        _finish(code_embedding(runs, keep=out / name, **taken), out, name)
        return
    (opened,) = _opened([run], dataset, data_root, device)
    name = f"tsne-{run.resolve().name}"
    _finish(mixing_embedding(opened, mixed=mixed, keep=out / name, **taken), out, name)


@app.command()
def flatness(
    runs: Runs,
    scope: Annotated[
        str, typer.Option(help="what is moved: classifier, or network (filter-normalised)")
    ] = "classifier",
    directions: Annotated[int, typer.Option(help="random directions")] = 50,
    which: Which = "last",
    model: Model = "raw",
    samples: Samples = 300,
    seed: Seed = 0,
    dataset: Data = None,
    data_root: Root = None,
    device: Device = "auto",
    out: Out = FIGURES,
) -> None:
    """Squared loss difference at distance γ = 1 … 10 from each run's minimum."""
    from fgmix.analysis.flatness import flatness as compute

    opened = _opened(runs, dataset, data_root, device)
    name = f"flatness-{scope}-{_held_out(opened)}"
    arrays = compute(
        opened,
        scope=scope,  # type: ignore[arg-type]  # checked by the library
        directions=directions,
        which=_which(which),
        model=model,  # type: ignore[arg-type]
        samples=samples,
        seed=seed,
        keep=out / name,
    )
    _finish(arrays, out, name)


@app.command()
def surface(
    first: Annotated[Path, typer.Argument(help="run of ERM, with snapshots")],
    second: Annotated[Path, typer.Argument(help="run of FGMix, with snapshots")],
    resolution: Annotated[int, typer.Option(help="points on each side of the grid")] = 21,
    samples: Samples = 150,
    seed: Seed = 0,
    dataset: Data = None,
    data_root: Root = None,
    device: Device = "auto",
    out: Out = FIGURES,
) -> None:
    """Train losses and test accuracy on the plane through three models, with the paths of both runs."""
    from fgmix.analysis.surface import surface as compute

    opened = _opened([first, second], dataset, data_root, device)
    name = f"surface-{_held_out(opened)}"
    arrays = compute(*opened, resolution=resolution, samples=samples, seed=seed, keep=out / name)
    _finish(arrays, out, name)


@app.command()
def scores(
    run: Run,
    pairs: Annotated[int, typer.Option(help="pairs of samples for each pair of domains")] = 200,
    any_class: Annotated[bool, typer.Option("--any-class", help="pairs need not share their class")] = False,
    which: Which = "last",
    model: Model = "raw",
    seed: Seed = 0,
    dataset: Data = None,
    data_root: Root = None,
    device: Device = "auto",
    out: Out = FIGURES,
) -> None:
    """The learned compatibility A_ω against the cosine, by pair of source domains."""
    from fgmix.analysis.compatibility import compatibility

    (opened,) = _opened([run], dataset, data_root, device)
    arrays = compatibility(
        opened,
        pairs=pairs,
        same_class=not any_class,
        which=_which(which),
        model=model,  # type: ignore[arg-type]
        seed=seed,
    )
    _finish(arrays, out, f"scores-{run.resolve().name}")


@app.command()
def shift(
    run: Run,
    permutations: Annotated[int, typer.Option(help="for the p values")] = 500,
    which: Which = "last",
    model: Model = "raw",
    samples: Samples = 200,
    seed: Seed = 0,
    dataset: Data = None,
    data_root: Root = None,
    device: Device = "auto",
    out: Out = FIGURES,
) -> None:
    """How far apart the domains are: a domain classifier's accuracy and a kernel two-sample test, on latent codes."""
    from fgmix.analysis.shift import shift as compute

    (opened,) = _opened([run], dataset, data_root, device)
    name = f"shift-{run.resolve().name}"
    arrays = compute(
        opened,
        permutations=permutations,
        which=_which(which),
        model=model,  # type: ignore[arg-type]
        samples=samples,
        seed=seed,
        keep=out / name,
    )
    _finish(arrays, out, name)


@app.command()
def redraw(files: Annotated[list[Path], typer.Argument(help=".npz files that `fgmix plot` wrote")]) -> None:
    """Draw figures again from their arrays: nothing is computed."""
    from fgmix.analysis.arrays import load_arrays

    for file in files:
        _finish(load_arrays(file), file.parent, file.stem)


def _finish(arrays: Any, out: Path, name: str) -> None:
    """Draw, save, and say where."""
    from fgmix.analysis.resumable import remove_partial
    from fgmix.plots.draw import draw
    from fgmix.plots.style import save_figure

    print("\n".join(str(path) for path in save_figure(draw(arrays), out / name, arrays)))
    remove_partial(out / name)


def _opened(folders: list[Path], dataset: str | None, data_root: str | None, device: str) -> list[OpenedRun]:
    """The runs, with the dataset that they share loaded once."""
    from fgmix.runs.opening import open_run

    first = open_run(folders[0], dataset=dataset, data_root=data_root, device=device)
    return [first, *(open_run(folder, dataset=first.prepared.dataset, device=device) for folder in folders[1:])]


def _held_out(runs: list[OpenedRun]) -> str:
    """The runs' dataset and test domains, as part of a file's name."""
    domains = dict.fromkeys(name for run in runs for name in run.test_domains)
    return _slug(" ".join([runs[0].prepared.dataset.name, *domains]))


def _which(name: str) -> Any:
    if name not in ("last", "best"):
        raise unknown("moment of a run", name, ("last", "best"))
    return name


def _rule(name: str) -> Any:
    from fgmix.results.selection import RULES

    if name not in RULES:
        raise unknown("selection rule", name, RULES)
    return name


def _selected(folder: Path, rule: str) -> Selection:
    from fgmix.results.collect import collect
    from fgmix.results.selection import select

    return select(collect(folder).records, _rule(rule))


def _slug(text: str) -> str:
    """Words of a title, as part of a file's name."""
    return "-".join("".join(c if c.isalnum() else " " for c in text).split())
