"""Runs with `--lora`: identity, resume, kept weights, opening, the fitted model and its export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fgmix import fit, load_model
from fgmix.data import DomainDataset, from_arrays
from fgmix.deploy.export import export_model
from fgmix.deploy.soup import soup
from fgmix.errors import UserError
from fgmix.networks import build_featurizer
from fgmix.networks._torchvision import ensure_torchvision
from fgmix.networks.lora import merge_adapters
from fgmix.records.schema import LORA, ResolvedSpec, RunSpec, to_plain
from fgmix.training.loop import train
from fgmix.training.open_run import open_run
from fgmix.training.resolve import resolve
from training.killed_run import Killed, kill_at

ensure_torchvision()  # which peft's imports need
pytest.importorskip("peft")

SHAPE = (3, 32, 32)


@pytest.fixture(scope="module")
def data() -> DomainDataset:
    rng = np.random.default_rng(0)
    y, domain = np.arange(48) % 2, np.arange(48) // 16
    x = rng.integers(0, 256, size=(48, *SHAPE)) // 2 + 100 * y[:, None, None, None]
    return from_arrays(x.astype(np.uint8), y, domain)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a backbone, as a user would give them."""
    path = tmp_path_factory.mktemp("weights") / "vit.pt"
    save_weights(path, seed=1)
    return path


def save_weights(path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    torch.save(build_featurizer("test_vit", SHAPE).net.state_dict(), path)


def spec(**options: Any) -> RunSpec:
    short: dict[str, Any] = {
        "steps": 4,
        "eval_every": 2,
        "batch_size": 4,
        "averaging_start": 2,
        "settings": {"lr": 0.01},
    }
    common: dict[str, Any] = {"dataset": "arrays", "algorithm": "erm", "test_domains": ("2",), "backbone": "test_vit"}
    return RunSpec(**{**common, **short, "lora": 2, **options})


def run(data: DomainDataset, out: Path, **options: Any) -> Any:
    return train(spec(**options), out, dataset=data, device="cpu", progress=False)


def test_a_run_without_adapters_is_recorded_as_before(data: DomainDataset) -> None:
    plain, adapted = resolve(spec(lora=0), data), resolve(spec(lora_targets="attn"), data)
    assert not {*LORA} & to_plain(plain).keys()
    assert [getattr(adapted, name) for name in LORA] == [2, "attn", 2.0, 0.0]
    assert adapted.freeze_bn
    assert plain.name != adapted.name
    assert (
        resolve(ResolvedSpec(**{name: getattr(adapted, name) for name in adapted.__struct_fields__}), data) == adapted
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lora": 0, "lora_targets": "attn"}, "lora_targets"),
        ({"lora": 0, "lora_alpha": 1.0}, "lora_alpha"),
        ({"freeze": 1}, "lora"),
        ({"freeze_bn": False}, "freeze_bn"),
        ({"lora": -1}, "lora"),
        ({"lora_dropout": 1.0}, "lora_dropout"),
    ],
)
def test_options_that_do_not_fit_are_refused(data: DomainDataset, options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=f"`{named}`"):
        resolve(spec(**options), data)


@pytest.mark.parametrize("averaging", ["swa", "swad"])
def test_a_killed_run_ends_like_an_undisturbed_one(
    data: DomainDataset, weights: Path, tmp_path: Path, averaging: str
) -> None:
    options = {"weights": str(weights), "averaging": averaging, "checkpoint_every": 1, "lora_dropout": 0.1}
    whole = run(data, tmp_path / "whole", **options)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, "step", 4)
        with pytest.raises(Killed):
            run(data, tmp_path / "killed", **options)
    checkpoint = tmp_path / "killed" / whole.spec.name / "checkpoint.pt"
    assert checkpoint.stat().st_size < weights.stat().st_size / 2  # 1.2 MB
    resumed = run(data, tmp_path / "killed", **options)
    assert (whole.folder / "record.json").read_bytes() == (resumed.folder / "record.json").read_bytes()
    for name in ("last.pt", f"last_{averaging}.pt", "best.pt"):
        ours, theirs = (torch.load(folder / name, weights_only=True) for folder in (whole.folder, resumed.folder))
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
        assert not any(".base_layer." in key or "patch_embed" in key for key in ours)


def test_a_run_from_a_shared_trunk_is_that_without_one(data: DomainDataset, tmp_path: Path) -> None:
    options = {"algorithm": "fgmix", "settings": {"lr": 0.01, "tau": 0.5}}
    alone = run(data, tmp_path / "alone", **options)
    shared = train(spec(**options), tmp_path / "shared", dataset=data, device="cpu", progress=False, trunk=1)
    assert (alone.folder / "record.json").read_bytes() == (shared.folder / "record.json").read_bytes()


def test_opening_a_run_rebuilds_the_base_from_its_weights(data: DomainDataset, tmp_path: Path) -> None:
    file = tmp_path / "vit.pt"
    save_weights(file, seed=1)
    record = run(data, tmp_path, weights=str(file), keep="best")
    opened = open_run(record.folder, dataset=data, progress=False)
    algorithm = opened.algorithm("best", "swa")
    base = torch.load(file, weights_only=True)
    parameters = dict(algorithm.featurizer.named_parameters())
    assert torch.equal(parameters["net.blocks.0.attn.qkv.base_layer.weight"], base["blocks.0.attn.qkv.weight"])
    x = opened.sample(["2"])
    with torch.inference_mode():
        guesses = torch.cat([algorithm.predict(batch) for batch in x.inputs()]).argmax(1)
    assert (guesses == x.y).double().mean() == pytest.approx(record.test_accuracy("swa"))
    save_weights(file, seed=2)
    with pytest.raises(UserError, match="backbone weights that the adapters were trained on"):
        opened.algorithm("best")
    file.unlink()
    with pytest.raises(UserError, match="weights file"):
        opened.algorithm("best")


def test_a_fitted_model_is_merged_and_exported(data: DomainDataset, weights: Path, tmp_path: Path) -> None:
    """It needs neither the base's file nor peft, and equals the adapted network."""
    file = tmp_path / "vit.pt"
    file.write_bytes(weights.read_bytes())
    options = {
        "steps": 4,
        "eval_every": 2,
        "batch_size": 4,
        "backbone": "test_vit",
        "lora": 2,
        "settings": {"lr": 0.01},
    }
    fit(data, tmp_path / "model", algorithm="erm", weights=str(file), estimated=False, progress=False, **options)
    opened = open_run(next((tmp_path / "model" / "runs").glob("*-all-*")), dataset=data, progress=False)
    algorithm = opened.algorithm("best", opened.record.models[-1])
    file.unlink()
    model = load_model(tmp_path / "model")
    x = torch.cat(list(opened.sample(["0", "1", "2"]).inputs()))
    with torch.inference_mode():
        logits, _ = model.network.logits_and_novelty(x)
        torch.testing.assert_close(logits, algorithm.predict(x), rtol=1e-4, atol=1e-5)
    assert not any("lora" in name for name in model.network.state_dict())
    pytest.importorskip("onnxruntime")
    path = export_model(model, tmp_path / "model.onnx")  # which compares the file's outputs with the network's
    assert path.stat().st_size > 100_000


@pytest.mark.parametrize("alpha", [None, 0.25])
def test_a_soup_is_the_mean_of_merged_networks(data: DomainDataset, tmp_path: Path, alpha: float | None) -> None:
    """Of runs with different adapters, too; W + ΔW is averaged, not A and B."""
    options: list[dict[str, Any]] = [{}, {"lora": 4, "lora_targets": "attn"}]
    records = [run(data, tmp_path, averaging="none", **each) for each in options]
    opened = [open_run(record.folder, dataset=data, progress=False).algorithm("best") for record in records]
    theirs = [merge_adapters(algorithm.featurizer).state_dict() for algorithm in opened]
    folders = [record.folder for record in records]
    model = soup(folders, tmp_path / "soup", alpha=alpha, dataset=data, progress=False)
    share = 0.5 if alpha is None else alpha
    tensors = model.network.featurizer.state_dict()
    assert tensors.keys() == theirs[0].keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, torch.lerp(theirs[0][name], theirs[1][name], share))


def test_bfloat16_runs(data: DomainDataset, tmp_path: Path) -> None:
    assert run(data, tmp_path, precision="bf16", steps=2, algorithm="fgmix").status == "done"
