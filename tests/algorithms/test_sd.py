"""SD against DomainBed's update written out."""

import pytest
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_order_of_domains_is_irrelevant
from fgmix.algorithms import Batches
from fgmix.algorithms._base import batch_of
from reference.twin import Twin, assert_follows


@pytest.mark.parametrize("lam", [0.1, 3.0])
def test_steps_are_domainbeds(lam: float) -> None:
    def step(twin: Twin, batches: Batches, _: int) -> None:
        x, y = batch_of(batches)
        o = twin.h(twin.g(x))
        twin.descend(cross_entropy(o, y) + lam * sum((o_i**2).sum() for o_i in o) / o.numel())

    assert_follows("sd", step, steps=5, lam=lam)


def test_order_of_domains_is_irrelevant() -> None:
    assert_order_of_domains_is_irrelevant("sd")
