"""fgmix predict: what a model says about images or arrays."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fgmix.errors import UserError


def predict(
    model: Annotated[Path, typer.Argument(help="folder that `fgmix fit` made")],
    images: Annotated[list[Path], typer.Argument(help="images, folders of images, or an .npz file with X")],
    out: Annotated[Path | None, typer.Option(help="CSV file; by default printed")] = None,
    probabilities: Annotated[bool, typer.Option(help="also the probability of every class")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")] = "auto",
    quiet: Annotated[bool, typer.Option(help="no progress bar")] = False,
) -> None:
    """A CSV line each: label, calibrated confidence, novelty (above 1: unlike the training data), trusted or not."""
    from fgmix.deploy import load_model
    from fgmix.deploy.predicting import predict_paths, write_csv

    if out is not None and out.exists():
        raise UserError(f"Expected no file at {out}. Found one. Choose another --out, or delete it.")
    rows = predict_paths(load_model(model, device), images, probabilities=probabilities, progress=not quiet)
    if out is None:
        failed = write_csv(rows, sys.stdout)
    else:
        rows = iter(list(rows))  # whole or absent: nothing is written before everything is predicted
        with open(out, "x", encoding="utf-8", newline="") as file:
            failed = write_csv(rows, file)
    if failed:
        print(f"note: {failed} of the files cannot be decoded; see the column error", file=sys.stderr)
