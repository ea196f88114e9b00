"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fgmix.errors import UserError

Backbone = Annotated[
    str | None,
    typer.Option(help="see `fgmix list backbones`; one that is named starts from random weights unless told"),
]
Pretrained = Annotated[bool | None, typer.Option(help="start from timm's published weights")]
Weights = Annotated[str | None, typer.Option(help="weights file for the backbone")]
ImageSize = Annotated[int | None, typer.Option(help="side of the square that the network sees")]
Steps = Annotated[int | None, typer.Option(help="optimisation steps of a run")]
BatchSize = Annotated[int | None, typer.Option(help="instances per source domain and step")]
HoldoutFraction = Annotated[float, typer.Option(help="share of each domain held out")]
Averaging = Annotated[str, typer.Option(help="swa, swad or none")]
Bf16 = Annotated[bool, typer.Option(help="autocast to bfloat16")]
Set = Annotated[list[str] | None, typer.Option("--set", help="name=value of a setting; repeat it")]
Seed = Annotated[int, typer.Option(help="weights, batches, augmentation, the method's draws")]
DataRoot = Annotated[str | None, typer.Option(envvar="FGMIX_DATA", help="folder of the datasets")]
SkipUnreadable = Annotated[bool, typer.Option(help="leave undecodable images out")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")]
Quiet = Annotated[bool, typer.Option(help="no progress bar")]


def settings_of(algorithm: str, texts: list[str] | None) -> dict[str, Any]:
    """The settings that `--set name=value` texts give a method."""
    from fgmix.algorithms import get

    pairs = pairs_of(texts or [])
    if "steps" in pairs:
        raise UserError("The number of steps is given with --steps, not with --set.")
    return get(algorithm).Config.parse(pairs)


def pairs_of(texts: list[str], option: str = "--set") -> dict[str, str]:
    """["gamma=10"] → {"gamma": "10"}; `option` is what the user typed before them."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"Expected {option} name=value. Found {text!r}.")
        pairs[name.strip()] = value
    return pairs
