"""Commands of a trained model: predict, monitor, compare, export; and soup, which makes a model of runs."""

from __future__ import annotations

import io
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.help import OTHERS
from fgmix.cli.options import Device, Flags, Quiet, flags, parse_shares
from fgmix.cli.plot import Opening
from fgmix.records.files import write_bytes
from fgmix.records.locks import hold_new_file
from fgmix.terminal import print_lines, print_markdown, print_notes, print_phase

NOTHING_PREDICTED = FAR = 1  # exit codes
MADE = "folder that `fgmix fit` or `fgmix soup` wrote"
Model = Annotated[Path, typer.Argument(metavar="MODEL", help=MADE)]
REQUIRED, MODEL, WHICH = "Required", "Model", "Which runs"  # groups of options of soup


def predict(
    model: Model,
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGES", help="images, folders of images, a manifest, or one table or .npz file with X"
        ),
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
        typer.Option(metavar="CLASS=X", help="flag a class so that this share of it is found; repeatable"),
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
    print_phase("loading torch and the model", quiet=quiet)
    from fgmix.deploy.model import load_model
    from fgmix.deploy.predict import predict_paths, write_rows
    from fgmix.deploy.summary import describe_adaptation

    chosen: Any = format or ("jsonl" if out is not None and out.suffix == ".jsonl" else "csv")
    with nullcontext() if out is None else hold_new_file(out):  # fails before hours of predicting
        loaded = load_model(model, device)
        if sensitivity:
            loaded = loaded.want_sensitivity(parse_shares(sensitivity, "--sensitivity"))
        started = time.monotonic()
        rows = predict_paths(loaded, images, probabilities=probabilities, progress=not quiet, adapt=adapt)
        text = io.StringIO(newline="")
        written = write_rows(rows, sys.stdout if out is None else text, chosen)
        if out is not None:
            write_bytes(out, text.getvalue().encode())
    if adapt and not quiet:  # it was not refused
        print_notes(describe_adaptation(loaded.info))
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
    print_phase("loading torch and the model", quiet=quiet)
    from fgmix.deploy.model import load_model
    from fgmix.deploy.monitor import monitor as monitor_batch

    report = monitor_batch(load_model(model, device), batch, baseline or (), progress=not quiet)
    print_lines(report.lines())
    if report.is_far:
        raise typer.Exit(FAR)


def compare(
    model_a: Annotated[Path, typer.Argument(metavar="MODEL_A", help=MADE)],
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
    print_phase("loading torch and the models", quiet=quiet)
    from fgmix.deploy.compare import compare_models
    from fgmix.deploy.model import load_model

    a, b = (load_model(folder, device) for folder in (model_a, model_b))
    print_markdown("\n".join(compare_models(a, b, data, progress=not quiet).lines()))


def export(
    model: Model,
    format: Annotated[str, typer.Option(help="onnx, or pt2 (torch.export)")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the file; by default model.<format> in the model's folder")
    ] = None,
) -> None:
    """Export a model to one file, and check its predictions.

    Example: fgmix export model
    """
    print_phase("loading torch and the model")
    from fgmix.deploy.export import export_model
    from fgmix.deploy.model import load_model

    where = out or model / f"model.{format}"
    path = export_model(load_model(model), where, format, progress=True)  # type: ignore[arg-type]
    print(f"Written and checked: {path} ({path.stat().st_size / 1e6:.1f} MB)")


@flags(opening=Flags(Opening, omit=("which", "model", "seed"), everyday=("device",), section=OTHERS))
def soup(
    opening: dict[str, Any],
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS", help="folders of finished runs, or folders that contain them")
    ],
    out: Annotated[Path, typer.Option(help="folder of the model", rich_help_panel=REQUIRED)],
    how: Annotated[
        str,
        typer.Option(help="uniform or greedy (mean of weights), or ensemble (mean of logits)", rich_help_panel=MODEL),
    ] = "uniform",
    alpha: Annotated[
        float | None,
        typer.Option(
            help="interpolate: share of the second of two runs, or of a run against its initial weights (WiSE-FT)",
            rich_help_panel=MODEL,
            hidden=True,
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="raw, swa or swad; by default the average where all runs have one",
            rich_help_panel=MODEL,
        ),
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="only runs of this method", rich_help_panel=WHICH)] = None,
    test_domain: Annotated[
        list[str] | None,
        typer.Option(help="only runs that hold out this domain; repeat for several", rich_help_panel=WHICH),
    ] = None,
    trial_seed: Annotated[int | None, typer.Option(help="only runs of this trial", rich_help_panel=WHICH)] = None,
    quiet: Quiet = False,
) -> None:
    """Combine finished runs into one model.

    It is evaluated on the domain that they held out.

    Example: fgmix soup sweep --algorithm erm --test-domain sketch --trial-seed 0 --out soup --how greedy
    """
    print_phase("loading torch and the runs", quiet=quiet)
    from fgmix.deploy.card import CARD
    from fgmix.deploy.soup import soup as make_soup

    make_soup(
        runs,
        out,
        kind=how,  # type: ignore[arg-type]  # checked there
        alpha=alpha,
        weights=weights,  # type: ignore[arg-type]
        algorithm=algorithm,
        test_domains=test_domain or (),
        trial_seed=trial_seed,
        progress=not quiet,
        **opening,
    )
    print_markdown((out / CARD).read_text(encoding="utf-8"))
    print(f"\nModel: {out}")
