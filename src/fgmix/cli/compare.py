"""fgmix compare: two models on the same labelled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgmix.cli.options import Device, Quiet
from fgmix.terminal import print_markdown


def compare(
    model_a: Annotated[Path, typer.Argument(metavar="MODEL_A", help="folder that `fgmix fit` or `fgmix soup` wrote")],
    model_b: Annotated[Path, typer.Argument(metavar="MODEL_B", help="folder of the other model")],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="labelled samples of domains that neither model was trained on")
    ],
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Compare two models on the same labelled samples.

    Prints accuracies, their difference with a 95 % interval for each domain and over domains, and McNemar's exact test.

    Example: fgmix compare model_a model_b labelled_scans
    """
    from fgmix.deploy.compare import compare_models
    from fgmix.deploy.model import load_model

    a, b = (load_model(folder, device) for folder in (model_a, model_b))
    print_markdown("\n".join(compare_models(a, b, data, progress=not quiet).lines()))
