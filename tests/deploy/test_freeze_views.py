"""--freeze with --views: activations of frozen sections once, the rest trained on them, a model that takes images."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import lock_descriptor
from torch.nn.functional import cross_entropy

from fgmix import fit, load_model
from fgmix.data import LoadOptions, load
from fgmix.data.activations import ActivationCache, ViewInputs
from fgmix.data.loading import HostBatch
from fgmix.deploy.predict import predict_paths
from fgmix.errors import UserError
from fgmix.networks import build_featurizer
from fgmix.networks.featurizer import choose_piece
from fgmix.networks.parts import split_network
from fgmix.records.schema import RunSpec
from fgmix.seeding import seed_torch, torch_generator
from fgmix.sweeps.calibrate import calibrate
from fgmix.training.loop import train
from fgmix.training.open_run import open_run
from fgmix.training.prepare import build_algorithm, build_source, locate_activations, prepare
from fgmix.training.resolve import resolve
from training.killed_run import Killed, kill_at

VIEWS = 2
OPTIONS: dict[str, Any] = {
    "backbone": "small_cnn",
    "freeze": 2,
    "views": VIEWS,
    "image_size": 16,
    "batch_size": 8,
    "steps": 12,
    "eval_every": 6,
    "averaging_start": 4,
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("FGMIX_CACHE", str(folder))
        yield folder


def spec_of(pictures: Path, **changes: Any) -> RunSpec:
    return RunSpec(dataset=str(pictures), **{"algorithm": "erm", "test_domains": ("dark",), **OPTIONS, **changes})


def test_training_equals_that_of_the_whole_network_on_the_same_views(pictures: Path) -> None:
    """A literal loop computes the views of every batch anew, through all layers, and rounds where the cache does."""
    run = prepare(spec_of(pictures), device="cpu", progress=False)
    plain = prepare(spec_of(pictures, freeze=0, views=0), device="cpu", progress=False)
    algorithm = build_algorithm(run)
    seed_torch("init", 0)
    whole = build_algorithm(plain)
    front, rest = split_network(whole.featurizer, 2)
    rest.train()
    classifier = whole.classifier
    optimizer = torch.optim.Adam([*rest.parameters(), *classifier.parameters()], lr=algorithm.config.lr)
    source, domains = build_source(run), [plain.dataset.domains[plain.dataset.index(name)] for name in run.sources]
    for step in range(3):
        algorithm.step(source.at(step))
        losses = []
        for d, (domain, indices) in enumerate(zip(domains, source.sampler.draw(step))):
            views = torch.randint(VIEWS + 1, (len(indices),), generator=torch_generator("augment", 0, d, step))
            maps = []
            for view, index in zip(views.tolist(), indices):
                batch = np.arange(len(domain))  # augmented together, as the cache does
                generator = torch_generator("view", view, domain.name, 0) if view else None
                with torch.no_grad():
                    maps.append(front.eval()(HostBatch.of(domain, batch, generator).inputs.finish())[index])
            z = rest(torch.stack(maps).half().float())
            losses.append(cross_entropy(classifier(z), torch.from_numpy(domain.y[indices])))
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    for name, expected in rest.named_parameters():
        # float16 rounds a last bit that differs between batch sizes up or down: 1e-3 of a value
        torch.testing.assert_close(algorithm.featurizer.get_parameter(name), expected, rtol=1e-2, atol=1e-4)


def test_maps_are_halves_of_the_frozen_sections_and_shared_by_trials_and_seeds(pictures: Path, cache: Path) -> None:
    weights = cache / "small_cnn.pt"
    torch.save(build_featurizer("small_cnn", (3, 16, 16)).net.state_dict(), weights)
    run = prepare(spec_of(pictures, weights=str(weights)), device="cpu", progress=False)
    inputs = run.dataset.domains[0].inputs
    assert isinstance(inputs, ViewInputs)
    assert inputs.x.dtype == np.float16
    assert run.dataset.input_shape == (48, 4, 4)
    before = sorted((cache / "activations").rglob("*.bin"))
    prepare(spec_of(pictures, weights=str(weights), seed=7, trial_seed=3, algorithm="coral"), progress=False)
    assert sorted((cache / "activations").rglob("*.bin")) == before


def test_only_the_rest_is_in_the_weights(pictures: Path, tmp_path: Path) -> None:
    record = train(spec_of(pictures), tmp_path, device="cpu", progress=False)
    assert record.folder is not None
    kept = torch.load(record.folder / "best.pt", weights_only=True)
    assert {key.split(".")[2] for key in kept if key.startswith("featurizer.")} == {"layer3"}
    assert record.spec.input_shape == (3, 16, 16)


def test_a_killed_run_ends_with_the_same_files(pictures: Path, tmp_path: Path) -> None:
    whole = train(spec_of(pictures, algorithm="fgmix"), tmp_path / "a", device="cpu", progress=False).folder
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, "step", 9)
        with pytest.raises(Killed):
            train(spec_of(pictures, algorithm="fgmix"), tmp_path / "b", device="cpu", progress=False)
    again = train(spec_of(pictures, algorithm="fgmix"), tmp_path / "b", device="cpu", progress=False).folder
    assert whole is not None
    assert again is not None
    assert (whole / "record.json").read_bytes() == (again / "record.json").read_bytes()


@pytest.mark.parametrize("kind", ["length", "byte"])
def test_damage_is_found_and_repaired_by_the_next_run(
    kind: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    rows = np.arange(5)
    expected = prepare(spec_of(pictures), progress=False).dataset.domains[0].inputs.clean(rows)
    for path in (tmp_path / "cache" / "activations").rglob("*.bin"):
        data = bytearray(path.read_bytes())
        data[3] ^= 1
        path.write_bytes(data if kind == "byte" else data[:-1])
    monkeypatch.setattr("fgmix.data.activations._opened", {})
    if kind == "byte":
        with pytest.raises(UserError, match="damaged"):
            prepare(spec_of(pictures), progress=False).dataset.domains[0].inputs.clean(rows)
    found = prepare(spec_of(pictures), progress=False).dataset.domains[0].inputs.clean(rows)
    assert torch.equal(found, expected)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    out = tmp_path_factory.mktemp("views") / "model"
    fit(pictures, out, algorithm="erm", settings={"lr": 1e-2}, device="cpu", progress=False, **OPTIONS)
    return out


def test_the_model_takes_images_and_predicts_what_its_run_does(model_folder: Path, pictures: Path) -> None:
    model = load_model(model_folder)
    (final,) = (model_folder / "runs").glob("*-erm-all-*")
    run = open_run(final, progress=False)
    rows = list(predict_paths(model, [pictures / "dark"], probabilities=True, progress=False))
    dark = run.prepared.dataset.domains[run.prepared.dataset.index("dark")]
    with torch.no_grad():
        logits = run.algorithm("best", "swa").predict(dark.inputs.clean(np.arange(len(dark))))
    assert model.info.estimate is not None
    expected = torch.softmax(logits / model.info.estimate.temperature, dim=1)
    found = np.array([[float(row[f"p({name})"]) for name in model.info.classes] for row in rows])
    np.testing.assert_allclose(found, expected.numpy(), atol=5e-3)  # halves, and rows rounded to four digits


def test_a_plan_counts_what_is_missing_without_computing_it(pictures: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FGMIX_CACHE", str(tmp_path))
        dataset = load(str(pictures), LoadOptions(image_size=16, progress=False))
        cost = calibrate(spec_of(pictures), dataset, device="cpu", repeats=1).activations
        images = sum(map(len, dataset.domains)) * (VIEWS + 1)
        assert cost is not None
        assert (cost.images, cost.bytes) == (images, images * 48 * 4 * 4 * 2)
        assert not (tmp_path / "activations").exists()
        prepare(spec_of(pictures), progress=False)
        assert calibrate(spec_of(pictures), dataset, device="cpu", repeats=1).activations is None
        shutil.rmtree(tmp_path / "activations")


@pytest.mark.parametrize(
    ("name", "upto", "shape"),
    [
        ("tf_efficientnet_lite0", "blocks.5", (192, 2, 2)),
        ("tf_efficientnet_lite0", 3, (112, 4, 4)),
        ("resnet18", 4, (512, 2, 2)),
        ("test_convnext", 2, None),
    ],
)
def test_front_and_rest_give_the_codes(name: str, upto: int | str, shape: tuple[int, ...] | None) -> None:
    featurizer = build_featurizer(name, (3, 64, 64), freeze=upto).eval()
    front, rest = split_network(featurizer, upto)
    x = torch.randn(3, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(rest(front(x)), featurizer(x))
    assert shape in (None, rest.input_shape)
    trained = {key for key, value in featurizer.named_parameters() if value.requires_grad}
    assert {key for key, value in rest.named_parameters() if value.requires_grad} == trained


def test_a_front_passes_all_images_and_runs_nothing_behind_its_end() -> None:
    featurizer = build_featurizer("small_cnn", (3, 16, 16)).eval()
    front, rest = split_network(featurizer, 2)
    calls: list[int] = []
    featurizer.get_submodule("net.layer3").register_forward_hook(lambda _module, _inputs, h: calls.append(len(h)))
    x = torch.randn(choose_piece(16, 16) + 1, 3, 16, 16)
    with torch.inference_mode():
        codes = rest(front(x))
        assert calls == []
        torch.testing.assert_close(codes, featurizer(x))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"freeze": 0}, "views"),
        ({"freeze": "layer9"}, "layer9"),
        ({"freeze": "layer2.0.conv1"}, "layer2.0.conv1"),
        ({"freeze": 7}, "--freeze"),
        ({"frozen": True}, "freeze"),
    ],
)
def test_a_mistake_is_a_sentence(changes: dict[str, Any], named: str, pictures: Path) -> None:
    with pytest.raises(UserError, match=named):
        prepare(spec_of(pictures, **changes), progress=False)


def test_names_of_runs_do_not_change(pictures: Path) -> None:
    dataset = load(str(pictures), LoadOptions(image_size=16, progress=False))
    spec = resolve(spec_of(pictures, freeze=1, views=0), dataset)
    assert type(spec.freeze) is type(spec_of(pictures, freeze="1").freeze) is int
    assert spec.identity["freeze"] == 1


def test_processes_share_the_work(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that another process has locked is left to it, and computed in the end if that process gave up."""
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path))
    dataset = load(str(pictures), LoadOptions(image_size=16, progress=False))
    run = locate_activations(resolve(spec_of(pictures), dataset), dataset, device="cpu")
    first, *others = run._list_blocks()
    first.path.parent.mkdir(parents=True)
    compute, order = ActivationCache._compute, []
    with first.path.with_suffix(".lock").open("a") as other:
        assert lock_descriptor(other.fileno(), blocking=False)

        def record(cache: ActivationCache, block: Any, bar: Any) -> Any:
            order.append(block.path)
            if len(order) == len(others):
                other.close()
            return compute(cache, block, bar)

        monkeypatch.setattr(ActivationCache, "_compute", record)
        run.fill(progress=False)
    assert order == [block.path for block in [*others, first]]
    assert run.count_missing() == 0
    assert not list(tmp_path.rglob("activations/**/*.lock"))
