"""MixStyle: its statistics, its gradients (which tell detached from live statistics apart), its sites."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms._base import batch_of
from fgmix.algorithms.mixstyle import EPS, crossdomain_partners, mix_style

PI = torch.tensor([2, 0, 1])


def lambdas(*values: float) -> Tensor:
    return torch.tensor(values).view(-1, 1, 1, 1)


def test_naive_twin() -> None:
    """Sample by sample, channel by channel."""
    h, lam = torch.randn(3, 2, 4, 5) * 3 + 1, lambdas(0.1, 0.5, 0.9)
    expected = torch.empty_like(h)
    for i, j in enumerate(PI.tolist()):
        for c in range(2):
            weight = lam.flatten()[i]
            sigma_i, sigma_j = (h[i, c].var() + EPS) ** 0.5, (h[j, c].var() + EPS) ** 0.5
            normed = (h[i, c] - h[i, c].mean()) / sigma_i
            sigma = weight * sigma_i + (1 - weight) * sigma_j
            expected[i, c] = normed * sigma + weight * h[i, c].mean() + (1 - weight) * h[j, c].mean()
    torch.testing.assert_close(mix_style(h, lam, PI), expected)


def test_lambda_one_and_identical_samples_are_the_identity() -> None:
    h = torch.randn(3, 2, 4, 4)
    torch.testing.assert_close(mix_style(h, lambdas(1, 1, 1), PI), h)
    same = h[:1].expand(3, -1, -1, -1)
    torch.testing.assert_close(mix_style(same, lambdas(0.2, 0.6, 0.9), PI), same)


def test_lambda_zero_takes_the_partners_style() -> None:
    h = torch.randn(3, 2, 6, 6) * torch.tensor([1.0, 2.0, 5.0]).view(3, 1, 1, 1)
    out = mix_style(h, lambdas(0, 0, 0), PI)
    torch.testing.assert_close(out.mean((2, 3)), h.mean((2, 3))[PI], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(out.std((2, 3)), h.std((2, 3))[PI], atol=1e-5, rtol=1e-4)


def test_statistics_take_no_gradient() -> None:
    """d(Σ out_i)/dh_i is σ_mix/σ at every pixel and 0 for the partner; with live statistics it would be λ and 1 − λ."""
    h, lam = torch.randn(3, 2, 4, 4, requires_grad=True), lambdas(0.3, 0.3, 0.3)
    (gradient,) = torch.autograd.grad(mix_style(h, lam, PI)[0].sum(), h)
    sigma = (h.detach().var((2, 3), keepdim=True) + EPS).sqrt()
    expected = (0.3 * sigma[0] + 0.7 * sigma[2]) / sigma[0]
    torch.testing.assert_close(gradient[0], expected.expand(2, 4, 4))
    assert torch.equal(gradient[1:], torch.zeros_like(gradient[1:]))


@pytest.mark.parametrize("size", [1, 2])
def test_tiny_maps_stay_finite(size: int) -> None:
    h = torch.randn(3, 2, size, size, requires_grad=True)
    out = mix_style(h, lambdas(0.1, 0.5, 0.9), PI)
    (gradient,) = torch.autograd.grad(out.sum(), h)
    assert torch.isfinite(out).all()
    assert torch.isfinite(gradient).all()


def test_objective_mixes_after_the_first_two_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = toy_batches(b=2)
    x, y = batch_of(batches)
    lam, pi = lambdas(0.1, 0.9, 0.4, 0.2, 0.5, 0.7), torch.arange(6).roll(1)
    monkeypatch.setattr("fgmix.algorithms.mixstyle.sample_beta", lambda *_: lam)
    monkeypatch.setattr(torch, "randperm", lambda _n: pi)
    method = toy_algorithm("mixstyle", p=1.0).train()
    net = method.featurizer.net
    h = mix_style(net.layer2(mix_style(net.layer1(net.stem(x)), lam, pi)), lam, pi)
    expected = cross_entropy(method.classifier(net.layer3(h).mean((2, 3))), y)
    torch.testing.assert_close(method.objective(batches)["loss"], expected)


def test_probability_zero_is_erm_and_one_always_mixes() -> None:
    batches = toy_batches()
    erm = toy_algorithm("erm").objective(batches)["loss"]
    assert torch.equal(toy_algorithm("mixstyle", p=0.0).objective(batches)["loss"], erm)
    always = toy_algorithm("mixstyle", p=1.0)
    assert all(not torch.equal(always.objective(batches)["loss"], erm) for _ in range(20))


def test_every_stage_tosses_its_own_coin(monkeypatch: pytest.MonkeyPatch) -> None:
    """p = 0.5 at two stages: 0, 1 and 2 mixings in a step all occur."""
    calls: list[int] = []
    monkeypatch.setattr("fgmix.algorithms.mixstyle.mix_style", lambda h, *_: calls.append(1) or h)
    method, seen = toy_algorithm("mixstyle"), set()
    for _ in range(30):
        calls.clear()
        method.objective(toy_batches(b=2))
        seen.add(len(calls))
    assert seen == {0, 1, 2}


def test_nothing_is_added_to_the_network() -> None:
    method, erm = toy_algorithm("mixstyle"), toy_algorithm("erm")
    method.train().step(toy_batches())
    assert [name for name, _ in method.named_parameters()] == [name for name, _ in erm.named_parameters()]
    copy = deepcopy(method)
    assert not any(module._forward_hooks for module in copy.modules())


def test_one_sample_alone_is_erm() -> None:
    batches = toy_batches(1, b=1)
    method, erm = toy_algorithm("mixstyle", n_domains=1, p=1.0), toy_algorithm("erm", n_domains=1)
    torch.testing.assert_close(method.objective(batches)["loss"], erm.objective(batches)["loss"])


@pytest.mark.parametrize("sizes", [[4, 4], [3, 3, 3], [2, 5, 3, 4]])
def test_crossdomain_partners_are_of_one_other_domain(sizes: list[int]) -> None:
    domains = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    for _ in range(5):
        partners = domains[crossdomain_partners(sizes)].split(sizes)
        nexts = [set(part.tolist()) for part in partners]
        assert all(len(n) == 1 and e not in n for e, n in enumerate(nexts))
        assert set.union(*nexts) == set(range(len(sizes)))


def test_crossdomain_of_even_domains_is_a_permutation() -> None:
    assert sorted(crossdomain_partners([4, 4, 4]).tolist()) == list(range(12))
    metrics = toy_algorithm("mixstyle", mix="crossdomain").step(toy_batches())
    assert torch.isfinite(metrics["loss"])
