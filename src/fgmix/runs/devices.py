"""Where a run computes: the device, and torch's threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fgmix.errors import UserError, bad_value


def pick_device(name: str) -> torch.device:
    """The named device; "auto" takes a GPU where there is one."""
    if not isinstance(name, str):
        raise bad_value("device", "a name such as auto, cpu or cuda:1", name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # the device `meta` makes tensors, without numbers in them
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"Expected a device that torch can use here. Found {name!r}. Try auto or cpu.") from error
    return device


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Within the block torch takes so many threads."""
    if count < 1:
        raise bad_value("threads", "a positive integer", count)
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
