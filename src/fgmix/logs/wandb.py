"""Weights & Biases: a run of ours is a run there, with an id of its own, in the project `fgmix`.

The account, the project (WANDB_PROJECT) and whether anything is sent (WANDB_MODE=offline) are wandb's own settings.
"""

from __future__ import annotations

import os
from pathlib import Path

import wandb

from fgmix.runs.spec import ResolvedSpec


class WandB:
    """A run of Weights & Biases.

    Args:
        out: the folder of runs, in which wandb makes its own folder.
        spec: of the run, which becomes its configuration.
    """

    def __init__(self, out: Path, spec: ResolvedSpec) -> None:
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fgmix"),
            id=spec.name.rpartition("-")[2],  # the digest: an id may hold no other character of a domain's name
            name=spec.name,
            group=spec.dataset_name,
            config=spec.as_dict(),
            dir=str(out),
            resume="allow",
        )

    def has(self, tag: str, step: int) -> bool:  # noqa: ARG002
        """A run that is resumed begins behind its last step. One that is offline begins at 0 and is whole by itself."""
        return bool(step < self.run.starting_step)

    def write(self, step: int, points: dict[str, float]) -> None:
        self.run.log(points, step=step, commit=True)

    def close(self) -> None:
        self.run.finish()
