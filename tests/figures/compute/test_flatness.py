"""Flatness where it is known, and against a literal twin."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from copying import replace
from fgmix.algorithms import Algorithm
from fgmix.errors import UserError
from fgmix.figures.compute.flatness import (
    compute_flatness,
    compute_gaps,
    draw_filter_direction,
    draw_unit_direction,
    scale_to_margin,
)
from fgmix.figures.flatness import decide, divide_areas
from fgmix.seeding import torch_generator
from fgmix.training.open_run import OpenedRun


def test_a_quadratic_loss_grows_with_the_fourth_power() -> None:
    """L = c‖φ‖²/2 around 0: (cγ²/2)² in every direction of norm 1."""
    minimum = {"weight": torch.zeros(3, 4, dtype=torch.float64), "bias": torch.zeros(3, dtype=torch.float64)}
    gammas, c = np.arange(1.0, 11), 0.7

    def loss(p: dict[str, torch.Tensor]) -> float:
        return float(c / 2 * (p["weight"].square().sum() + p["bias"].square().sum()))

    for i in range(5):
        u = draw_unit_direction(minimum, torch_generator(i))
        found = compute_gaps(loss, minimum, u, list(gammas), loss(minimum))
        np.testing.assert_allclose(found, (c / 2) ** 2 * gammas**4, rtol=1e-10)


def test_filters_of_a_direction_have_the_norms_of_the_weights() -> None:
    torch.manual_seed(1)
    minimum = {"conv": torch.randn(4, 3, 2, 2), "linear": torch.randn(5, 6), "bias": torch.randn(5)}
    minimum["linear"][2] = 0
    u = draw_filter_direction(minimum, torch_generator("u"))
    for name in ("conv", "linear"):
        assert torch.allclose(u[name].flatten(1).norm(dim=1), minimum[name].flatten(1).norm(dim=1))
    assert not u["bias"].any()
    assert not torch.equal(u["conv"], minimum["conv"])


def test_rescaling_a_filter_changes_nothing() -> None:
    """L(w) = f(w/‖w‖), as under batch-norm: ten times the weights are as flat."""
    target = torch.tensor([1.0, 2.0, -1.0]).double()

    def loss(p: dict[str, torch.Tensor]) -> float:
        return float((p["w"] / p["w"].norm(dim=1, keepdim=True) - target).square().sum())

    w = torch.tensor([[0.5, 1.0, 0.3]]).double()
    found = []
    for scale in (1.0, 10.0):
        minimum = {"w": scale * w}
        found.append(
            compute_gaps(
                loss, minimum, draw_filter_direction(minimum, torch_generator("u")), [0.01, 0.1], loss(minimum)
            )
        )
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


@torch.no_grad()
def test_the_classifier_moves_and_nothing_else(erm: OpenedRun) -> None:
    found = compute_flatness([erm], gammas=[2.0], directions=3, progress=False)
    algorithm = erm.algorithm()
    sample = erm.sample(erm.sources, limit=300)
    z, y = sample.codes(algorithm), sample.y
    for i in range(3):
        moved = deepcopy(algorithm.classifier)
        u = draw_unit_direction(dict(moved.named_parameters()), torch_generator("direction", 0, i))
        for name, p in moved.named_parameters():
            p += 2.0 * u[name]
        gap = float(cross_entropy(algorithm.classifier(z), y)) - float(cross_entropy(moved(z), y))
        assert found.gaps[0, i, 0] == pytest.approx(gap**2, rel=1e-4)
    assert found.data.tolist() == ["original"]


@pytest.mark.parametrize("scope", ["classifier", "network"])
def test_methods_side_by_side(erm: OpenedRun, mixing: OpenedRun, scope: str) -> None:
    found = compute_flatness([erm, mixing], scope=scope, directions=2, samples=20, progress=False)  # type: ignore[arg-type]
    assert found.gaps.shape == (2, 2, 10)
    assert found.methods.tolist() == ["ERM", "FGMix"]
    assert found.data.tolist() == ["original", "original + mixed"]
    assert (found.gaps >= 0).all()
    assert found.gaps[..., -1].mean() > found.gaps[..., 0].mean()


def test_the_scale_of_the_codes_does_not_matter(erm: OpenedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same function with codes × 0.1 and weights × 10: γ finds it flatter, the relative measure does not."""
    scales = iter([1.0, 0.1])

    def load(run: OpenedRun, *_: object) -> Algorithm:
        algorithm, scale = run.algorithm(), next(scales)
        algorithm.featurizer.register_forward_hook(lambda _module, _x, z: scale * z)
        algorithm.classifier.weight.data.div_(scale)
        return algorithm

    monkeypatch.setattr("fgmix.figures.compute.flatness.load_policy", load)
    found = compute_flatness([erm, erm], directions=4, progress=False)
    (ratio,) = decide(found)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1, 1, 1), rel=1e-3)
    np.testing.assert_allclose(found.relative_gaps[0], found.relative_gaps[1], rtol=1e-2, atol=1e-6)
    (paper,) = divide_areas(found.methods, found.gammas, found.gaps)
    assert paper.value < 0.1


@torch.no_grad()
def test_logits_change_by_the_margin(erm: OpenedRun) -> None:
    algorithm = erm.algorithm()
    sample = erm.sample(erm.sources, limit=300)
    z, y = sample.codes(algorithm), sample.y
    head = algorithm.classifier
    minimum = {name: p.clone() for name, p in head.named_parameters()}
    us = [draw_filter_direction(minimum, torch_generator(i)) for i in range(3)]
    s = scale_to_margin(head, z, y, us)
    changes = torch.stack([s * z @ u["weight"].T for u in us])  # a linear head: exact
    logits = head(z)
    own = logits[torch.arange(len(y)), y]
    other = logits.masked_fill(torch.nn.functional.one_hot(y, logits.shape[1]).bool(), -torch.inf).amax(1)
    noise = changes.square().mean((0, 2)).sqrt()
    assert float(noise.quantile(0.5)) == pytest.approx(float((own - other).abs().quantile(0.5)), rel=1e-3)


def test_no_step_is_no_difference(mixing: OpenedRun) -> None:
    found = compute_flatness([mixing], scope="network", gammas=[0.0], directions=2, samples=20, progress=False)
    assert not found.gaps.any()


def test_runs_of_different_trials_are_refused(erm: OpenedRun, mixing: OpenedRun) -> None:
    other = replace(mixing, record=replace(mixing.record, spec=replace(mixing.record.spec, trial_seed=1)))
    with pytest.raises(UserError, match="same trial_seed"):
        compute_flatness([erm, other], progress=False)


def test_an_unknown_scope_is_said(erm: OpenedRun) -> None:
    with pytest.raises(UserError, match="Did you mean 'network'"):
        compute_flatness([erm], scope="networks")  # type: ignore[arg-type]
