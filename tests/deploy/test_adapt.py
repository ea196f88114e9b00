"""Adaptation to a batch of a new domain: statistics, predictions, and what is measured about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from deploy.made import vectors
from fgmix import Model, fit, load_model
from fgmix.data import from_arrays
from fgmix.data.standardisation import PRIOR, Standardisation, fit_to_batch
from fgmix.deploy.adapt import adapt_norms, find_least, measure_sizes, measure_skewed
from fgmix.deploy.best import find_helped
from fgmix.deploy.predict import predict_paths
from fgmix.errors import UserError
from fgmix.records.model import BatchGain

RECIPES = ("logistic_strong", "logistic")


def shifted(offsets: tuple[float, ...], n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two classes whose difference is smaller than the offsets of the domains."""
    rng = np.random.default_rng(seed)
    y, d = np.tile(np.arange(n) % 2, len(offsets)), np.repeat(np.arange(len(offsets)), n)
    x = rng.normal(size=(len(y), 4)) + 3 * y[:, None] + np.array(offsets)[d, None]
    return x.astype(np.float32), y, d


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("adapted") / "model"
    fit(from_arrays(*shifted((0, 6, -6, 12))), out, recipes=RECIPES, progress=False, device="cpu")
    return out


def test_statistics_of_a_batch_are_mixed_with_those_of_the_sources() -> None:
    """Of a domain that is near, and of one whose distance makes the sources count less."""
    for far in (0.5, 10):
        x = np.random.default_rng(0).normal(far, 2, size=(24, 5)).astype(np.float32)
        prior = Standardisation(np.zeros(5, np.float32), np.ones(5, np.float32))
        found, w = fit_to_batch(x, prior), 24 / (24 + PRIOR / max(1, np.square(x.mean(0)).mean()))
        np.testing.assert_allclose(found.mean, w * x.mean(0), rtol=1e-5)
        np.testing.assert_allclose(found.scale, np.sqrt(w * x.var(0) + 1 - w), rtol=1e-5)
        signals = np.repeat(x[:, :, None], 10, axis=2)
        prior = Standardisation(np.zeros((5, 1), np.float32), np.ones((5, 1), np.float32), np.inf)
        np.testing.assert_allclose(fit_to_batch(signals, prior).mean[:, 0], w * x.mean(0), rtol=1e-5)


def test_missing_values_are_left_out_of_the_statistics_of_a_batch() -> None:
    x = np.array([[0.5, np.nan], [1.5, np.nan]])
    prior = Standardisation(np.array([0.0, 7.0]), np.array([1.0, np.inf]), imputes=True)
    found = fit_to_batch(x, prior)
    assert found.mean.tolist() == [2 / (2 + PRIOR), 7]
    assert found.scale[1] == np.inf  # a column that training did not have stays without effect


def test_an_unseen_domain_is_predicted_where_its_offset_is_removed(folder: Path) -> None:
    model = load_model(folder)
    x, y, _ = shifted((30.0,), seed=3)
    plain, adapted = model.predict(x), model.predict(x, adapt=True)
    assert np.mean(plain.probabilities.argmax(1) == y) < 0.6
    assert np.mean(adapted.probabilities.argmax(1) == y) > 0.95
    assert (plain.batch, adapted.batch) == (0, len(x))
    assert adapted.trusted.mean() > 0.5
    # Not of a batch: what was predicted before stays.
    np.testing.assert_array_equal(model.predict(x).probabilities, plain.probabilities)


def test_the_estimate_of_adaptation_is_measured_and_stored(folder: Path) -> None:
    info = load_model(folder).info
    assert info.adaptation is not None
    assert info.estimate is not None
    assert info.adaptation.estimate.value > info.estimate.value + 0.2
    assert [gain.samples for gain in info.adaptation.sizes] == [4, 8, 16, 32, 64]
    assert info.adaptation.least is not None
    assert info.adaptation.skewed.adapted < info.adaptation.sizes[-1].adapted
    card = (folder / "card.md").read_text()
    assert "## Adapted to a batch of the new domain" in card
    assert f"Batches of {info.adaptation.least} samples" in card


def test_rows_name_the_size_of_their_batch(folder: Path, tmp_path: Path) -> None:
    x, _, _ = shifted((30.0,), seed=3)
    np.savez(tmp_path / "new.npz", X=x)
    rows = list(predict_paths(load_model(folder), [tmp_path / "new.npz"], adapt=True, progress=False))
    assert {row["batch"] for row in rows} == {"80"}
    plain = list(predict_paths(load_model(folder), [tmp_path / "new.npz"], progress=False))
    assert "batch" not in plain[0]


def test_a_model_that_adaptation_did_not_help_refuses_it(tmp_path: Path) -> None:
    """Domains differ in the balance of the classes alone: their own statistics remove it."""
    rng = np.random.default_rng(0)
    d = np.repeat(np.arange(4), 100)
    y = (rng.random(400) < np.array([0.05, 0.95, 0.1, 0.9])[d]).astype(int)
    x = (rng.normal(size=(400, 3)) + 3 * y[:, None]).astype(np.float32)
    model = fit(from_arrays(x, y, d), tmp_path / "model", recipes=RECIPES, progress=False, device="cpu")
    assert model.info.adaptation is None
    with pytest.raises(UserError, match="did not help"):
        model.predict(x, adapt=True)


def test_a_method_alone_is_adapted_without_a_measurement(vectors_folder: Path) -> None:
    model = load_model(vectors_folder)
    x = np.random.default_rng(0).normal(size=(50, 5)) + 20
    adapted: Model = model
    found = adapted.predict(x, adapt=True)
    assert found.batch == 50
    assert (found.novelty < model.predict(x).novelty).all()
    assert model.predict(vectors().domains[0].inputs.x).trusted.any()  # type: ignore[attr-defined]
    assert found.min_confidence == (None,) * len(model.info.classes)


def test_a_gain_that_chance_selects_is_reported_by_half_at_most() -> None:
    """Gains of four domains without any effect: the mean of those offered is 0.4 standard deviations above it."""
    gains = np.random.default_rng(0).normal(size=(20_000, 4))
    reported = np.array([row @ find_helped(row) / 4 for row in gains])
    offered = gains.mean(axis=1) > 0
    assert gains[offered].mean() == pytest.approx(0.4, abs=0.02)
    assert reported[offered].mean() == pytest.approx(0.2, abs=0.02)
    assert reported.mean() == pytest.approx(0, abs=0.015)


def test_norms_get_the_statistics_of_a_batch_in_parts() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    z = network[0](x).detach()
    assert adapt_norms(network, x.split(20))
    norm: Any = network[1]
    torch.testing.assert_close(norm.running_mean, z.mean(0))
    assert norm.momentum == 0.1
    assert not norm.training
    assert not adapt_norms(nn.Linear(3, 4), [x])


def test_sizes_and_skewed_batches() -> None:
    y = np.arange(100) % 2

    def guess(batches: Sequence[np.ndarray]) -> np.ndarray:
        """Correct in batches of 16 or more in which both classes are about as frequent."""
        labels = [y[rows] for rows in batches]
        return np.concatenate([b if len(b) >= 16 and abs(b.mean() - 0.5) < 0.2 else 1 - b for b in labels])

    domains = [(y, guess, np.zeros_like(y))] * 2
    gains = measure_sizes(domains)
    assert [gain.samples for gain in gains] == [4, 8, 16, 32, 64]
    assert [gain.adapted > gain.plain for gain in gains] == [False, False, True, True, True]
    assert find_least(gains) == 16
    skewed = measure_skewed(domains)
    assert skewed.adapted == 0
    assert skewed.samples == 50
    assert find_least([BatchGain(4, 0.5, 0.6)]) is None
