"""TRM against DomainBed's update: heads under SGD, gradients and Hessian products by differentiation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.optim import SGD

from algorithms.properties import assert_resumes_at
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.trm import follow, neumann, weight_gradient
from reference.twin import Twin, assert_follows, assert_same_state, wide


def hessian_product(head: nn.Linear, z: Tensor, y: Tensor, v: Tensor) -> Tensor:
    (first,) = torch.autograd.grad(cross_entropy(head(z), y), head.weight, create_graph=True)
    (second,) = torch.autograd.grad((first * v).sum(), head.weight)
    return second


def series_as_domainbed(v: Tensor, head: nn.Linear, z: Tensor, y: Tensor) -> Tensor:
    """Their first `v -= …` changes the sum as well, which is the same tensor still: v₁ counts twice, v₀ never."""
    v = v.clone()
    total = v
    for _ in range(10):
        v -= hessian_product(head, z, y, v)
        total = v + total
        if total.abs().max() > 10:
            break
    return total


def domainbed_step(twin: Twin, batches: Batches, step: int, anneal: int, lam: float, eta: float) -> None:
    k = len(batches)
    z, labels = [twin.g(x) for x, _ in batches], [y for _, y in batches]
    loss = cross_entropy(twin.h(torch.cat(z)), torch.cat(labels))
    if step >= anneal:
        heads = twin.parts.heads.requires_grad_(True)
        alpha = twin.parts.alpha
        alpha /= alpha.sum(1, keepdim=True)
        optimizer = SGD(heads.parameters(), lr=0.1)
        for _ in range(30):
            optimizer.zero_grad()
            sum(cross_entropy(heads[e](z[e].detach()), labels[e]) for e in range(k)).backward()
            optimizer.step()
        transfer = 0.0
        for q in range(k):
            own = cross_entropy(heads[q](z[q]), labels[q])
            (own_gradient,) = torch.autograd.grad(own, heads[q].weight, create_graph=True)
            others = {
                e: alpha[q, e].data.detach() * cross_entropy(heads[q](z[e]), labels[e]) for e in range(k) if e != q
            }
            (gradient,) = torch.autograd.grad(sum(others.values()), heads[q].weight, retain_graph=True)
            v = series_as_domainbed(gradient, heads[q], z[q].detach(), labels[q])
            transfer = transfer + sum(others.values()) - lam * (v * own_gradient).sum()
            for e, risk in others.items():
                alpha[q, e] *= (eta * risk.detach()).exp()
        loss = loss + transfer / k
    twin.descend(loss)


@pytest.mark.parametrize("anneal", [0, 2, 100])
@pytest.mark.parametrize("n_domains", [2, 3])
def test_steps_are_domainbeds(anneal: int, n_domains: int) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        domainbed_step(twin, batches, step, anneal, lam=0.5, eta=0.3)

    assert_follows("trm", step, steps=5, n_domains=n_domains, whole=True, anneal=anneal, lam=0.5, eta=0.3)


def test_batches_of_different_sizes_are_padded_without_effect() -> None:
    trm, batches = wide(toy_algorithm("trm", shape=(6,), anneal=0, lam=0.5), toy_batches(shape=(6,)))
    batches[1] = (batches[1][0][:5], batches[1][1][:5])
    twin = Twin(trm)
    for step in range(3):
        trm.step(batches)
        domainbed_step(twin, batches, step, 0, lam=0.5, eta=1e-2)
        assert_same_state(trm, twin)


def head_and_data() -> tuple[nn.Linear, Tensor, Tensor]:
    torch.manual_seed(0)
    return nn.Linear(4, 3).double(), torch.randn(7, 4, dtype=torch.float64), torch.randint(3, (7,))


def weigh(y: Tensor) -> tuple[Tensor, Tensor]:
    """One-hot classes and shares of a single domain."""
    return one_hot(y)[None].double(), torch.full((1, len(y), 1), 1 / len(y), dtype=torch.float64)


def test_a_head_follows_as_by_sgd() -> None:
    head, z, y = head_and_data()
    twin = copy.deepcopy(head)
    optimizer = SGD(twin.parameters(), lr=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        cross_entropy(twin(z), y).backward()
        optimizer.step()
    W, bias = head.weight.detach()[None].clone(), head.bias.detach()[None].clone()
    follow(W, bias, z[None], *weigh(y))
    torch.testing.assert_close(W[0], twin.weight.detach())
    torch.testing.assert_close(bias[0], twin.bias.detach())


@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])
def test_series_is_theirs_whether_it_is_cut_or_not(scale: float) -> None:
    head, z, y = head_and_data()
    v = scale * torch.randn(3, 4, dtype=torch.float64)
    series = neumann(v[None], z[None], head(z).detach()[None], weigh(y)[1])[0]
    torch.testing.assert_close(series, series_as_domainbed(v, head, z, y))


def test_the_heads_gradient_is_that_of_differentiation() -> None:
    head, z, y = head_and_data()
    (expected,) = torch.autograd.grad(cross_entropy(head(z), y), head.weight)
    torch.testing.assert_close(weight_gradient(z[None], head(z)[None], *weigh(y))[0], expected)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_resumes_before_at_and_after_the_anneal_step(cut: int) -> None:
    assert_resumes_at("trm", cut, last=4, anneal=2)
