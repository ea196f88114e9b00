"""The honest number: what held-out domains say about one more."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fgmix.deploy.calibration import fit_temperature
from fgmix.deploy.estimate import estimate, prediction_interval
from fgmix.deploy.hold_out import HeldOut
from fgmix.records.model import Estimate, Terms


def held_out(domain: str, right: int, n: int, *, novel: int = 0, seed: int = 0) -> HeldOut:
    """n samples of two classes, `right` of them right, the first `novel` novel; logits of any sureness."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    margin = rng.uniform(0.1, 4, n) * np.where(np.arange(n) < n - right, -1, 1)  # the first ones are wrong
    logits = np.stack([np.where(y == c, margin, 0.0) for c in (0, 1)], axis=1)
    novelty = np.stack([np.where(np.arange(n) < novel, 2.0, 0.5), np.zeros(n)], axis=1)
    noise = np.array([[9.0, 0.0]] * 5)  # recognised
    return HeldOut(domain, logits, novelty, y, in_domain_accuracy=0.9, noise=noise)


THREE = [held_out("x", 6, 10, novel=4), held_out("y", 16, 20, seed=1), held_out("z", 30, 30, novel=1, seed=2)]


def test_accuracy_is_the_mean_over_domains_not_over_instances() -> None:
    found = estimate(THREE)
    assert [d.accuracy for d in found.domains] == [0.6, 0.8, 1.0]
    assert found.accuracy == pytest.approx(0.8)
    assert [d.samples for d in found.domains] == [10, 20, 30]


def test_new_objects_are_told_from_known_ones() -> None:
    assert estimate(THREE).new_objects is None
    n = np.arange(60)  # the first samples of a domain are wrong
    x, y, z = held_out("x", 30, 60), held_out("y", 40, 60, seed=1), held_out("z", 60, 60)
    new = [np.where(n < 40, n // 4, -1), np.where(n >= 40, n, -1), np.where(n < 45, n // 5, -1)]  # 10, 20 and 9 groups
    marked = [replace(each, new=own) for each, own in zip((x, y, z), new)]
    found = estimate(marked, terms=Terms(min_confidence=0.0)).new_objects
    assert found is not None
    assert found.value == pytest.approx((10 / 40 + 20 / 20) / 2)  # z has too few groups
    assert found.known == pytest.approx((20 / 20 + 20 / 40) / 2)  # z has too few samples
    assert found.groups == 30
    assert (found.trusted, found.trusted_accuracy) == (1.0, pytest.approx(30 / 60))
    assert estimate(marked, metric="macro_f1").new_objects.metric == "balanced_accuracy"
    assert estimate([replace(each, new=n) for each in (x, y, z)]).new_objects is None  # nothing is known


def test_novel_instances_are_counted_and_scored() -> None:
    x, y, z = estimate(THREE).domains
    assert (x.novel, x.novel_accuracy) == (0.4, 0.0)
    assert (y.novel, y.novel_accuracy) == (0.0, None)
    assert (z.novel, z.novel_accuracy) == (pytest.approx(1 / 30), 1.0)


def test_a_domain_does_not_calibrate_itself() -> None:
    """Its confidence comes from a temperature of the other two."""
    x = estimate(THREE).domains[0]
    T = fit_temperature([h.logits for h in THREE[1:]], [h.y for h in THREE[1:]])
    p = np.exp(THREE[0].logits / T)
    assert x.confidence == pytest.approx((p / p.sum(1, keepdims=True)).max(1).mean())


def test_trust_levels_leave_out_the_novel_and_the_unsure() -> None:
    found = estimate(THREE)
    any_level = found.levels[0]
    assert any_level.confidence == 0
    assert any_level.coverage == pytest.approx((6 / 10 + 20 / 20 + 29 / 30) / 3)
    right = (6 / 10 + 16 / 20 + 29 / 30) / 3  # x's wrong ones are its novel ones
    assert any_level.accuracy == pytest.approx(right / any_level.coverage)
    assert [level.coverage for level in found.levels] == sorted((lv.coverage for lv in found.levels), reverse=True)


def test_one_trusted_instance_does_not_weigh_as_much_as_a_domain_of_them() -> None:
    """x: 1 of 10 familiar, and right; y: all 10 familiar, half right. Of what is trusted, 6 of 11 are right."""
    x, y = held_out("x", 1, 10, novel=9), held_out("y", 5, 10, seed=1)
    assert estimate([x, y]).levels[0].accuracy == pytest.approx(6 / 11)


def test_levels_as_asked() -> None:
    found = estimate(THREE, (0.0, 0.8))
    assert [level.confidence for level in found.levels] == sorted({0.0, 0.8, found.trust.min_confidence})


def test_instances_of_classes_that_no_other_domain_has() -> None:
    three = [
        HeldOut(name, np.eye(3)[y], np.zeros((4, 2)), np.array(y), in_domain_accuracy=1.0)
        for name, y in (("x", [0, 1, 2, 2]), ("y", [0, 1, 0, 1]), ("z", [0, 0, 0, 0]))
    ]
    assert [d.unknown for d in estimate(three).domains] == [0.5, 0.0, 0.0]


def test_a_domain_whose_classes_no_other_has_chooses_no_threshold() -> None:
    """Its network must fail: the thresholds, the levels and the temperature are those of the other two."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    logits = np.column_stack([3 * (y == 0), 3 * (y == 1), np.zeros(200)]) + rng.normal(size=(200, 3))
    x, z = (HeldOut(name, logits, np.zeros((200, 2)), y, in_domain_accuracy=1.0) for name in "xz")
    own = HeldOut("own", logits, np.zeros((200, 2)), np.full(200, 2), in_domain_accuracy=1.0)
    found, without = estimate([x, own, z]), estimate([x, z])
    assert found.domains[1].unknown == 1.0
    assert (found.trust, found.levels, found.temperature) == (without.trust, without.levels, without.temperature)


def test_classes_that_a_network_never_saw_do_not_enter_the_temperature() -> None:
    """x has a class of its own, which its network is sure to get wrong: T must not rise for that."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    logits = np.column_stack([3 * (y == 0), 3 * (y == 1), np.zeros(200)]) + rng.normal(size=(200, 3))
    own = np.where(np.arange(200) < 60, 2, y)
    with_own = [HeldOut(n, logits, np.zeros((200, 2)), c, in_domain_accuracy=1.0) for n, c in (("x", own), ("z", y))]
    found = estimate(with_own)
    assert found.temperature == pytest.approx(fit_temperature([logits[60:], logits], [y[60:], y]))
    assert found.domains[0].unknown == pytest.approx(0.3)


def test_the_metric_that_is_asked_for_leads() -> None:
    rng = np.random.default_rng(0)
    y = (np.arange(300) % 10 == 0).astype(np.int64)
    always = np.tile([2.0, 0.0], (300, 1)) + 0.1 * rng.normal(size=(300, 2))
    three = [HeldOut(name, always, np.zeros((300, 2)), y, in_domain_accuracy=1.0) for name in "xyz"]
    plain, balanced = estimate(three), estimate(three, metric="balanced_accuracy")
    assert (plain.value, balanced.value) == (pytest.approx(0.9), pytest.approx(0.5))
    assert balanced.accuracy == pytest.approx(0.9)
    low, high = balanced.interval or (0, 0)
    variance = np.mean([a * (1 - a) / n for a, n in ((271 / 272, 270), (1 / 32, 30))]) / 2
    assert high - low == pytest.approx(2 * 4.302653 * (variance * 4 / 3) ** 0.5)


def test_no_certainty_from_three_domains_that_happen_to_agree() -> None:
    """All right in three domains of 20: s = 0, but 20 tosses say that little: a = 21/22."""
    interval = estimate([held_out(name, 20, 20) for name in "xyz"]).interval
    assert interval is not None
    assert interval[0] == pytest.approx(1 - 4.302653 * (21 / 22 * 1 / 22 / 20) ** 0.5 * (4 / 3) ** 0.5)
    assert interval[1] == 1.0


def test_the_interval_covers_a_new_domain_drawn_like_the_others() -> None:
    """95 % of 2,000 simulated studies of four domains, ± 1.1 %."""
    accuracies = np.random.default_rng(0).normal(0.5, 0.02, (2000, 5))
    covered = []
    for *known, new in accuracies:
        low, high = prediction_interval(known) or (np.nan, np.nan)
        covered.append(low <= new <= high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.011)


def test_interval_for_one_more_domain() -> None:
    """k = 3, mean 0.8, s = 0.1: 0.8 ± 4.303 · 0.1 · √(4/3)."""
    low, high = prediction_interval([0.7, 0.8, 0.9]) or (0, 0)
    assert low == pytest.approx(0.8 - 4.302653 * 0.1 * (4 / 3) ** 0.5)
    assert high == 1.0
    assert prediction_interval([0.5, 0.9]) is None


def test_a_frequent_class_does_not_lend_its_accuracy_to_a_rare_one() -> None:
    """95 % of each domain are found; half of the predictions of the rare class are wrong, so none is trusted."""
    y = np.repeat([0, 1], [95, 5])
    guesses = np.concatenate([np.zeros(90, int), np.ones(10, int)])  # 90 + 5 of 100 are correct
    domains = [HeldOut(name, 4.0 * np.eye(2)[guesses], np.zeros((100, 2)), y, in_domain_accuracy=1.0) for name in "xyz"]
    frequent, rare = estimate(domains).predicted
    assert (frequent.predicted, frequent.trusted, frequent.trusted_accuracy) == (270, 270, 1.0)
    assert (rare.predicted, rare.trusted, rare.trusted_accuracy) == (30, 0, None)
    assert estimate(domains).trust.by_class[1] is None


def test_survives_json() -> None:
    found = estimate(THREE)
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(found))), Estimate) == found
    two = estimate(THREE[:2])
    assert two.interval is None
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(two))), Estimate) == two


def test_without_an_error_probabilities_are_not_sharpened() -> None:
    """The likelihood would have no maximum: it increases as T decreases."""
    y = np.array([0, 1, 1, 0])
    assert fit_temperature([2.0 * np.eye(2)[y]], [y]) == 1.0
    assert fit_temperature([2.0 * np.eye(2)[y], 2.0 * np.eye(2)[1 - y]], [y, y]) > 1.0
