"""TensorBoard's event files: `tensorboard --logdir OUT/tensorboard` shows a curve per run."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from fgmix.records.schema import ResolvedSpec


class TensorBoard:
    """The event files of one run.

    Args:
        out: the folder of runs, in which event files are in the folder `tensorboard`.
        spec: of the run.
    """

    def __init__(self, out: Path, spec: ResolvedSpec) -> None:
        folder = out / "tensorboard" / spec.name
        before = EventAccumulator(str(folder), size_guidance={SCALARS: 0})  # 0: all of them
        if folder.exists():
            before.Reload()
        tags = before.Tags()[SCALARS]
        self.before = {(tag, event.step) for tag in tags for event in before.Scalars(tag)}
        self.writer = SummaryWriter(str(folder))

    def has(self, tag: str, step: int) -> bool:
        return (tag, step) in self.before

    def write(self, step: int, points: dict[str, float]) -> None:
        for tag, value in points.items():
            self.writer.add_scalar(tag, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
