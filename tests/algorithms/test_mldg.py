"""MLDG against a twin of DomainBed's update, which clones the network for every pair and steps a real Adam on it."""

from __future__ import annotations

import copy
from itertools import cycle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms.gradient_twins import assert_same_weights, double_batches, double_pair, plain_adam
from algorithms.toys import toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Batches
from fgmix.algorithms.mldg import meta_pairs


def accumulate_as_domainbed(
    network: nn.Module, batches: Batches, beta: float, meta_test: int, weight_decay: float
) -> float:
    """Fill the gradients of `network` as DomainBed does; its reported loss."""
    k = len(batches)
    for p in network.parameters():
        p.grad = torch.zeros_like(p)
    order = torch.randperm(k).tolist()
    loss = 0.0
    for i, j in zip(order[: k - meta_test], cycle(order[-meta_test:])):
        n = min(len(batches[i][1]), len(batches[j][1]))
        (x_i, y_i), (x_j, y_j) = ((x[:n], y[:n]) for x, y in (batches[i], batches[j]))
        clone = copy.deepcopy(network)
        optimizer = plain_adam(clone, weight_decay=weight_decay)
        optimizer.zero_grad()
        inner = cross_entropy(clone(x_i), y_i)
        inner.backward()
        optimizer.step()
        outer = cross_entropy(clone(x_j), y_j)
        grads_j = torch.autograd.grad(outer, list(clone.parameters()))
        for p, q, g_j in zip(network.parameters(), clone.parameters(), grads_j):
            p.grad += (q.grad + beta * g_j) / k
        loss += (inner + beta * outer).item() / k
    return loss


@pytest.mark.parametrize(("k", "meta_test", "beta"), [(2, 1, 1.0), (3, 2, 1.0), (3, 1, 0.3), (5, 2, 4.0)])
def test_steps_are_domainbeds(k: int, meta_test: int, beta: float) -> None:
    mldg, network = double_pair("mldg", n_domains=k, meta_test=meta_test, beta=beta, weight_decay=1e-2)
    optimizer = plain_adam(network, weight_decay=1e-2)
    for step in range(3):
        batches = double_batches(k, seed=step)
        batches[0] = (batches[0][0][:5], batches[0][1][:5])  # pairs are cut to the shorter batch
        torch.manual_seed(step)
        loss = accumulate_as_domainbed(network, batches, beta, meta_test, weight_decay=1e-2)
        optimizer.step()
        torch.manual_seed(step)
        assert mldg.step(batches)["loss"].item() == pytest.approx(loss)
        assert_same_weights(mldg, network)


def test_every_meta_train_domain_has_a_partner_from_the_meta_test_ones() -> None:
    torch.manual_seed(0)
    pairs = meta_pairs(6, meta_test=2)
    train, test = [i for i, _ in pairs], [j for _, j in pairs]
    assert len(train) == len(set(train)) == 4
    assert test == [test[0], test[1]] * 2
    assert set(train) | set(test) == set(range(6))


def test_with_two_domains_one_is_left_for_meta_train() -> None:
    torch.manual_seed(0)
    assert {tuple(meta_pairs(2, meta_test=2)) for _ in range(20)} == {((0, 1),), ((1, 0),)}


def test_the_default_learns_from_two_domains() -> None:
    mldg = toy_algorithm("mldg", n_domains=2, shape=(6,))
    batches = toy_batches(2, shape=(6,))
    torch.manual_seed(0)
    losses = [mldg.step(batches)["loss"].item() for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]


def test_the_inner_step_leaves_no_trace_on_the_network() -> None:
    """With β = 0 the step is that of the meta-train domain's gradient at θ."""
    batches = double_batches(2)
    mldg, network = double_pair("mldg", n_domains=2, meta_test=1, beta=0.0)
    torch.manual_seed(3)
    [(i, _)] = meta_pairs(2, meta_test=1)
    torch.manual_seed(3)
    mldg.step(batches)
    optimizer = plain_adam(network)
    x, y = batches[i]
    (cross_entropy(network(x), y) / 2).backward()
    optimizer.step()
    assert_same_weights(mldg, network)


def test_running_statistics_follow_the_data() -> None:
    """DomainBed's go with the discarded clone, and stay at their initial values for ever."""
    featurizer = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
    mldg = algorithms.create("mldg", featurizer=featurizer, classifier=nn.Linear(5, 4), n_domains=2, lr=1e-3).train()
    mldg.step(toy_batches(2, shape=(6,)))
    assert featurizer[1].running_mean.abs().max() > 0
    assert featurizer[1].num_batches_tracked == 2
