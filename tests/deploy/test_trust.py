"""Temperature, calibration error and novelty, each against its definition worked out another way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fgmix.deploy.model import Network
from fgmix.deploy.trust import Floats, calibration_error, confidences, fit_familiar, fit_temperature, squared_distances

RNG = np.random.default_rng(0)


def nll(logits: Floats, y: np.ndarray, T: float) -> float:
    """Cross-entropy as its definition says."""
    p = np.exp(logits / T)
    p /= p.sum(axis=1, keepdims=True)
    return float(-np.mean([np.log(p[i, label]) for i, label in enumerate(y)]))


def test_temperature_is_where_the_risk_is_least() -> None:
    logits = [3 * RNG.normal(size=(200, 4)), RNG.normal(size=(50, 4))]
    y = [np.where(RNG.random(len(z)) < 0.6, z.argmax(1), RNG.integers(0, 4, len(z))) for z in logits]
    T = fit_temperature(logits, y)

    def risk(t: float) -> float:
        return (nll(logits[0], y[0], t) + nll(logits[1], y[1], t)) / 2  # each domain weighs the same

    grid = np.exp(np.linspace(-3, 3, 2001))
    best = grid[np.argmin([risk(t) for t in grid])]
    assert pytest.approx(best, rel=0.01) == T
    pooled = grid[np.argmin([nll(np.concatenate(logits), np.concatenate(y), t) for t in grid])]
    assert abs(T - pooled) > 0.02 * T  # a large domain does not drown a small one


def test_probabilities_sharpen_with_a_low_temperature_and_keep_their_order() -> None:
    logits = RNG.normal(size=(10, 5))
    cold, warm = confidences(logits, 0.5), confidences(logits, 2.0)
    np.testing.assert_allclose(cold.sum(1), 1)
    assert (cold.max(1) > warm.max(1)).all()
    assert (cold.argmax(1) == warm.argmax(1)).all()


def test_calibration_error_by_hand() -> None:
    """Two bins are met: 0.95 confident and half right; 0.55 confident and always right."""
    p = np.array([[0.95, 0.05], [0.95, 0.05], [0.55, 0.45], [0.45, 0.55]])
    assert calibration_error(p, np.array([0, 1, 0, 1])) == pytest.approx((2 * 0.45 + 2 * 0.45) / 4)


def test_novelty_is_mahalanobis_distance_over_the_limit() -> None:
    mixing = RNG.normal(size=(3, 3))
    y = RNG.integers(0, 2, 4000)
    means = np.array([[0.0, 0, 0], [5, 5, 5]])
    z = RNG.normal(size=(4000, 3)) @ mixing.T + means[y]
    held_out = RNG.normal(size=(1000, 3)) @ mixing.T + means[RNG.integers(0, 2, 1000)]
    familiar = fit_familiar(z, y, held_out)
    precision = np.linalg.inv(mixing @ mixing.T)
    points = 4 * RNG.normal(size=(50, 3))
    naive = [min((p - m) @ precision @ (p - m) for m in means) for p in points]
    found = familiar.novelty(points) * familiar.limit
    np.testing.assert_allclose(found, naive, rtol=0.15)  # estimated from 4,000 codes, shrunk a little
    assert (familiar.novelty(held_out) <= 1).mean() == pytest.approx(0.99, abs=0.002)


def test_single_precision_keeps_the_novelty_of_classes_that_lie_far_apart() -> None:
    """A well-trained network draws classes together: here, means are 1,000 times as far apart as codes from them."""
    y = np.arange(300) % 3
    means = 1000 * RNG.normal(size=(3, 16))
    z, held_out, new = (means[y] + RNG.normal(size=(300, 16)) for _ in range(3))
    familiar = fit_familiar(z, y, held_out)
    network = Network(nn.Identity(), nn.Linear(16, 3), 1.0, familiar).eval()
    with torch.no_grad():
        _, novelty = network(torch.from_numpy(new).float())
    np.testing.assert_allclose(novelty.numpy(), familiar.novelty(new), rtol=0.01)


def test_codes_of_known_classes_only() -> None:
    """A class that training has not seen has no mean; fewer codes than dimensions, and dead units, are no problem."""
    z = np.hstack([RNG.normal(size=(10, 20)), np.zeros((10, 5))])
    familiar = fit_familiar(z, np.array([0, 3] * 5), z[:4])
    assert familiar.means.shape == (2, 25)
    assert np.isfinite(familiar.novelty(RNG.normal(size=(7, 25)))).all()


def test_codes_that_are_all_one_do_not_divide_by_zero() -> None:
    z = np.ones((6, 3))
    familiar = fit_familiar(z, np.zeros(6, dtype=np.int64), z)
    assert (familiar.novelty(z) <= 1).all()
    assert (familiar.novelty(z + 1) > 1).all()


def test_squared_distances_are_those_of_the_loop() -> None:
    a, b = RNG.normal(size=(6, 4)), RNG.normal(size=(3, 4))
    naive = [[((u - v) ** 2).sum() for v in b] for u in a]
    np.testing.assert_allclose(squared_distances(a, b), naive)
