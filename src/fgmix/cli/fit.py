"""fgmix fit: train a model, with an estimate for an unseen domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.options import Device, Quiet, Set, flags, refuse, settings_of
from fgmix.deploy.terms import Terms
from fgmix.records.schema import RunSpec

OMITTED = ("dataset", "algorithm", "hparams_seed", "evaluate_train", "snapshots")  # for research, not for a model


@flags(Terms, "terms")
@flags(RunSpec, "options", omit=OMITTED)
def fit(
    context: typer.Context,
    options: dict[str, Any],
    terms: dict[str, Any],
    data: Annotated[str, typer.Argument(help="folder domain/class/image, CSV manifest, .npz file with X, y, domain")],
    out: Annotated[Path, typer.Option(help="folder of the model")],
    algorithm: Annotated[str, typer.Option(help="see `fgmix list algorithms`", rich_help_panel="Method")] = "fgmix",
    set_: Set = None,
    estimate: Annotated[bool, typer.Option(help="hold out every domain once to estimate unseen accuracy")] = True,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a model on all domains and estimate its accuracy on an unseen one.

    Example: fgmix fit scans --out model --frozen --views 4
    """
    from fgmix.deploy.card import CARD
    from fgmix.deploy.fit import fit as fit_model

    if options["averaging"] != "swa":
        refuse(context, ("averaging_start",), f"with --averaging {options['averaging']}")
    settings = settings_of(algorithm, set_)
    how: dict[str, Any] = {
        "estimated": estimate,
        "terms": Terms(**terms),
        "device": device,
        "progress": not quiet,
    }
    fit_model(data, out, algorithm=algorithm, settings=settings, **how, **options)
    print((out / CARD).read_text(encoding="utf-8"), end="")
    print(f"\nModel: {out}")
