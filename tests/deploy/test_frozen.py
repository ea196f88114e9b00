"""fit with a frozen backbone: features once, a small network on them, a model that takes images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from copying import replace
from deploy.made import vectors
from fgmix import fit, load_model
from fgmix.algorithms import get, names
from fgmix.data import LoadOptions, load
from fgmix.data.activations import ViewInputs
from fgmix.deploy.candidate import Candidate, Workbench
from fgmix.deploy.export import export_model, make_example_inputs
from fgmix.deploy.hold_out import compute_noise_features, hold_out, make_noise
from fgmix.deploy.predict import predict_paths
from fgmix.deploy.recipes import find
from fgmix.errors import UserError
from fgmix.networks import build_featurizer
from fgmix.records.schema import RunSpec
from fgmix.training.loop import train
from fgmix.training.open_run import open_run
from fgmix.training.prepare import PreparedRun, build_algorithm, build_front, build_source, prepare
from fgmix.training.resolve import resolve

QUICK: dict[str, Any] = {"steps": 20, "eval_every": 10, "averaging_start": 5, "batch_size": 8, "image_size": 16}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small CNN's weights in a file: as if somebody had trained it."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "small_cnn.pt"
    torch.save(build_featurizer("small_cnn", (3, 16, 16)).net.state_dict(), path)
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("FGMIX_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def frozen(weights: str) -> dict[str, Any]:
    """Options of a quick run on a frozen backbone."""
    return {**QUICK, "frozen": True, "backbone": "small_cnn", "weights": weights}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory, pictures: Path, frozen: dict[str, Any]) -> Path:
    out = tmp_path_factory.mktemp("frozen") / "model"
    fit(pictures, out, algorithm="erm", device="cpu", progress=False, **frozen)
    return out


def run_on(pictures: Path, options: dict[str, Any]) -> PreparedRun:
    return prepare(RunSpec(dataset=str(pictures), algorithm="erm", **options), device="cpu", progress=False)


def test_features_are_the_backbones_of_the_normalised_images(pictures: Path, frozen: dict[str, Any]) -> None:
    run = run_on(pictures, {**frozen, "standardize": False})
    plain = run_on(pictures, {**frozen, "frozen": False})
    for features, images in zip(run.dataset.domains, plain.dataset.domains):
        rows = np.arange(len(images))
        with torch.no_grad():
            expected = build_front(run.spec)(images.inputs.clean(rows))
        torch.testing.assert_close(features.inputs.clean(rows), expected, atol=1e-5, rtol=1e-4)
    assert run.dataset.input_shape == (run.spec.code_size,) == expected.shape[1:]


def test_features_are_standardised_over_the_training_parts_of_the_sources(
    pictures: Path, frozen: dict[str, Any]
) -> None:
    run = run_on(pictures, {**frozen, "test_domains": ("dark",)})
    parts = [d.inputs.clean(run.splits[d.name].train) for d in run.dataset.domains if d.name != "dark"]
    z = torch.cat(parts).double()
    varying = z.std(0, correction=0) > 1e-3
    assert varying.sum() > 10
    assert z.mean(0).abs().max() < 1e-4
    torch.testing.assert_close(
        z.std(0, correction=0)[varying], torch.ones(int(varying.sum())).double(), atol=1e-3, rtol=0
    )


def test_runs_on_features_share_the_dataset_that_was_loaded(
    pictures: Path, frozen: dict[str, Any], tmp_path: Path
) -> None:
    """What a run trains on is features already: the next run needs the images."""
    spec = RunSpec(dataset=str(pictures), algorithm="erm", **frozen)
    first, second = (
        train(replace(spec, test_domains=(name,)), tmp_path, device="cpu", progress=False).folder
        for name in ("dark", "wide")
    )
    assert first
    assert second
    opened = open_run(first, progress=False)
    again = open_run(second, dataset=opened.dataset, progress=False)
    assert len(again.sample(again.sources).codes(again.algorithm("last"))) == len(again.sample(again.sources))


def test_features_are_computed_once(
    pictures: Path, frozen: dict[str, Any], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run, in another process, reads them from the cache; other weights or another view are computed."""
    monkeypatch.setattr("fgmix.data.activations._opened", {})
    before = run_on(pictures, frozen).dataset.domains[0].inputs.clean(np.arange(5))
    monkeypatch.setattr("fgmix.data.activations._opened", {})

    def refuse(*_: object) -> None:
        raise AssertionError("features were computed")

    monkeypatch.setattr("fgmix.data.activations.ActivationCache._compute", refuse)
    assert torch.equal(run_on(pictures, frozen).dataset.domains[0].inputs.clean(np.arange(5)), before)
    with pytest.raises(AssertionError, match="were computed"):
        run_on(pictures, {**frozen, "views": 9})
    other = torch.load(frozen["weights"])
    name = next(iter(other))
    torch.save({**other, name: other[name] + 0.1}, cache / "other.pt")
    with pytest.raises(AssertionError, match="were computed"):
        run_on(pictures, {**frozen, "weights": str(cache / "other.pt")})


def test_a_damaged_block_is_computed_again(
    pictures: Path, frozen: dict[str, Any], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_on(pictures, frozen).dataset.domains[0].inputs.clean(np.arange(5))
    for path in (cache / "activations").rglob("*.npz"):
        path.write_bytes(path.read_bytes()[:-30])
    monkeypatch.setattr("fgmix.data.activations._opened", {})
    assert torch.equal(run_on(pictures, frozen).dataset.domains[0].inputs.clean(np.arange(5)), expected)


def test_an_interrupted_extraction_resumes(
    pictures: Path, frozen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path))
    monkeypatch.setattr("fgmix.data.activations._opened", {})
    monkeypatch.setattr("fgmix.data.activations.BLOCK", 10)
    computed = []

    class Backbone(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            computed.append(len(x))
            if len(computed) == 4:
                raise KeyboardInterrupt
            return x.flatten(1)[:, :5]

    monkeypatch.setattr("fgmix.training.prepare.build_front", lambda _: Backbone())
    with pytest.raises(KeyboardInterrupt):
        run_on(pictures, frozen)
    run = run_on(pictures, frozen)
    images = sum(n for n in computed if n > 1)  # one image measures the size
    assert images - computed[3] == sum(map(len, run.dataset.domains))  # the block that broke off is computed twice


def test_training_sees_the_views_and_evaluation_the_image(pictures: Path, frozen: dict[str, Any]) -> None:
    inputs = run_on(pictures, {**frozen, "views": 2}).dataset.domains[0].inputs
    assert isinstance(inputs, ViewInputs)
    clean = inputs.clean(np.arange(8))
    assert torch.equal(clean, run_on(pictures, frozen).dataset.domains[0].inputs.clean(np.arange(8)))
    assert inputs.standard is not None
    rows = np.arange(8)
    views = torch.stack([torch.from_numpy(inputs.standard(view[rows])) for view in (inputs.x, *inputs.views)])
    assert not torch.equal(views[1], views[2])
    seen = set()
    for seed in range(20):
        drawn = inputs.prepare(np.arange(8), torch.Generator().manual_seed(seed)).finish()
        matches = (drawn == views).all(dim=2)  # (view, sample)
        assert matches.any(dim=0).all()
        seen |= {int(view) for view in matches.int().argmax(dim=0)}
    assert seen == {0, 1, 2}


def test_the_model_takes_images_and_predicts_what_its_run_does(model_folder: Path, pictures: Path) -> None:
    model = load_model(model_folder)
    assert (model.info.kind, model.info.input_shape) == ("images", (3, 16, 16))
    (final,) = (model_folder / "runs").glob("*-erm-all-*")
    run = open_run(final, progress=False)  # opened by the path in its spec, as `fgmix plot` does
    assert model.info.estimate is not None
    rows = list(predict_paths(model, [pictures / "dark"], probabilities=True, progress=False))
    dark = run.prepared.dataset.domains[run.prepared.dataset.index("dark")]
    with torch.no_grad():
        logits = run.algorithm("best", "swa").predict(dark.inputs.clean(np.arange(len(dark))))
    expected = torch.softmax(logits / model.info.estimate.temperature, dim=1)
    found = np.array([[float(row[f"p({name})"]) for name in model.info.classes] for row in rows])
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-3)  # rows are rounded to four digits
    assert np.mean([row["label"] == Path(row["file"]).parent.name for row in rows]) > 0.6


def test_novelty_is_tested_on_images_of_noise(model_folder: Path) -> None:
    """Not on features that no image has."""
    (folder,) = (model_folder / "runs").glob("*-erm-dark-*")
    run = open_run(folder, progress=False)
    features = compute_noise_features(run.record.spec, 6, torch.device("cpu"))
    mean, std = (torch.tensor(values)[:, None, None] for values in (run.record.spec.mean, run.record.spec.std))
    pixels = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))  # the other three are plain
    with torch.no_grad():
        expected = build_front(run.record.spec)((pixels - mean) / std)
    torch.testing.assert_close(features[:3], expected, atol=1e-4, rtol=1e-4)
    assert run.prepared.standard is not None
    seen = make_noise(run.prepared, 6, features)
    np.testing.assert_array_equal(seen.numpy(), run.prepared.standard(features.numpy()))
    assert len(hold_out(run, features).noise) == 6


def test_the_card_names_the_frozen_backbone_and_how_its_weights_were_matched(model_folder: Path) -> None:
    card = (model_folder / "card.md").read_text()
    assert "backbone small_cnn (frozen: only a small classifier on top of its features was trained)" in card
    assert "matched by name" in card


def test_it_is_exported_whole(model_folder: Path, tmp_path: Path) -> None:
    """Checked against the model before it is written; here, that the program takes pixels. ONNX: see test_export."""
    model = load_model(model_folder)
    path = export_model(model, tmp_path / "model.pt2", "pt2")
    x = make_example_inputs(model.info, 2)
    probabilities = torch.export.load(path).module()(x)[0].detach().numpy()
    assert x.shape == (2, 16, 16, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)


@pytest.fixture(scope="module")
def prepared(pictures: Path, frozen: dict[str, Any]) -> PreparedRun:
    return run_on(pictures, frozen)


@pytest.mark.parametrize("algorithm", [name for name in names() if not get(name).head])
def test_every_method_trains_on_features_or_says_that_it_needs_images(
    algorithm: str, prepared: PreparedRun, pictures: Path, frozen: dict[str, Any]
) -> None:
    spec = resolve(RunSpec(dataset="pictures", algorithm=algorithm, **frozen), load_images(pictures))
    run = replace(prepared, spec=spec)
    refusal = ""
    try:
        assert torch.isfinite(build_algorithm(run).step(build_source(run).at(0))["loss"])
    except UserError as error:
        refusal = str(error)
    assert ("needs images. Drop --frozen" in refusal) == bool(refusal)
    assert not (refusal and algorithm in ("erm", "coral", "fgmix", "fishr", "mixup", "sagnet"))


def load_images(pictures: Path) -> Any:
    return load(str(pictures), LoadOptions(image_size=16, progress=False))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"algorithm": "mixstyle"}, "Found mixstyle, which needs images. Drop --frozen"),
        ({"weights": ""}, "Found small_cnn with random weights"),
        ({"weights": "", "backbone": "resnet18", "pretrained": False}, "Found resnet18 with random weights"),
        ({"frozen": False, "views": 2}, "`views` should be 0 without --frozen"),
    ],
)
def test_a_mistake_is_a_sentence(
    changes: dict[str, Any], sentence: str, pictures: Path, frozen: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        fit(pictures, tmp_path / "model", progress=False, **{"algorithm": "erm", **frozen, **changes})
    assert not (tmp_path / "model").exists()


def test_vectors_have_no_backbone_to_freeze(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`frozen` should be false for arrays, which holds features"):
        fit(vectors(), tmp_path / "model", algorithm="erm", frozen=True, progress=False)


def test_without_a_name_the_backbone_is_the_one_that_installs_from_a_package_index(pictures: Path) -> None:
    dataset = load_images(pictures)
    spec = resolve(RunSpec(dataset="pictures", algorithm="erm", frozen=True), replace(dataset, name="pictures"))
    assert (spec.backbone, spec.pretrained, spec.code_size) == ("tf_efficientnet_lite0.package", True, 1280)


def test_the_backbone_that_is_tuned_is_the_frozen_one(pictures: Path, tmp_path: Path) -> None:
    """Also where neither is named: the default of `fgmix train` is another one."""
    spec = RunSpec(dataset="pictures", algorithm="erm", frozen=True, steps=300)
    bench = Workbench(spec, replace(load_images(pictures), name="pictures"), tmp_path, "cpu", progress=False)
    tuned = Candidate(find("tune"), bench).resolve("dark")
    assert (tuned.backbone, tuned.pretrained, tuned.frozen) == ("tf_efficientnet_lite0.package", True, False)


@pytest.mark.parametrize("recipe", ["logistic_weak", "tune", "erm"])
def test_recipes_on_images_make_models_that_take_images(
    recipe: str, pictures: Path, frozen: dict[str, Any], tmp_path: Path
) -> None:
    """Each alone, by the same features; also adapted to the images of a domain."""
    out = tmp_path / "model"
    fit(pictures, out, recipes=[recipe], device="cpu", progress=False, **{**frozen, "frozen": False})
    model = load_model(out)
    assert model.info.choice is not None
    assert (model.info.spec.frozen, bool(model.info.spec.freeze)) == (recipe != "tune", recipe == "tune")
    rows = list(predict_paths(model, [pictures / "dark"], progress=False))
    assert not any(row["error"] for row in rows)
    if model.adapted or recipe == "erm":
        adapted = list(predict_paths(model, [pictures / "dark"], progress=False, adapt=True))
        assert {row["batch"] for row in adapted} == {str(len(rows))}
    else:
        with pytest.raises(UserError, match="adapt"):
            list(predict_paths(model, [pictures / "dark"], progress=False, adapt=True))


def test_without_weights_a_small_network_is_trained(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fgmix.deploy.best.has_packaged_weights", lambda _: False)
    model = fit(pictures, tmp_path / "model", recipes=["erm", "logistic"], device="cpu", progress=False, **QUICK)
    assert model.info.choice is not None
    assert [trial.recipe for trial in model.info.choice.trials] == ["erm"]
    assert model.info.spec.backbone == "small_cnn"
    assert any("from scratch" in note for note in model.info.notes)
