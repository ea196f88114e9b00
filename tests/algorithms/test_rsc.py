"""RSC against DomainBed's update written out with numpy's percentiles, and its masks counted by hand."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from algorithms.toys import linear_algorithm, toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.rsc import _below_quantile
from reference.twin import Twin, assert_follows


def domainbed_step(twin: Twin, batches: Batches, f: float, b: float) -> None:
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    z = twin.g(x)
    logits = twin.h(z)
    onehot = one_hot(y, logits.shape[1])
    steepness = torch.autograd.grad((logits * onehot).sum(), z, retain_graph=True)[0]
    limits = np.percentile(steepness.numpy(), 100 * (1 - f), axis=1)
    muted_f = torch.stack([row >= limit for row, limit in zip(steepness, limits)])

    before = (logits.softmax(1) * onehot).sum(1)
    after = (twin.h(z * ~muted_f).softmax(1) * onehot).sum(1)
    fall = (before - after).detach()
    muted_b = fall >= np.percentile(fall.numpy(), 100 * (1 - b))

    muted = muted_f & muted_b[:, None]
    twin.descend(cross_entropy(twin.h(z * ~muted), y))


@pytest.mark.parametrize(("f", "b"), [(1 / 3, 1 / 3), (0.5, 0.1), (0.0, 0.5)])
def test_steps_are_domainbed_s(f: float, b: float) -> None:
    assert_follows("rsc", lambda twin, batches, _: domainbed_step(twin, batches, f, b), f=f, b=b)


@pytest.mark.parametrize("d", [64, 96, 97, 256])
def test_quantile_is_numpy_s_percentile_where_its_position_is_a_whole_number(d: int) -> None:
    values = torch.randn(5, d)
    for share in (0.1, 0.25, 1 / 3, 0.5):
        limit = np.percentile(values.numpy(), 100 * (1 - share), axis=1).astype(np.float32)
        np.testing.assert_array_equal(_below_quantile(values, 1 - share), values.numpy() < limit[:, None])


def test_a_linear_head_mutes_the_features_of_largest_weight() -> None:
    """∂h(z)_y/∂z is row y of the weights. f = 0.4 of 5 features are 2; b = 1 mutes in all samples."""
    rsc = linear_algorithm("rsc", d=5, classes=3, n_domains=1, f=0.4, b=1.0)
    z, y = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    largest = rsc.classifier.weight[y].topk(2, dim=1).indices
    expected = torch.ones(6, 5, dtype=torch.bool).scatter_(1, largest, False)
    assert torch.equal(rsc._keep(z, y), expected)


def test_no_share_of_samples_mutes_only_the_one_hit_most() -> None:
    """DomainBed's strict comparison: the largest fall is not below the maximum."""
    rsc = linear_algorithm("rsc", d=5, classes=3, n_domains=1, f=0.4, b=0.0)
    z, y = torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    touched = (~rsc._keep(z, y)).any(1)
    assert touched.sum() == 1


def test_masks_leave_no_gradient_behind() -> None:
    rsc = toy_algorithm("rsc", shape=(6,))
    z, y = torch.randn(6, 256), torch.tensor([0, 1, 2, 0, 1, 2])
    rsc._keep(z, y)
    assert all(parameter.grad is None for parameter in rsc.parameters())


def test_batches_of_one_train() -> None:
    assert toy_algorithm("rsc", shape=(6,)).step(toy_batches(b=1, shape=(6,)))["kept"] < 1
