"""Weights & Biases: a run of fgmix is a run in the project `fgmix`, with the digest of its spec as id.

The account, the project (WANDB_PROJECT) and whether anything is sent (WANDB_MODE=offline) are wandb's own settings.
"""

from __future__ import annotations

import os
from pathlib import Path

import wandb

from fgmix.records.schema import ResolvedSpec, to_plain


class WandB:
    """The Weights & Biases run of one fgmix run.

    Args:
        out: the folder of runs, in which wandb creates its own folder.
        spec: of the run, logged as its configuration.
    """

    def __init__(self, out: Path, spec: ResolvedSpec) -> None:
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fgmix"),
            id=spec.name.rpartition("-")[2],  # the digest: an id may not contain all characters of a domain's name
            name=spec.name,
            group=spec.dataset_name,
            config=to_plain(spec),
            dir=str(out),
            resume="allow",
        )

    def has(self, tag: str, step: int) -> bool:  # noqa: ARG002
        """A resumed run starts after its last logged step; an offline run starts at 0 and is logged as a whole."""
        return bool(step < self.run.starting_step)

    def write(self, step: int, points: dict[str, float]) -> None:
        self.run.log(points, step=step, commit=True)

    def close(self) -> None:
        self.run.finish()
