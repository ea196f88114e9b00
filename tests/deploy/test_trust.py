"""Temperature, calibration error and novelty, each against its definition worked out another way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fgmix.deploy.calibration import calibrate_logits, fit_temperature, measure_reliability
from fgmix.deploy.network import Network
from fgmix.deploy.novelty import fit_familiar, squared_distances
from fgmix.deploy.trust import JudgedDomain, choose_rule, find_trusted
from fgmix.records.metrics import Floats

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
    cold, warm = calibrate_logits(logits, 0.5), calibrate_logits(logits, 2.0)
    np.testing.assert_allclose(cold.sum(1), 1)
    assert (cold.max(1) > warm.max(1)).all()
    assert (cold.argmax(1) == warm.argmax(1)).all()


def unit(z: Floats) -> Floats:
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def test_novelty_is_mahalanobis_distance_of_directions_over_the_limit() -> None:
    mixing = RNG.normal(size=(4, 4))
    means = np.array([[9.0, 0, 0, 0], [5, 5, 5, 5]])
    y, others = RNG.integers(0, 2, 4000), RNG.integers(0, 2, 1000)
    z, held_out = (RNG.normal(size=(len(c), 4)) @ mixing.T + means[c] for c in (y, others))
    familiar = fit_familiar(z, y, held_out)
    centers = [unit(z)[y == c].mean(0) for c in (0, 1)]
    precision = np.linalg.inv(np.cov((unit(z) - np.array(centers)[y]).T))
    points = 4 * RNG.normal(size=(50, 4)) + means[0]
    lengths, known = (np.linalg.norm(codes, axis=1) for codes in (points, held_out))
    short, long = np.median(known) / lengths, lengths / np.quantile(known, 0.99)
    factor = np.maximum(1, np.maximum(short, long))
    naive = [min((u - m) @ precision @ (u - m) for m in centers) for u in unit(points)] * factor**2
    np.testing.assert_allclose(familiar.novelty(points) * familiar.limit, naive, rtol=0.15)  # shrunk a little
    assert (long > 1).any()
    assert (short > 1).any()
    assert (familiar.novelty(held_out) <= 1).mean() == pytest.approx(0.99, abs=0.002)
    for scale in (20, 1 / 20):  # the same directions, but far outside, or next to nothing
        assert (familiar.novelty(scale * held_out) > 1).mean() > 0.9


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
    assert (familiar.novelty(z * [1, 1, -1]) > 1).all()
    assert np.isfinite(familiar.novelty(0 * z)).all()  # a code without a direction


def judged(correct: np.ndarray, novelty: np.ndarray, confidence: np.ndarray, noise: float = 9.0) -> JudgedDomain:
    """All of one class, novel by their codes alone."""
    return JudgedDomain(
        np.zeros(len(correct), int), confidence, correct, of_codes(novelty), of_codes(np.full(50, noise))
    )


def of_codes(novelty: np.ndarray) -> np.ndarray:
    """Both parts of novelty, of features that lie where they should."""
    return np.stack([novelty, np.zeros_like(novelty)], axis=1)


def test_trust_is_the_least_confidence_that_reaches_the_target() -> None:
    """100 samples each; in x all above 0.5 are correct, in y all above 0.75: of both, as low as 90 % allow."""
    p = np.linspace(0.01, 1, 100)
    x, y = (judged(p > least, np.zeros(100), p) for least in (0.5, 0.75))
    rule = choose_rule([x, y], 1, 0.9)
    assert rule.target == 0.9
    for least in (rule.min_confidence, (rule.min_confidence or 0) - 0.01):
        hits = np.concatenate([j.correct[j.confidence >= least] for j in (x, y)])
        assert (hits.mean() >= 0.9) == (least == rule.min_confidence)
    assert choose_rule([x], 1, 1.0).min_confidence == pytest.approx(0.51)
    assert choose_rule([judged(p < 0, np.zeros(100), p)], 1, 0.9).min_confidence is None  # never correct
    assert choose_rule([x, y], 1, 0.9, min_confidence=0.3).min_confidence == 0.3
    never = choose_rule([judged(p < 0, np.zeros(100), p)], 1, 0.9)
    assert not find_trusted(never, np.zeros(100, int), p, np.zeros((100, 2))).any()


def test_a_handful_of_correct_predictions_is_no_reason_to_trust() -> None:
    p = np.linspace(0.01, 1, 100)
    assert choose_rule([judged(p > 0.9, np.zeros(100), p)], 1, 0.95).min_confidence is None


def test_every_class_reaches_the_target() -> None:
    """Class 0 is almost always correct, class 1 only above 0.8, class 2 never, class 3 is rare."""
    rng = np.random.default_rng(1)
    predicted = rng.choice(4, 3000, p=[0.7, 0.2, 0.095, 0.005])
    p = rng.uniform(0.3, 1, 3000)
    correct = rng.uniform(size=3000) < np.choose(predicted, [0.98, np.where(p > 0.8, 0.97, 0.2), 0.0, 1.0])
    thirds = [np.arange(3000) % 3 == k for k in range(3)]
    domains = [
        JudgedDomain(predicted[t], p[t], correct[t], np.zeros((t.sum(), 2)), np.full((50, 2), 9.0)) for t in thirds
    ]
    rule = choose_rule(domains, 4, 0.9)
    trusted = find_trusted(rule, predicted, p, np.zeros((3000, 2)))
    assert [least is None for least in rule.by_class] == [False, False, True, True]
    assert not trusted[predicted >= 2].any()
    for c in (0, 1):  # the lowest confidence that reaches the target for this class and for all, tried one by one
        own = np.sort(p[(predicted == c) & (p >= (rule.min_confidence or 2))])
        reached = [least for least in own if correct[(predicted == c) & (p >= least)].mean() >= 0.9]
        assert rule.by_class[c] == reached[0]
        assert correct[trusted & (predicted == c)].mean() >= 0.9
    assert correct[trusted].mean() >= 0.9


def test_novelty_counts_where_it_carries_information() -> None:
    correct, p = np.arange(200) % 2 == 0, np.full(200, 0.9)
    telling = np.where(correct, RNG.uniform(0, 2, 200), RNG.uniform(1, 3, 200))
    useless = RNG.uniform(0, 2, 200)
    found = choose_rule([judged(correct, telling, p, noise=0.0)], 1, 0.9)
    assert found.uses_novelty
    assert found.wrong_auroc == pytest.approx(0.875, abs=0.06)
    assert found.noise_auroc == 0
    assert found.novel_above == pytest.approx((1.9, 1), abs=0.1)  # 95 % of the correct ones pass
    assert choose_rule([judged(correct, useless, p, noise=9.0)], 1, 0.9).uses_novelty  # it knows noise
    blind = choose_rule([judged(correct, useless, p, noise=0.0)], 1, 0.4)
    assert not blind.uses_novelty
    one = np.zeros(1, int), np.ones(1)
    assert find_trusted(blind, *one, np.array([[99.0, 0.0]])).all()
    assert not find_trusted(blind, *one, np.array([[99.0, 1.1]])).any()  # features far outside are novel in any case


def test_a_class_is_trusted_for_enough_predictions_of_its_own() -> None:
    """All 25 of class 1 are correct, but fewer than 20 are as confident as all predictions must be for the target."""
    predicted = np.repeat([0, 1], [200, 25])
    p = np.concatenate([np.linspace(0.3, 1, 200), np.linspace(0.5, 0.99, 25)])
    correct = (predicted == 1) | (p > 0.75)
    rule = choose_rule([JudgedDomain(predicted, p, correct, np.zeros((225, 2)), np.zeros((50, 2)))], 2, 0.95)
    assert rule.min_confidence is not None
    assert (p[predicted == 1] >= rule.min_confidence).sum() < 20
    assert rule.by_class[1] is None
    assert rule.by_class[0] is not None


def test_features_far_outside_are_novel_whatever_their_codes() -> None:
    """In other units, say: a network may give them the code of a class."""
    x, held_out = RNG.normal(size=(500, 8)), RNG.normal(size=(200, 8))
    familiar = fit_familiar(np.tanh(x), np.arange(500) % 2, np.tanh(held_out), held_out)
    assert familiar.size == pytest.approx(2 * np.quantile((held_out**2).sum(1), 0.99))
    for far in (10, 1e6):
        assert (familiar.parts(np.tanh(held_out), far * held_out)[:, 1] > 1).mean() > 0.95
    network = Network(nn.Tanh(), nn.Linear(8, 2), 1.0, familiar).eval()
    with torch.no_grad():
        _, novelty = network(torch.from_numpy(3 * held_out).float())
    code, size = familiar.parts(np.tanh(3 * held_out), 3 * held_out).T
    assert 0.5 < (size > 1).mean() < 1
    np.testing.assert_allclose(novelty.numpy(), [max(c, s) if s > 1 else c for c, s in zip(code, size)], rtol=1e-4)


def test_reliability_by_hand() -> None:
    """x: two of confidence 0.95, one correct; y: four of 0.65, all correct. Domains weigh the same."""
    x, y = np.array([[0.95, 0.05]] * 2), np.array([[0.65, 0.35]] * 4)
    low, high = measure_reliability([x, y], [np.array([0, 1]), np.zeros(4, np.int64)])
    assert low == pytest.approx((0.65, 1.0, 0.5))
    assert high == pytest.approx((0.95, 0.5, 0.5))


def test_squared_distances_are_those_of_the_loop() -> None:
    a, b = RNG.normal(size=(6, 4)), RNG.normal(size=(3, 4))
    naive = [[((u - v) ** 2).sum() for v in b] for u in a]
    np.testing.assert_allclose(squared_distances(a, b), naive)
