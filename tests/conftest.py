"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from workbench import Workbench

ROOT = Path(__file__).resolve().parent.parent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell; tests interrupt themselves
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Toy tensors gain nothing from threads, and two test processes must not fight for two cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.default_generator.manual_seed(0)  # see fgmix.seeding.seed_torch


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """Data, runs, a sweep and models: made once, never changed."""
    import workbench  # loads the command line, sweeps and deploy, which most tests do without

    root = tmp_path_factory.mktemp("workbench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FGMIX_CACHE", str(root / "cache"))
        return workbench.make(root)


@pytest.fixture(scope="session")
def clip_name(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a CLIP model of toy size."""
    import tiny_clip

    return tiny_clip.add_config(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load every tenth sample of `digits`: enough for an example that has to run, and evaluated in no time."""
    from fgmix.data import digits

    load_all = digits.read_or_build
    monkeypatch.setattr(
        digits, "read_or_build", lambda file: {name: (x[::10], y[::10]) for name, (x, y) in load_all(file).items()}
    )


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data beside the checkout; tests that use it skip where it is missing."""
    path = Path(os.environ.get("FGMIX_SHARED_DATA") or ROOT.parent / "shared" / "data")
    if not path.is_dir():
        pytest.skip(f"no shared data at {path}")
    return path


def pytest_runtest_logfinish() -> None:
    """Exclude libraries from garbage collection once they are loaded: a sweep collects after each of its runs.

    Looking at all objects of torch, SciPy and Matplotlib takes 0.2 s of CPU.
    """
    global _modules
    if len(sys.modules) > _modules + 100:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()


_modules = 0  # how many were loaded when they were last excluded
