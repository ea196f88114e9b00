"""No method's step makes the host wait for the device.

Model and batches are on the meta device, which has shapes and no numbers: whatever reads a number (`item`, `nonzero`,
`unique`, a copy to the host) fails there by itself. `NoWaiting` adds what meta tensors let pass and CUDA waits for.
Random draws on the host stay ordinary CPU tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Adam
from torch.utils._python_dispatch import TorchDispatchMode

from algorithms.toys import toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches, get
from fgmix.testing.toys import SHAPE, run_steps

aten = torch.ops.aten

# Methods whose step has to wait, each with the reason, which stands on its docs page too.
WAITING: dict[str, str] = {"adrmx": "its random pairs depend on the number of samples of each class in the batch"}


INSIDE = ("manifold_mixup", "miro")  # these accept arrays, and do more on images


class NoWaiting(TorchDispatchMode):
    """Fails on a blocking copy to the device, and on a boolean mask as an index, whose entries CUDA counts first."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket
        if packet in (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_):
            masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
            assert not masks, "A boolean mask as an index: CUDA counts its entries on the host. Use torch.where."
        if packet is aten._to_copy and args[0].device.type == "cpu" and _on_meta(kwargs.get("device")):
            assert kwargs.get("non_blocking"), "A blocking copy to the device: use `.to(device, non_blocking=True)`."
        if packet is aten.copy_ and args[0].is_meta and not args[1].is_meta:
            blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
            assert not blocking, "A blocking copy to the device: use `copy_(…, non_blocking=True)`."
        return func(*args, **kwargs)


def _on_meta(device: object) -> bool:
    return device is not None and torch.device(str(device)).type == "meta"


def cases() -> Iterator[tuple[str, str]]:
    for name in algorithms.names():
        yield name, "at_work"
        if get(name).at_work:
            yield name, "warm-up"
        yield from ((name, form) for form in get(name).forms)


def settings_of(name: str, case: str) -> dict[str, Any]:
    method = get(name)
    return {} if case == "warm-up" else {**method.at_work, **method.forms.get(case, {})}


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """What steps use and the meta device lacks: autocast, and a fused Adam that agrees to be built there."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(sys.modules[Adam.__module__], "_device_dtype_check_for_fused", lambda *_, **__: None)


def on_meta(algorithm: Algorithm, batches: Batches) -> tuple[Algorithm, Batches]:
    """Both on the meta device; the optimisers too, for a move to it makes other parameters."""
    before = list(algorithm.parameters())
    moved = dict(zip(before, algorithm.to("meta").parameters(), strict=True))
    for group in (group for optimizer in algorithm.optimizers().values() for group in optimizer.param_groups):
        group["params"] = [moved.get(parameter, parameter) for parameter in group["params"]]
    return algorithm, [(x.to("meta"), y.to("meta")) for x, y in batches]


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize(("name", "case"), [case for case in cases() if case[0] not in WAITING])
def test_a_step_does_not_wait_for_the_device(name: str, case: str) -> None:
    # An MLP where the method does not look into the network: the step is the same, and layers take most of the time.
    shape = SHAPE if get(name).needs_stages or get(name).needs_norms or name in INSIDE else (6,)
    toy = toy_algorithm(name, shape=shape, **settings_of(name, case))
    algorithm, batches = on_meta(toy, toy_batches(b=4, shape=shape))
    with NoWaiting():
        metrics = run_steps(algorithm, batches, 0, 2)  # optimisers make their state in the first
    assert metrics["loss"].is_meta


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize(
    "waits",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).any()),
        lambda x: x.tolist(),
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: x.masked_select(x > 0),
        lambda x: x[x > 0],
        lambda x: x.index_put_((x > 0,), torch.zeros((), device="meta")),
        lambda x: x.cpu(),
        lambda x: torch.ones(3).to(x.device),
        lambda x: x.copy_(torch.ones(3)),
    ],
)
def test_each_way_of_waiting_is_noticed(waits: Callable[[Tensor], object]) -> None:
    with NoWaiting(), pytest.raises((AssertionError, RuntimeError, NotImplementedError)):
        waits(torch.empty(3, device="meta"))


def test_draws_on_the_host_are_free() -> None:
    x = torch.empty(3, device="meta")
    with NoWaiting():
        order = torch.randperm(3)
        assert sorted(order.tolist()) == [0, 1, 2]
        assert x[order.to(x.device, non_blocking=True)].is_meta
