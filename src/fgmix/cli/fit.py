"""fgmix fit: train a model, with an estimate for an unseen domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.options import (
    AcceptCode,
    Device,
    Flags,
    Quiet,
    Set,
    flags,
    forbid,
    parse_pairs,
    parse_settings,
    split_names,
)
from fgmix.errors import UserError
from fgmix.records.model import Terms
from fgmix.records.schema import RunSpec
from fgmix.terminal import print_lines, print_markdown, print_phase

OMITTED = ("dataset", "algorithm", "hparams_seed", "evaluate_train", "snapshots")  # for research, not for a model
SHOWN = ("image_size", "backbone", "pretrained", "weights", "frozen", "steps", "metric")
TRUST = ("min_confidence", "target_accuracy")
EXTENDING = ("data", "out", "add_domain", "from_", "device", "quiet", "plugin")  # parameters of --add-domain


@flags(options=Flags(RunSpec, omit=OMITTED, everyday=SHOWN), terms=Flags(Terms, everyday=TRUST))
def fit(
    context: typer.Context,
    options: dict[str, Any],
    terms: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Argument(help="folder domain/class/image, CSV manifest, table, .npz file with X, y, domain"),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="folder of the model", rich_help_panel="Required")],
    algorithm: Annotated[
        str | None,
        typer.Option(help="train this method alone (`fgmix list algorithms`)", rich_help_panel="Method"),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="time to try recipes, such as 10min or 2h", rich_help_panel="Method")
    ] = "10min",
    recipes: Annotated[
        str | None,
        typer.Option(help="recipes to choose from, separated by commas; default: all", hidden=True),
    ] = None,
    add_domain: Annotated[
        str | None, typer.Option(help="labelled data of a new domain to train --from MODEL with", hidden=True)
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="model whose data and settings --add-domain extends", hidden=True)
    ] = None,
    set_: Set = None,
    estimate: Annotated[bool, typer.Option(help="hold out every domain once to estimate unseen accuracy")] = True,
    device: Device = "auto",
    quiet: Quiet = False,
    accept_code: AcceptCode = False,
) -> None:
    """Train a model, and estimate its accuracy on an unseen domain.

    Tries several recipes, keeps the one that predicts held-out domains best, and trains it on all domains. With
    --algorithm, that method alone.

    Example: fgmix fit scans --out model --budget 10min
    """
    print_phase("loading torch and the data", quiet=quiet)
    if add_domain is not None or from_ is not None:
        _extend(context, add_domain, from_, data, out, device, not quiet)
        return
    if data is None:
        raise UserError("Missing argument 'DATA'. Name the data to train on.")
    from fgmix.deploy.card import CARD
    from fgmix.deploy.fit import fit as fit_model
    from fgmix.deploy.summary import summarize_model

    if (averaging := options.get("averaging", "swa")) != "swa":
        forbid(context, ("averaging_start",), f"with --averaging {averaging}")
    settings: dict[str, Any] = {}
    if algorithm is not None:
        forbid(context, ("budget", "recipes"), "with --algorithm, which leaves nothing to choose")
        settings = parse_settings(algorithm, parse_pairs(set_ or []))
    else:
        forbid(context, ("set_",), "without --algorithm")
        options |= {"budget": budget, "recipes": split_names([recipes]) if recipes else None}
    how: dict[str, Any] = {"estimated": estimate, "terms": Terms(**terms), "device": device, "progress": not quiet}
    how["accept_code"] = accept_code
    model = fit_model(data, out, algorithm=algorithm, settings=settings, **how, **options)
    print_lines([*summarize_model(model.info), f"Card: {out / CARD}"])


def _extend(
    context: typer.Context,
    new: str | None,
    before: Path | None,
    data: str | None,
    out: Path,
    device: str,
    progress: bool,
) -> None:
    """Train a model again with a new domain, and print what changed."""
    from fgmix.deploy.add_domain import add_domain
    from fgmix.deploy.card import CARD
    from fgmix.deploy.model import load_model

    if new is None or before is None:
        raise UserError("Expected --add-domain NEW and --from MODEL together. Found one of them.")
    others = [each.name for each in context.command.params if each.name and each.name not in EXTENDING]
    forbid(context, others, "with --add-domain, which uses the settings of the model")
    change = add_domain(load_model(before, device), new, out, data=data, device=device, progress=progress)
    print_markdown("\n".join(change.lines()))
    print_lines([f"Card: {out / CARD}"])
