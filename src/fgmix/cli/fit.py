"""fgmix fit: data of one's own → a model and an honest number for a domain never seen."""

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


def fit(
    data: Annotated[str, typer.Argument(help="folder domain/class/image, .npz file with X, y, domain, or a name")],
    out: Annotated[Path, typer.Option(help="folder of the model")],
    algorithm: Annotated[str, typer.Option(help="see `fgmix list algorithms`")] = "fgmix",
    backbone: Backbone = None,
    pretrained: Pretrained = None,
    weights: Weights = None,
    image_size: ImageSize = None,
    steps: Steps = None,
    batch_size: BatchSize = None,
    holdout_fraction: HoldoutFraction = 0.2,
    bf16: Bf16 = False,
    averaging: Averaging = "swa",
    set_: Set = None,
    seed: Seed = 0,
    estimate: Annotated[bool, typer.Option(help="hold every domain out once, for the honest number")] = True,
    min_confidence: Annotated[float, typer.Option(help="below it a prediction is not trusted")] = 0.5,
    data_root: DataRoot = None,
    skip_unreadable: SkipUnreadable = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a model on all domains, and measure by holding each out what to expect of a new one."""
    from fgmix.deploy.fit import CARD, fit
    from fgmix.runs.spec import RunSpec

    spec = RunSpec(
        dataset=data,
        algorithm=algorithm,
        test_domains=(),
        settings=settings_of(algorithm, set_),
        backbone=backbone,
        pretrained=pretrained,
        weights=weights,
        image_size=image_size,
        steps=steps,
        batch_size=batch_size,
        holdout_fraction=holdout_fraction,
        bf16=bf16,
        averaging=averaging,  # type: ignore[arg-type]  # checked by RunSpec
        seed=seed,
        data_root=data_root,
        skip_unreadable=skip_unreadable,
    )
    fit(spec, out, estimated=estimate, min_confidence=min_confidence, device=device, progress=not quiet)
    print((out / CARD).read_text(encoding="utf-8"), end="")
    print(f"\nModel: {out}")
