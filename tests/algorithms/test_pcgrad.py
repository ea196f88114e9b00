"""PCGrad against hand-made numbers and against Algorithm 1 on the long vectors themselves."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from algorithms.gradient_twins import assert_same_weights, double_batches, double_pair, plain_adam
from fgmix.algorithms import pcgrad
from fgmix.algorithms.pcgrad import gram, random_orders, surgery


def projected(g: Tensor, orders: list[list[int]]) -> Tensor:
    """The rows v_i, from the rows g_i, by the coefficients."""
    return surgery(g @ g.T, torch.tensor(orders)) @ g


def projected_naively(g: Tensor, orders: list[list[int]]) -> Tensor:
    """Algorithm 1 as the paper writes it."""
    v = g.clone()
    for i, others in enumerate(orders):
        for j in others:
            if v[i] @ g[j] < 0:
                v[i] = v[i] - (v[i] @ g[j]) / (g[j] @ g[j]) * g[j]
    return v


def test_two_conflicting_gradients() -> None:
    """Each is projected on the other's original: (.5, .5) and (0, 1)."""
    v = projected(torch.tensor([[1.0, 0.0], [-1.0, 1.0]]), [[1], [0]])
    torch.testing.assert_close(v, torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    torch.testing.assert_close(v.mean(0), torch.tensor([0.25, 0.75]))


@pytest.mark.parametrize(("order", "v_1"), [([1, 2], [0.25, 0.5, 0.25]), ([2, 1], [0.25, 0.25, 0.5])])
def test_the_order_matters_with_three(order: list[int], v_1: list[float]) -> None:
    g = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]])
    torch.testing.assert_close(projected(g, [order, [0, 2], [0, 1]])[0], torch.tensor(v_1))


def test_a_domain_is_not_projected_on_itself() -> None:
    """Unit vectors at 0°, 170° and 190°: v_1 ends at an obtuse angle to g_1, and stays there."""
    angles = [math.radians(a) for a in (0, 170, 190)]
    g = torch.tensor([[math.cos(a), math.sin(a)] for a in angles])
    v_1 = projected(g, [[1, 2], [0, 2], [0, 1]])[0]
    torch.testing.assert_close(v_1, torch.tensor([-0.0283, 0.1607]), atol=1e-4, rtol=0)


def test_without_conflict_nothing_changes_and_a_zero_gradient_is_harmless() -> None:
    g = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert torch.equal(projected(g, [[1, 2], [0, 2], [0, 1]]), g)


def test_coefficients_agree_with_algorithm_1_on_random_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    for k in (2, 3, 6):
        g = torch.randn(k, 4, generator=generator, dtype=torch.float64)  # few dimensions: many conflicts
        orders = random_orders(k).tolist()
        torch.testing.assert_close(projected(g, orders), projected_naively(g, orders))


def test_gram_sums_over_parameter_tensors() -> None:
    g = [[torch.randn(3, 2), torch.randn(4)] for _ in range(3)]
    flat = torch.stack([torch.cat([t.flatten() for t in g_e]) for g_e in g])
    torch.testing.assert_close(gram(g), flat @ flat.T)


def test_orders_are_fresh_permutations_of_the_others() -> None:
    torch.manual_seed(0)
    draws = [random_orders(3).tolist() for _ in range(50)]
    assert {tuple(orders[0]) for orders in draws} == {(1, 2), (2, 1)}
    assert {tuple(orders[2]) for orders in draws} == {(0, 1), (1, 0)}
    assert len({str(orders) for orders in draws}) == 8  # rows are drawn apart from each other


@pytest.mark.parametrize("k", [2, 3, 5])
def test_steps_follow_algorithm_1_over_the_whole_network(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    orders = random_orders(k)
    monkeypatch.setattr(pcgrad, "random_orders", lambda _: orders)
    algorithm, network = double_pair("pcgrad", n_domains=k)
    optimizer = plain_adam(network)
    theta = list(network.parameters())
    conflicts = 0.0
    for step in range(4):
        [(x, y)] = double_batches(1, b=4, seed=step)
        batches = [(x + 0.1 * e, (y + e) % 4) for e in range(k)]  # nearly the same inputs, labels at odds
        grads = [torch.autograd.grad(cross_entropy(network(x), y), theta) for x, y in batches]
        v = projected_naively(torch.stack([parameters_to_vector(g) for g in grads]), orders.tolist())
        for p in theta:
            p.grad = torch.zeros_like(p)
        vector_to_parameters(v.mean(0), [p.grad for p in theta])
        optimizer.step()
        conflicts += algorithm.step(batches)["conflicts"].item()
        assert_same_weights(algorithm, network)
    assert conflicts > 0


def test_identical_domains_are_erm() -> None:
    batches = double_batches(1) * 3
    algorithm, _ = double_pair("pcgrad")
    erm, _ = double_pair("erm")
    metrics = algorithm.step(batches)
    torch.testing.assert_close(metrics["loss"], erm.step(batches)["loss"])
    assert metrics["conflicts"] == 0
    assert_same_weights(algorithm, erm)
