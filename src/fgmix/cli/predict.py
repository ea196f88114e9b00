"""fgmix predict: what a model says about images or arrays."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from fgmix.cli.options import Device, Quiet
from fgmix.files import new_file, write_bytes

NOTHING_PREDICTED = 1  # exit code


def predict(
    model: Annotated[Path, typer.Argument(help="folder that `fgmix fit` made")],
    images: Annotated[list[Path], typer.Argument(help="images, folders of images, or an .npz file with X")],
    out: Annotated[Path | None, typer.Option(help="CSV file; by default printed")] = None,
    probabilities: Annotated[bool, typer.Option(help="also the probability of every class")] = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Predict images or arrays: a CSV line each with label, calibrated confidence, novelty (above 1 if unlike the
    training data) and whether to trust it. Exits with 1 if nothing can be predicted.

    Example: fgmix predict model scans --out predictions.csv
    """
    from fgmix.deploy.model import load_model
    from fgmix.deploy.predict import predict_paths, write_csv

    if out is not None:
        new_file(out)  # known before hours of predicting
    rows = predict_paths(load_model(model, device), images, probabilities=probabilities, progress=not quiet)
    if out is None:
        written = write_csv(rows, sys.stdout)
    else:
        text = io.StringIO(newline="")
        written = write_csv(rows, text)
        write_bytes(out, text.getvalue().encode())
    if written.failed:
        counts = f"{written.failed} of {written.rows}"
        print(f"note: {counts} cannot be predicted; see the column `error`.", file=sys.stderr)
    if written.failed == written.rows:
        raise typer.Exit(NOTHING_PREDICTED)
