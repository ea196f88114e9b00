"""Where and how a run computes: device, precision, torch's threads, deterministic operations."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from fgmix.errors import UserError, bad_value

NVIDIA_VERSION = "/proc/driver/nvidia/version"


def pick_device(name: str) -> torch.device:
    """Return the named device; "auto" is a GPU if there is one, else the CPU."""
    if not isinstance(name, str):
        raise bad_value("device", "a name such as auto, cpu or cuda:1", name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails for `meta`, whose tensors have no values
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:  # of a backend torch lacks
        raise UserError(f"Expected a device that torch can use here. Found {name!r}. Try auto or cpu.") from error
    return device


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which networks compute in bfloat16, or one without effect.

    float16 is not supported: its gradients underflow without loss scaling, which every algorithm that calls `backward`
    or `torch.autograd.grad` by itself would have to do.
    """
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads within the block."""
    if count < 1:
        raise bad_value("threads", "a positive integer", count)
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic_operations() -> Iterator[None]:
    """Let torch use only deterministic operations within the block; others raise an error.

    Not needed on a CPU; on a GPU some sums depend on the order in which its threads finish.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read by cuBLAS when it is first used
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        reason = str(error).split(". ")[0]
        raise UserError(
            f"Expected operations that are deterministic on this device. Found others ({reason}). Train without "
            "--deterministic."
        ) from error
    finally:
        torch.use_deterministic_algorithms(before)


def describe_environment() -> dict[str, Any]:
    """Describe versions and machine, as needed to reproduce a run."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
    }


def describe_gpu(device: torch.device) -> dict[str, str] | None:
    """Return the name of the GPU and the versions of its driver, CUDA and cuDNN; None without a GPU."""
    if device.type != "cuda":
        return None
    cudnn = torch.backends.cudnn.version()
    return {
        "name": torch.cuda.get_device_name(device),
        "driver": _read_driver_version(),
        "cuda": torch.version.cuda or torch.version.hip or "unknown",
        "cudnn": "none" if cudnn is None else str(cudnn),
    }


def _read_driver_version() -> str:
    """Read the version of the kernel driver from /proc: torch does not provide it."""
    try:
        with open(NVIDIA_VERSION, encoding="utf-8") as file:
            words = file.readline().split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[0].isdecimal() and "." in word), "unknown")
