"""fgmix train: one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgmix.cli.options import (
    Averaging,
    Backbone,
    BatchSize,
    Bf16,
    DataRoot,
    Device,
    HoldoutFraction,
    ImageSize,
    Pretrained,
    Quiet,
    Seed,
    Set,
    SkipUnreadable,
    Steps,
    Weights,
    settings_of,
)
from fgmix.runs.record import RunRecord


def train(
    dataset: Annotated[str, typer.Option(help="registered name, folder domain/class/image, or .npz file")],
    algorithm: Annotated[str, typer.Option(help="see `fgmix list algorithms`")],
    test_domain: Annotated[list[str], typer.Option(help="domain to hold out; twice for a pair")],
    out: Annotated[Path, typer.Option(help="folder in which the run's folder is made")],
    backbone: Backbone = None,
    pretrained: Pretrained = None,
    weights: Weights = None,
    head: Annotated[str, typer.Option(help="linear or mlp")] = "linear",
    dropout: Annotated[float, typer.Option(help="on the latent code")] = 0.0,
    freeze_bn: Annotated[bool | None, typer.Option(help="batch-norm in evaluation mode")] = None,
    image_size: ImageSize = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    eval_every: Annotated[int | None, typer.Option(help="steps between evaluations")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="steps between checkpoints")] = None,
    set_: Set = None,
    seed: Seed = 0,
    trial_seed: Annotated[int, typer.Option(help="split of every domain")] = 0,
    hparams_seed: Annotated[int, typer.Option(help="which draw of a search this is; a label")] = 0,
    holdout_fraction: HoldoutFraction = 0.2,
    classes_per_batch: Annotated[int | None, typer.Option(help="class-aware batches of so many classes")] = None,
    protocol: Annotated[str, typer.Option(help="clean, or domainbed (augmented validation)")] = "clean",
    averaging: Averaging = "swa",
    averaging_start: Annotated[int, typer.Option(help="first step that enters the average")] = 100,
    evaluate_train: Annotated[bool, typer.Option(help="also score the training parts")] = False,
    snapshots: Annotated[int, typer.Option(help="weights to keep on the way, for surface plots")] = 0,
    bf16: Bf16 = False,
    channels_last: Annotated[bool | None, typer.Option(help="memory layout of images")] = None,
    data_root: DataRoot = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train one run. Killed, it goes on when the same command is given again; done, it is not run twice."""
    from fgmix.runs.loop import train
    from fgmix.runs.spec import RunSpec

    spec = RunSpec(
        dataset=dataset,
        algorithm=algorithm,
        test_domains=tuple(test_domain),
        settings=settings_of(algorithm, set_),
        backbone=backbone,
        pretrained=pretrained,
        weights=weights,
        head=head,
        dropout=dropout,
        freeze_bn=freeze_bn,
        image_size=image_size,
        steps=steps,
        batch_size=batch_size,
        eval_every=eval_every,
        checkpoint_every=checkpoint_every,
        seed=seed,
        trial_seed=trial_seed,
        hparams_seed=hparams_seed,
        holdout_fraction=holdout_fraction,
        classes_per_batch=classes_per_batch,
        protocol=protocol,  # type: ignore[arg-type]  # checked by RunSpec
        averaging=averaging,  # type: ignore[arg-type]
        averaging_start=averaging_start,
        evaluate_train=evaluate_train,
        snapshots=snapshots,
        bf16=bf16,
        channels_last=channels_last,
        data_root=data_root,
        skip_unreadable=skip_unreadable,
    )
    record = train(spec, out, device=device, progress=not quiet)
    print("\n".join(summary(record)))


def summary(record: RunRecord) -> list[str]:
    """Lines about a finished run: accuracies of the selected models, and where it lies."""
    if record.status == "diverged":
        return [f"The loss was not finite at step {record.diverged_at}: the run has diverged.", f"Run: {record.folder}"]
    lines = []
    for model in record.models:
        best = record.best(model)
        lines.append(
            f"{model}: best validation {100 * best.validation(record.sources, model):.1f} % at step {best.step}"
        )
        for name, parts in best.accuracy[model].items():
            role = "source" if name in record.sources else "test"
            scores = ", ".join(f"{part} {100 * value:.1f} %" for part, value in parts.items())
            lines.append(f"  {name} ({role}): {scores}")
    return [*lines, f"Run: {record.folder}"]
