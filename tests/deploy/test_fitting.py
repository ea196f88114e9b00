"""fit_model: from data to a folder that holds a model, an estimate and a card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deploy.made import vector_model, vector_spec, vectors
from fgmix.analysis.runs import open_run
from fgmix.data import DomainDataset
from fgmix.deploy import fit_model, load_model
from fgmix.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fitted") / "model"
    vector_model(out)
    return out


def run_of(folder: Path, held_out: str) -> Path:
    (run,) = (folder / "runs").glob(f"arrays-erm-{held_out}-*")
    return run


def test_each_estimate_is_the_held_out_runs_own_accuracy(folder: Path) -> None:
    """Worked out again from the runs' records: both parts of the held-out domain, at the step validation selects."""
    found = load_model(folder).info.estimate
    assert found is not None
    assert [d.domain for d in found.domains] == list(vectors().domain_names)
    for domain in found.domains:
        run = open_run(run_of(folder, domain.domain), dataset=vectors())
        scores = run.record.best("swa").accuracy["swa"][domain.domain]
        split = run.prepared.splits[domain.domain]
        right = scores["train"] * len(split.train) + scores["holdout"] * len(split.holdout)
        assert domain.accuracy == pytest.approx(right / domain.instances)
        assert domain.instances == len(split.train) + len(split.holdout)


def test_the_model_is_trained_on_all_domains(folder: Path) -> None:
    info = load_model(folder).info
    assert info.spec.test_domains == ()
    assert info.domains == vectors().domain_names
    run = open_run(run_of(folder, "all"), dataset=vectors())
    assert set(run.sources) == set(vectors().domain_names)


def test_its_probabilities_are_the_runs_weights_at_the_fitted_temperature(folder: Path) -> None:
    model = load_model(folder)
    run = open_run(run_of(folder, "all"), dataset=vectors())
    x = np.random.default_rng(3).normal(size=(9, 5)).astype(np.float32)
    with torch.no_grad():
        logits = run.algorithm("best", "swa").predict(torch.from_numpy(x))
    assert model.info.estimate is not None
    expected = torch.softmax(logits / model.info.estimate.temperature, dim=1)
    np.testing.assert_allclose(model.predict(x).probabilities, expected.numpy(), atol=1e-6)


def test_far_away_is_novel_and_not_trusted(folder: Path) -> None:
    model = load_model(folder)
    near = model.predict(vectors(seed=5).domains[0].inputs.clean(np.arange(50)).numpy())
    far = model.predict(np.full((3, 5), 60.0))
    assert (near.novelty <= 1).mean() > 0.9
    assert (far.novelty > 1).all()
    assert not far.trusted.any()
    assert (far.confidence > 0.9).any()  # confidence alone would not have told


def test_the_card_says_what_was_measured(folder: Path) -> None:
    card = (folder / "card.md").read_text()
    found = load_model(folder).info.estimate
    assert found is not None
    assert f"**{100 * found.accuracy:.1f} %** right" in card
    for domain in found.domains:
        assert f"| {domain.domain} | {domain.instances} | {100 * domain.accuracy:.1f} % |" in card


def test_doing_it_again_trains_nothing_and_gives_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: (folder / name).read_bytes() for name in ("model.json", "weights.safetensors", "card.md")}

    def refuse(*_: object) -> None:
        raise AssertionError("a step was trained")

    monkeypatch.setattr("fgmix.algorithms.erm.ERM.step", refuse)
    vector_model(folder)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_model_of_other_settings_or_data_is_not_overwritten(folder: Path) -> None:
    with pytest.raises(UserError, match="other settings"):
        fit_model(vector_spec(steps=31), folder, dataset=vectors(), progress=False)
    with pytest.raises(UserError, match="other data"):
        fit_model(vector_spec(), folder, dataset=vectors(seed=1), progress=False)


def test_a_folder_of_the_users_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match=r"Found thesis\.tex"):
        vector_model(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == ["thesis.tex"]


def test_without_estimate_it_says_so(tmp_path: Path) -> None:
    model = vector_model(tmp_path / "model", estimated=False)
    assert model.info.estimate is None
    assert float(model.network.temperature) == 1.0
    assert "**not measured**" in (tmp_path / "model" / "card.md").read_text()
    assert len(list((tmp_path / "model" / "runs").iterdir())) == 1


def test_too_few_domains_for_an_estimate(tmp_path: Path) -> None:
    two = _first(vectors(), 2)
    with pytest.raises(UserError, match="leaves fgmix too few"):
        fit_model(vector_spec(algorithm="fgmix"), tmp_path / "a", dataset=two, progress=False)
    assert not (tmp_path / "a").exists()
    fit_model(vector_spec(), tmp_path / "b", dataset=two, progress=False)
    assert "too few for an interval" in (tmp_path / "b" / "card.md").read_text()


def _first(dataset: DomainDataset, n: int) -> DomainDataset:
    return replace(dataset, domains=dataset.domains[:n], fingerprint="two")


def test_a_broken_model_is_told_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    for name in ("model.json", "weights.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    load_model(tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(UserError, match="Expected a whole model"):
        load_model(tmp_path)
    content = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**content, "classes": None}))
    with pytest.raises(UserError, match="Expected a whole model"):
        load_model(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(UserError, match="schema 1"):
        load_model(tmp_path)
    with pytest.raises(UserError, match="fgmix fit"):
        load_model(tmp_path / "nowhere")


def test_arrays_of_another_shape_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"shape \(5,\)"):
        load_model(folder).predict(np.zeros((3, 6)))
    assert len(load_model(folder).predict(np.zeros((0, 5)))) == 0
