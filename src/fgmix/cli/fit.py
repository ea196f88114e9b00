"""fgmix fit: data of one's own → a model and an honest number for a domain never seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgmix.errors import UserError


def fit(
    data: Annotated[str, typer.Argument(help="folder domain/class/image, .npz file with X, y, domain, or a name")],
    out: Annotated[Path, typer.Option(help="folder of the model")],
    algorithm: Annotated[str, typer.Option(help="see `fgmix list algorithms`")] = "fgmix",
    backbone: Annotated[str | None, typer.Option(help="see `fgmix list backbones`")] = None,
    pretrained: Annotated[bool | None, typer.Option(help="start from timm's published weights")] = None,
    weights: Annotated[str | None, typer.Option(help="weights file for the backbone")] = None,
    image_size: Annotated[int | None, typer.Option(help="side of the square that the network sees")] = None,
    steps: Annotated[int | None, typer.Option(help="optimisation steps of each run")] = None,
    batch_size: Annotated[int | None, typer.Option(help="instances per domain and step")] = None,
    holdout_fraction: Annotated[float, typer.Option(help="share of each domain that selects weights")] = 0.2,
    bf16: Annotated[bool, typer.Option(help="autocast to bfloat16")] = False,
    averaging: Annotated[str, typer.Option(help="swa, swad or none")] = "swa",
    set_: Annotated[list[str] | None, typer.Option("--set", help="name=value of a setting; repeat it")] = None,
    seed: Annotated[int, typer.Option(help="weights, batches, augmentation, the method's draws")] = 0,
    estimate: Annotated[bool, typer.Option(help="hold every domain out once, for the honest number")] = True,
    min_confidence: Annotated[float, typer.Option(help="below it a prediction is not trusted")] = 0.5,
    data_root: Annotated[str | None, typer.Option(envvar="FGMIX_DATA", help="folder of the datasets")] = None,
    skip_unreadable: Annotated[bool, typer.Option(help="leave undecodable images out")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")] = "auto",
    quiet: Annotated[bool, typer.Option(help="no progress bar")] = False,
) -> None:
    """Train a model on all domains, and measure by holding each out what to expect of a new one."""
    from fgmix.algorithms import get
    from fgmix.cli.train import pairs_of
    from fgmix.deploy import fit_model
    from fgmix.deploy.fitting import CARD
    from fgmix.spec import RunSpec

    pairs = pairs_of(set_ or [])
    if "steps" in pairs:
        raise UserError("The number of steps is given with --steps, not with --set.")
    spec = RunSpec(
        dataset=data,
        algorithm=algorithm,
        test_domains=(),
        settings=get(algorithm).Config.parse(pairs),
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
    fit_model(spec, out, estimated=estimate, min_confidence=min_confidence, device=device, progress=not quiet)
    print((out / CARD).read_text(encoding="utf-8"), end="")
    print(f"\nModel: {out}")
