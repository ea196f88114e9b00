"""What a worker keeps after a run: nothing but the data."""

from __future__ import annotations

import os
import signal
import weakref
from pathlib import Path
from typing import Any

import pytest

from fgmix.errors import MachineError
from fgmix.sweeps.design import plan
from fgmix.sweeps.execute import execute
from fgmix.training import loop
from sweeps.toys import make_data, toy_sweep


def signalled(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def raising(kind: type[Exception]) -> Any:
    def act(*_: Any) -> None:
        raise kind("no")

    return act


@pytest.mark.parametrize(
    ("status", "act"),
    [
        ("done", lambda *_: None),
        ("failed", raising(RuntimeError)),
        ("waiting", raising(MachineError)),
        ("stopped", signalled),
    ],
)
def test_memory_is_free_after_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, act: Any) -> None:
    models, build, step = list[Any](), loop.build_algorithm, loop._Loop._step

    def noted(*args: Any) -> Any:
        model = build(*args)
        model.itself = weakref.proxy(model), lambda: model  # a cycle, as hooks make them
        models.append(weakref.ref(model))
        return model

    def acting(self: Any, batches: Any) -> None:
        step(self, batches)
        act()

    monkeypatch.setattr(loop, "build_algorithm", noted)
    monkeypatch.setattr(loop._Loop, "_step", acting)
    run = plan(toy_sweep(make_data(tmp_path)))[0]
    assert execute(run, str(tmp_path), "cpu").status == status
    assert [model() for model in models] == [None]
