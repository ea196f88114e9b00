"""`fgmix monitor`: what a batch is compared with, and how far it may be."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from scipy.stats import chi2_contingency, ks_2samp

from deploy.made import vectors
from fgmix import fit, load_model
from fgmix.data import from_arrays, split_dataset
from fgmix.deploy.model import Model
from fgmix.deploy.monitor import compare_summaries, monitor
from fgmix.deploy.summary import summarize_labels
from fgmix.errors import UserError
from workbench import fgmix, save_npz

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def model(vectors_folder: Path) -> Model:
    return load_model(vectors_folder)


def test_distances_are_those_of_all_samples() -> None:
    rng = np.random.default_rng(0)
    n, m = 800, 500
    confidence = rng.beta(5, 2, n), rng.beta(4, 2, m)
    novelty = rng.gamma(2, 0.2, n), rng.gamma(2, 0.3, m)
    labels = rng.integers(0, 3, n), rng.choice(3, m, p=[0.5, 0.3, 0.2])
    pair = [summarize_labels(labels[i], confidence[i], novelty[i], 3) for i in (0, 1)]
    drifts = {drift.name: drift for drift in compare_summaries(*pair)}
    for name, values in (("confidence", confidence), ("novelty", novelty)):
        exact = ks_2samp(*values)
        assert drifts[name].distance == pytest.approx(exact.statistic, abs=0.012)
        assert drifts[name].p_value == pytest.approx(exact.pvalue, abs=0.02)
    counts = np.array([np.bincount(each, minlength=3) for each in labels])
    assert drifts["predicted classes"].p_value == chi2_contingency(counts).pvalue
    shares = counts / counts.sum(1, keepdims=True)
    assert drifts["predicted classes"].distance == pytest.approx(np.maximum(shares[0] - shares[1], 0).sum())


def test_the_reference_is_of_holdout_samples(model: Model) -> None:
    data = vectors()
    splits = split_dataset(data, 0.2, 0)
    x = np.concatenate([domain.inputs.x[splits[domain.name].holdout] for domain in data.domains])
    familiar, predicted = model.info.familiar, model.predict(x)
    assert familiar is not None
    assert familiar.samples == len(x) == 36
    assert familiar.mean_confidence == pytest.approx(predicted.confidence.mean(), abs=1e-5)
    assert familiar.confidence[-1] == pytest.approx(predicted.confidence.max(), abs=1e-5)
    assert sum(familiar.classes) == 36


def test_a_classifier_of_all_samples_does_not_give_its_own_reference(tmp_path: Path) -> None:
    """A forest is surer of the samples that it was trained on, holdout samples included, than the reference is."""
    rng = np.random.default_rng(0)
    data = from_arrays(rng.normal(size=(90, 4)), rng.integers(0, 2, 90), np.arange(90) // 30)
    model = fit(data, tmp_path / "model", recipes=["forest"], progress=False)
    splits = split_dataset(data, 0.2, 0)
    x = np.concatenate([domain.inputs.x[splits[domain.name].holdout] for domain in data.domains])
    assert model.info.familiar is not None
    assert model.info.familiar.samples == len(x)
    assert model.info.familiar.mean_confidence < model.predict(x).confidence.mean() - 0.02


def test_distances_of_held_out_domains_are_within_one_network(model: Model, tmp_path: Path) -> None:
    """Novelty has a scale of its own in every network."""
    report = monitor(model, [save_npz(tmp_path / "x.npz", X=vectors().domains[0].inputs.x)], progress=False)
    assert model.info.estimate is not None
    for name, ends in report.held_out.items():
        found = []
        for domain in model.info.estimate.domains:
            assert domain.reference is not None
            assert domain.predictions is not None
            assert domain.reference.samples == 24  # holdout samples of two domains
            found += [d.distance for d in compare_summaries(domain.reference, domain.predictions) if d.name == name]
        assert ends == (min(found), max(found))
    domains = tuple(structs.replace(each, reference=None) for each in model.info.estimate.domains)
    older = structs.replace(model.info, estimate=structs.replace(model.info.estimate, domains=domains))
    with pytest.raises(UserError, match="older"):
        monitor(replace(model, info=older), [tmp_path / "x.npz"], progress=False)


def test_new_samples_of_known_domains_are_near_and_shifted_ones_far(model: Model, tmp_path: Path) -> None:
    new = np.concatenate([domain.inputs.x for domain in vectors(seed=9).domains])
    near = monitor(model, [save_npz(tmp_path / "near.npz", X=new)], progress=False)
    assert not near.is_far
    assert all(drift.p_value > 0.001 for drift in near.drifts)
    assert near.novel < 0.2
    far = monitor(model, [save_npz(tmp_path / "far.npz", X=10 - 2 * new)], progress=False)
    assert far.is_far
    assert far.novel > 0.5
    assert len(far.lines()) == len(near.lines()) + 1


def test_the_estimated_accuracy_comes_with_its_errors(model: Model, tmp_path: Path) -> None:
    report = monitor(model, [save_npz(tmp_path / "x.npz", X=vectors(seed=9).domains[0].inputs.x)], progress=False)
    estimate = model.info.estimate
    assert estimate is not None
    assert report.errors == tuple(abs(d.confidence - d.accuracy) for d in estimate.domains)
    confidence = model.predict(vectors(seed=9).domains[0].inputs.x).confidence
    assert report.accuracy == pytest.approx(confidence.mean(), abs=1e-4)
    assert set(report.held_out) == {drift.name for drift in report.drifts}


def test_an_earlier_batch_replaces_the_training_data(model: Model, tmp_path: Path) -> None:
    x = 10 - 2 * np.concatenate([domain.inputs.x for domain in vectors(seed=9).domains])
    early, late = save_npz(tmp_path / "early.npz", X=x[::2]), save_npz(tmp_path / "late.npz", X=x[1::2])
    report = monitor(model, [late], [early], progress=False)
    assert not report.is_far
    assert report.held_out == {}


def test_the_command_tells_by_its_exit_code(
    vectors_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = vectors(seed=9).domains[1].inputs.x
    near, far = save_npz(tmp_path / "near.npz", X=x), save_npz(tmp_path / "far.npz", X=30 - 5 * x)
    assert fgmix("monitor", vectors_folder, near, "--quiet") == 0
    assert "Estimated accuracy" in capsys.readouterr().out
    assert fgmix("monitor", vectors_folder, far, "--quiet") == 1


def test_what_cannot_be_monitored(model: Model, tmp_path: Path) -> None:
    batch = save_npz(tmp_path / "nan.npz", X=np.full((3, 5), np.nan))
    with pytest.raises(UserError, match="NaN"):
        monitor(model, [batch], progress=False)
    older = Model(structs.replace(model.info, familiar=None), model.network)
    with pytest.raises(UserError, match="fit it again"):
        monitor(older, [save_npz(tmp_path / "x.npz", X=np.zeros((3, 5)))], progress=False)


def test_the_study_of_unseen_domains(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "monitor_unseen.py"))
    data = vectors()
    x, y = np.concatenate([d.inputs.x for d in data.domains]), np.concatenate([d.y for d in data.domains])
    file = save_npz(tmp_path / "all.npz", X=x, y=y, domain=np.repeat(data.domain_names, 60))
    found = script["monitor_unseen"](file, tmp_path / "out", steps=20)
    assert set(found) == set(data.domain_names)
    assert all(accuracy > 0.6 and report.samples == 60 for accuracy, report in found.values())
