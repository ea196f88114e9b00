"""CAD and CondCAD against DomainBed's bottleneck, sample by sample."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.properties import assert_order_of_domains_is_irrelevant
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from reference.twin import Twin, assert_follows


def bottleneck(z: Tensor, y: list[int], e: list[int], T: float, conditional: bool, flipped: bool) -> Tensor:
    """Of every sample the log of a share of exponentials; a sample's similarity with itself is 0."""
    terms = []
    for i in range(len(y)):
        s = {j: z[i] @ z[j] / T if j != i else torch.zeros((), dtype=z.dtype) for j in range(len(y))}
        of_class = [j for j in s if y[j] == y[i] and j != i]
        if conditional:
            counted = [j for j in of_class if (e[j] != e[i]) == flipped]
            compared, needed = of_class, counted
        else:
            counted = [j for j in s if (e[j] != e[i]) == flipped]
            compared, needed = [j for j in s if j != i], of_class
        if not needed or not counted:
            continue
        share = torch.stack([s[j].exp() for j in counted]).sum() / torch.stack([s[j].exp() for j in compared]).sum()
        terms.append((-1 if flipped else 1) * T / 0.07 * share.log())
    return sum(terms) / len(terms) if terms else torch.zeros((), dtype=z.dtype)


@pytest.mark.parametrize("name", ["cad", "condcad"])
@pytest.mark.parametrize(("flipped", "normalized"), [(True, False), (False, False), (True, True)])
def test_steps_are_domainbeds(name: str, flipped: bool, normalized: bool) -> None:
    def step(twin: Twin, batches: Batches, _: int) -> None:
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        z = twin.g(x)
        domains = [e for e, (_, y_e) in enumerate(batches) for _ in y_e]
        codes = z / z.norm(dim=1, keepdim=True) if normalized else z
        penalty = bottleneck(codes, y.tolist(), domains, 0.5, name == "condcad", flipped)
        twin.descend(cross_entropy(twin.h(z), y) + 2.0 * penalty)

    settings = {"lam": 2.0, "temperature": 0.5, "flipped": flipped, "normalized": normalized}
    assert_follows(name, step, steps=5, per_domain=5, **settings)


@pytest.mark.parametrize("name", ["cad", "condcad"])
def test_samples_without_partners_do_not_count(name: str) -> None:
    algorithm = toy_algorithm(name, n_domains=2, shape=(6,))
    z = torch.randn(5, 3, requires_grad=True)
    y, domain = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 1, 0, 1, 1])
    ours = algorithm.bottleneck(z, y, domain)
    torch.testing.assert_close(ours, bottleneck(z, y.tolist(), domain.tolist(), 0.1, name == "condcad", True))
    assert torch.autograd.grad(ours, z)[0].isfinite().all()


@pytest.mark.parametrize("name", ["cad", "condcad"])
def test_order_of_domains_is_irrelevant(name: str) -> None:
    assert_order_of_domains_is_irrelevant(name)


def test_batches_of_one_have_no_bottleneck() -> None:
    metrics = toy_algorithm("condcad", shape=(6,)).step(toy_batches(b=1, shape=(6,)))
    assert metrics["bottleneck"] == 0
