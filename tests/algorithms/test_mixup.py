"""Mixup against a twin of DomainBed's update with the same draws."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms.toys import linear_algorithm, toy_algorithm, toy_batches
from fgmix.algorithms import Algorithm, Batches


def domainbed_update(model: Algorithm, batches: Batches, alpha: float) -> torch.Tensor:
    """One forward pass per pair of the ring, losses summed and divided by k, Adam (not fused)."""
    k = len(batches)
    perm = torch.randperm(k)
    lams = torch.distributions.Beta(alpha, alpha).sample((k,))
    optimizer = torch.optim.Adam([*model.featurizer.parameters(), *model.classifier.parameters()], lr=model.config.lr)
    objective = torch.zeros((), dtype=torch.float64)
    for n in range(k):
        x_i, y_i = batches[perm[n]]
        x_j, y_j = batches[perm[(n + 1) % k]]
        b = min(len(x_i), len(x_j))
        lam = lams[n].item()
        predictions = model.classifier(model.featurizer(lam * x_i[:b] + (1 - lam) * x_j[:b]))
        objective = objective + lam * cross_entropy(predictions, y_i[:b])
        objective = objective + (1 - lam) * cross_entropy(predictions, y_j[:b])
    objective = objective / k
    objective.backward()
    optimizer.step()
    return objective.detach()


@pytest.mark.parametrize("k", [2, 3, 6])
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_step_moves_the_parameters_as_domainbed_does(k: int, uneven: bool, batch_norm: bool) -> None:
    ours = toy_algorithm("mixup", n_domains=k, alpha=0.7)
    if batch_norm:
        ours.featurizer = nn.Sequential(ours.featurizer, nn.BatchNorm1d(ours.code_size, affine=False))
    ours = ours.double()  # Adam turns float32's rounding into steps
    twin = deepcopy(ours)
    batches = [(x.double(), y) for x, y in toy_batches(k, b=6)]
    if uneven:
        batches[0] = batches[0][0][:3], batches[0][1][:3]

    torch.manual_seed(3)
    expected = domainbed_update(twin, batches, alpha=0.7)
    torch.manual_seed(3)
    metrics = ours.step(batches)

    torch.testing.assert_close(metrics["loss"], expected, atol=1e-5, rtol=0)
    for (name, p), q in zip(ours.named_parameters(), twin.parameters()):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=0, msg=name)


def test_identical_domains_give_erms_step() -> None:
    batches = [toy_batches(1, shape=(5,), classes=3)[0]] * 3
    mixup, erm = linear_algorithm("mixup"), linear_algorithm("erm")
    torch.testing.assert_close(mixup.step(batches)["loss"], erm.step(batches)["loss"])
    torch.testing.assert_close(mixup.classifier.weight, erm.classifier.weight)


def test_one_sample_per_domain() -> None:
    metrics = linear_algorithm("mixup").step(toy_batches(b=1, shape=(5,), classes=3))
    assert torch.isfinite(metrics["loss"])
