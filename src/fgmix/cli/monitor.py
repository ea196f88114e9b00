"""fgmix monitor: drift, novelty and estimated accuracy of a model in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgmix.cli.options import Device, Quiet
from fgmix.terminal import print_lines

FAR = 1  # exit code


def monitor(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="folder that `fgmix fit` wrote")],
    batch: Annotated[list[Path], typer.Argument(metavar="BATCH", help="unlabelled samples, as for `fgmix predict`")],
    baseline: Annotated[
        list[Path] | None, typer.Option(help="earlier samples of the site to compare with instead; repeatable")
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Compare new samples of a site with the training data.

    Prints the drift of confidence, novelty and predicted classes, the share of novel samples, and the accuracy
    estimated from the confidence. Exits with 1 if a drift is significant and larger than that of every held-out domain.

    Example: fgmix monitor model scans_of_may
    """
    from fgmix.deploy.model import load_model
    from fgmix.deploy.monitor import monitor as monitor_batch

    report = monitor_batch(load_model(model, device), batch, baseline or (), progress=not quiet)
    print_lines(report.lines())
    if report.is_far:
        raise typer.Exit(FAR)
