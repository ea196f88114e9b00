"""CausIRL against DomainBed's update written out, from the same places of the cuts."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.causirl import random_mixtures
from reference.twin import Twin, assert_follows


def coral_distance(a: Tensor, b: Tensor) -> Tensor:
    return (a.mean(0) - b.mean(0)).pow(2).mean() + (torch.cov(a.T) - torch.cov(b.T)).pow(2).mean()


def mmd_distance(a: Tensor, b: Tensor) -> Tensor:
    def kernel(x: Tensor, y: Tensor) -> Tensor:
        squared = ((x[:, None] - y[None]) ** 2).sum(-1)
        return sum(torch.exp(-(10.0**power) * squared) for power in range(-3, 4)).mean()

    return kernel(a, a) + kernel(b, b) - 2 * kernel(a, b)


@pytest.mark.parametrize(("name", "distance"), [("causirl_coral", coral_distance), ("causirl_mmd", mmd_distance)])
@pytest.mark.parametrize("n_domains", [2, 3])
def test_steps_are_domainbeds(name: str, distance, n_domains: int) -> None:  # type: ignore[no-untyped-def]
    def step(twin: Twin, batches: Batches, _: int) -> None:
        codes = [twin.g(x) for x, _ in batches]
        loss = sum(cross_entropy(twin.h(z), y) for z, (_, y) in zip(codes, batches)) / len(batches)
        first, second = [], []
        for z in codes:
            cut = int(torch.randint(len(z), ()))
            first += list(z[:cut])
            second += list(z[cut:])
        if min(len(first), len(second)) > 1:
            loss = loss + 2.0 * distance(torch.stack(first), torch.stack(second))
        twin.descend(loss)

    assert_follows(name, step, steps=5, n_domains=n_domains, gamma=2.0)
    assert_follows(name, step, steps=5, n_domains=n_domains, gamma=2.0, batch_norm=True)


def test_every_code_is_in_one_mixture_and_every_cut_is_drawn() -> None:
    torch.manual_seed(0)
    z = [torch.arange(3.0)[:, None], 10 + torch.arange(2.0)[:, None]]
    sizes = set()
    for _ in range(60):
        a, b = random_mixtures(z)
        assert sorted(torch.cat([a, b]).flatten().tolist()) == [0, 1, 2, 10, 11]
        sizes.add((int((a < 10).sum()), int((a >= 10).sum())))
    assert sizes == {(i, j) for i in range(3) for j in range(2)}


@pytest.mark.parametrize("name", ["causirl_coral", "causirl_mmd"])
def test_batches_of_one_have_no_penalty(name: str) -> None:
    metrics = toy_algorithm(name, n_domains=2, shape=(6,)).step(toy_batches(2, b=1, shape=(6,)))
    assert metrics["gap"] == 0
    assert metrics["loss"] == metrics["risk"]
