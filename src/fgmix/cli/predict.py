"""fgmix predict: predictions of a model for images or arrays."""

from __future__ import annotations

import io
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.options import Device, Quiet, parse_shares
from fgmix.records.files import write_bytes
from fgmix.records.locks import hold_new_file
from fgmix.terminal import print_notes

NOTHING_PREDICTED = 1  # exit code


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="folder that `fgmix fit` or `fgmix soup` wrote")],
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES", help="images, folders of images, a manifest, a table, or an .npz file with X"),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="file to write (.csv or .jsonl); by default printed")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="csv or jsonl [default: from the extension of --out, else csv]")
    ] = None,
    probabilities: Annotated[bool, typer.Option(help="also the probability of every class")] = False,
    sensitivity: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS=X", help="flag a class so that this share of it is found; repeatable", hidden=True),
    ] = None,
    adapt: Annotated[
        bool, typer.Option(help="standardise by all samples of this call, as a batch of one new domain")
    ] = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Predict images or arrays.

    Prints a row per sample with label, calibrated confidence, novelty (above 1: unlike the training data) and whether
    to trust it, or with an error. Exits with 1 if nothing can be predicted.

    Example: fgmix predict model scans --out predictions.csv
    """
    from fgmix.deploy.model import load_model
    from fgmix.deploy.predict import predict_paths, write_rows
    from fgmix.deploy.summary import describe_adaptation

    chosen: Any = format or ("jsonl" if out is not None and out.suffix == ".jsonl" else "csv")
    with nullcontext() if out is None else hold_new_file(out):  # fails before hours of predicting
        loaded = load_model(model, device)
        if sensitivity:
            loaded = loaded.want_sensitivity(parse_shares(sensitivity, "--sensitivity"))
        started = time.monotonic()
        if adapt and not quiet:
            print_notes(describe_adaptation(loaded.info))
        rows = predict_paths(loaded, images, probabilities=probabilities, progress=not quiet, adapt=adapt)
        text = io.StringIO(newline="")
        written = write_rows(rows, sys.stdout if out is None else text, chosen)
        if out is not None:
            write_bytes(out, text.getvalue().encode())
    if not quiet:
        seconds = max(time.monotonic() - started, 1e-9)
        speed = f"{written.rows / seconds:,.0f} per second"
        print(f"{written.rows:,} rows in {seconds:.1f} s ({speed})", file=sys.stderr)
    if written.failed:
        name, reason = next(iter(written.first.values())), written.first["error"]
        counts = f"{written.failed} of {written.rows} cannot be predicted; see the column `error`"
        print_notes(f"{counts} (the first: {name}: {reason}).")
    if written.failed == written.rows:
        raise typer.Exit(NOTHING_PREDICTED)
