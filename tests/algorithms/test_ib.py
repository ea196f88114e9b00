"""IB-ERM and IB-IRM against DomainBed's updates written out."""

from typing import Any

import pytest
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_order_of_domains_is_irrelevant, assert_resumes_at
from algorithms.test_irm import penalty_by_autograd
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.errors import UserError
from reference.twin import Twin, assert_follows


def spread(z: Tensor) -> Tensor:
    """The unbiased variance of every number of the code, by its definition, averaged."""
    return sum(((z_i - z.mean(0)) ** 2).mean() for z_i in z) / (len(z) - 1)


def domainbed_step(
    twin: Twin, batches: Batches, step: int, ib: tuple[float, int], irm: tuple[float, int] | None
) -> None:
    codes = [twin.g(x) for x, _ in batches]
    k = len(batches)
    loss = sum(cross_entropy(twin.h(z), y) for z, (_, y) in zip(codes, batches)) / k
    if irm is not None:
        kappa = irm[0] if step >= irm[1] else 1.0
        loss = loss + kappa * sum(penalty_by_autograd(twin.h(z), y) for z, (_, y) in zip(codes, batches)) / k
    loss = loss + (ib[0] if step >= ib[1] else 0.0) * sum(map(spread, codes)) / k
    if step in {ib[1], *((irm[1],) if irm else ())}:
        twin.restart()
    twin.descend(loss)


@pytest.mark.parametrize("anneal", [0, 2, 100])
def test_steps_of_ib_erm_are_domainbeds(anneal: int) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        domainbed_step(twin, batches, step, ib=(20.0, anneal), irm=None)

    assert_follows("ib_erm", step, steps=5, ib_lam=20.0, ib_anneal=anneal)


@pytest.mark.parametrize(("ib_anneal", "irm_anneal"), [(0, 0), (1, 3), (3, 1), (2, 2), (100, 100)])
def test_steps_of_ib_irm_are_domainbeds(ib_anneal: int, irm_anneal: int) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        domainbed_step(twin, batches, step, ib=(20.0, ib_anneal), irm=(50.0, irm_anneal))

    settings: dict[str, Any] = {"ib_lam": 20.0, "ib_anneal": ib_anneal, "irm_lam": 50.0, "irm_anneal": irm_anneal}
    assert_follows("ib_irm", step, steps=5, **settings)


@pytest.mark.parametrize(
    ("name", "settings"), [("ib_erm", {"ib_anneal": 3}), ("ib_irm", {"ib_anneal": 3, "irm_anneal": 2})]
)
@pytest.mark.parametrize("cut", [2, 3, 4])
def test_resumes_before_at_and_after_the_anneal_steps(name: str, settings: dict[str, int], cut: int) -> None:
    assert_resumes_at(name, cut, **settings)


@pytest.mark.parametrize("name", ["ib_erm", "ib_irm"])
def test_order_of_domains_is_irrelevant(name: str) -> None:
    assert_order_of_domains_is_irrelevant(name, ib_anneal=0)


@pytest.mark.parametrize("name", ["ib_erm", "ib_irm"])
def test_batches_of_one_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="at least 2 samples"):
        toy_algorithm(name, shape=(6,)).step(toy_batches(b=1, shape=(6,)))
