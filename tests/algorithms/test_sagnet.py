"""SagNet: both randomisations by their properties, both variants against their updates written out."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from algorithms.toys import linear_algorithm, toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.sagnet import SagNet, randomise_content, randomise_style
from reference.twin import Twin, assert_same_weights, wide


def statistics(z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance over all but the sample (codes) or the sample and channel (maps)."""
    flat = z.flatten(2) if z.ndim == 4 else z
    return flat.mean(-1), flat.var(-1)


def naive_style(z: Tensor, alpha: Tensor, pi: Tensor) -> Tensor:
    """One sample after the other, variances interpolated, ε = 1e-5 inside the root."""
    flat = z.flatten(2) if z.ndim == 4 else z[:, None]
    out = []
    for i, row in enumerate(flat):
        other, a = flat[pi[i]], alpha[i]
        mean, var = row.mean(1, keepdim=True), row.var(1, keepdim=True)
        new_mean = a * mean + (1 - a) * other.mean(1, keepdim=True)
        new_var = a * var + (1 - a) * other.var(1, keepdim=True)
        out.append((row - mean) / (var + 1e-5).sqrt() * (new_var + 1e-5).sqrt() + new_mean)
    return torch.stack(out).view_as(z)


def naive_content(z: Tensor, pi: Tensor) -> Tensor:
    flat = z.flatten(2) if z.ndim == 4 else z[:, None]
    out = []
    for i, row in enumerate(flat):
        other = flat[pi[i]].detach()
        content = (other - other.mean(1, keepdim=True)) / (other.var(1, keepdim=True) + 1e-5).sqrt()
        out.append(content * (row.var(1, keepdim=True) + 1e-5).sqrt() + row.mean(1, keepdim=True))
    return torch.stack(out).view_as(z)


@pytest.mark.parametrize("shape", [(5, 7), (5, 3, 4, 4)])
class TestRandomisations:
    def test_both_equal_the_naive_loops_in_value_and_gradient(self, shape: tuple[int, ...]) -> None:
        z = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        alpha, pi, weight = torch.rand(5, dtype=torch.float64), torch.randperm(5), torch.randn(shape)
        for ours, theirs in (
            (randomise_style(z, alpha, pi), naive_style(z, alpha, pi)),
            (randomise_content(z, pi), naive_content(z, pi)),
        ):
            torch.testing.assert_close(ours, theirs)
            gradients = [torch.autograd.grad((out * weight).sum(), z)[0] for out in (ours, theirs)]
            torch.testing.assert_close(*gradients)

    def test_own_style_and_own_content_change_nothing(self, shape: tuple[int, ...]) -> None:
        z, same = torch.randn(shape, dtype=torch.float64), torch.arange(5)
        torch.testing.assert_close(randomise_style(z, torch.ones(5), torch.randperm(5)), z)
        torch.testing.assert_close(randomise_style(z, torch.rand(5), same), z)
        torch.testing.assert_close(randomise_content(z, same), z)

    def test_the_partner_s_style_is_taken_over_and_the_own_style_kept(self, shape: tuple[int, ...]) -> None:
        z, pi = torch.randn(shape, dtype=torch.float64) * 3 + 1, torch.tensor([1, 2, 3, 4, 0])
        mean, var = statistics(z)
        styled = statistics(randomise_style(z, torch.zeros(5), pi))
        torch.testing.assert_close(styled, (mean[pi], var[pi]), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(statistics(randomise_content(z, pi)), (mean, var), rtol=1e-4, atol=1e-6)


def test_steps_are_domainbed_s() -> None:
    """Three passes through g, three optimisers; the second step of g's Adam carries the adversary."""
    w = 0.7
    sagnet, batches = wide(toy_algorithm("sagnet", shape=(6,), w_adv=w), toy_batches(shape=(6,)))
    assert isinstance(sagnet, SagNet)
    twin, s = Twin(sagnet), copy.deepcopy(sagnet.style_network)
    optimizer_g, optimizer_h, optimizer_s = (Adam(net.parameters(), lr=1e-3) for net in (twin.g, twin.h, s))
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    for step in range(3):
        torch.manual_seed(step)
        metrics = sagnet.step(batches)

        torch.manual_seed(step)
        optimizer_g.zero_grad()
        optimizer_h.zero_grad()
        z = twin.g(x)
        content = cross_entropy(twin.h(naive_style(z, torch.rand(len(x)), torch.randperm(len(x)))), y)
        content.backward()
        optimizer_g.step()
        optimizer_h.step()

        optimizer_s.zero_grad()
        style = cross_entropy(s(naive_content(twin.g(x), torch.randperm(len(x)))), y)
        style.backward()
        optimizer_s.step()

        optimizer_g.zero_grad()
        adversary = -w * s(naive_content(twin.g(x), torch.randperm(len(x)))).log_softmax(1).mean(1).mean()
        adversary.backward()
        optimizer_g.step()

        assert_same_weights(sagnet, twin)
        torch.testing.assert_close(sagnet.style_network.state_dict(), s.state_dict(), rtol=0, atol=1e-7)
        torch.testing.assert_close(metrics, {"loss": content, "style": style, "adversary": adversary})


def test_an_indifferent_style_network_costs_w_log_k() -> None:
    sagnet = linear_algorithm("sagnet", w_adv=0.2, lr=1e-12)
    assert isinstance(sagnet, SagNet)
    for parameter in sagnet.style_network.parameters():
        nn.init.zeros_(parameter)
    metrics = sagnet.step(toy_batches(shape=(5,), classes=3))
    assert metrics["adversary"].item() == pytest.approx(0.2 * math.log(3), rel=1e-5)


def test_style_network_starts_apart_from_the_classifier() -> None:
    sagnet = toy_algorithm("sagnet", shape=(6,))
    assert isinstance(sagnet, SagNet)
    assert not torch.equal(sagnet.style_network.weight, sagnet.classifier.weight)


def test_adversary_leaves_the_classifier_and_its_adam_alone() -> None:
    """A step is one of h's Adam and two of g's."""
    sagnet = toy_algorithm("sagnet", shape=(6,))
    sagnet.step(toy_batches(shape=(6,)))
    steps = {
        name: int(sagnet.optimizer.state[p]["step"]) for name, p in sagnet.named_parameters() if "style" not in name
    }
    assert all(count == (1 if name.startswith("classifier") else 2) for name, count in steps.items())


def test_batches_of_one_train() -> None:
    batches: Batches = toy_batches(b=1)
    assert torch.isfinite(toy_algorithm("sagnet").step(batches)["adversary"])
