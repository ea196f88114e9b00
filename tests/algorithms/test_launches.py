"""Kernel launches of a step, which bound the speed of small networks on a GPU, counted without one.

Model and batches are on the meta device. Every dispatched operation that computes counts as a launch: views, empty
tensors and work on the host do not. `test_synchronisation` tests that no step waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from algorithms.test_synchronisation import INSIDE, WAITING, on_meta, settings_of
from algorithms.test_synchronisation import meta as meta  # a fixture
from algorithms.toys import toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import get
from fgmix.testing.toys import SHAPE, run_steps

aten = torch.ops.aten
FREE = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided, aten._unsafe_view}


def find_tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from find_tensors(part)


class Launches(TorchDispatchMode):
    """Counts launches on the device, and copies to it from the host."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = list(find_tensors((args, kwargs, result)))
        on_device = any(t.is_meta for t in tensors)
        if on_device and not func.is_view and func.overloadpacket not in FREE:
            from_host = func.overloadpacket in (aten._to_copy, aten.copy_) and not all(t.is_meta for t in tensors)
            self.copies += from_host
            self.launches += not from_host
        return result


# Launches of a step on two linear layers, or a small network where a method looks into it. A method that is not listed
# may have `MANY`. Raise a number only with a reason: on a GPU, a launch takes about 5 µs of the host.
MANY = 200
LAUNCHES = {
    "andmask": 156,
    "cad": 92,
    "causirl_coral": 117,
    "causirl_mmd": 98,
    "cdann": 75,
    "coral": 125,
    "dann": 61,
    "ddg": 538,
    "eqrm": 503,
    "erm": 24,
    "fgmix": 200,
    "fgmix_a": 88,
    "fgmix_b": 99,
    "fgmix_c": 117,
    "fgmix_d": 117,
    "fgmix_e": 166,
    "fgmix_f": 190,
    "fgmix_u": 86,
    "fish": 80,
    "fishr": 166,
    "groupdro": 53,
    "ib_erm": 77,
    "ib_irm": 155,
    "iga": 299,
    "irm": 125,
    "l2a_ot": 1209,
    "metamixup": 195,
    "miro": 201,
    "mixup": 80,
    "mldg": 89,
    "mmd": 89,
    "mtl": 65,
    "pcgrad": 169,
    "ridg": 109,
    "rsc": 77,
    "sandmask": 258,
    "sd": 34,
    "selfreg": 120,
    "transfer": 763,
    "trm": 444,
    "vrex": 56,
}
COPIES = {"manifold_mixup": 2}  # small ones, of random draws on the host, that no step waits for


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("name", [name for name in algorithms.names() if name not in {*WAITING, "tent"}])
def test_a_step_has_no_more_launches_and_copies_than_before(name: str) -> None:
    shape = SHAPE if get(name).needs_stages or name in INSIDE else (6,)
    toy = toy_algorithm(name, shape=shape, **settings_of(name, "at_work"))
    algorithm, batches = on_meta(toy, toy_batches(b=4, shape=shape))
    run_steps(algorithm, batches, 0, 2)  # optimisers make their state in the first
    algorithm.measures = False  # as nine of ten steps of a run
    with Launches() as counter:
        run_steps(algorithm, batches, 2, 3)
    assert counter.launches <= LAUNCHES.get(name, MANY)
    assert counter.copies <= COPIES.get(name, 1)


def test_views_empty_tensors_and_the_host_are_free() -> None:
    x = torch.ones(3, 2, device="meta")
    with Launches() as counter:
        _ = x.T.reshape(2, 3).detach(), torch.empty_like(x), torch.randperm(3).sum()
    assert (counter.launches, counter.copies) == (0, 0)
    with Launches() as counter:
        _ = x + 1, x.sum(), torch.ones(3, 2).to("meta")
    assert (counter.launches, counter.copies) == (2, 1)
