"""What training would refuse is refused before it; images in arrays are normalised as pre-trained weights expect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from copying import replace
from fgmix.data import DomainDataset, from_arrays
from fgmix.errors import UserError
from fgmix.networks import build_featurizer
from fgmix.records.schema import RunSpec
from fgmix.records.store import read_record
from fgmix.training import loop, resolve
from fgmix.training.loop import train
from fgmix.training.prepare import build_algorithm, prepare, rehearse
from training.killed_run import toy_data, toy_spec

MODEL = "tf_efficientnet_lite0"


def digits(**options: object) -> RunSpec:
    return RunSpec(**{"dataset": "digits", "algorithm": "erm", "test_domains": "photo", **options})  # type: ignore[arg-type]


def small_images(scale: float = 1.0, channels: int = 3) -> DomainDataset:
    rng = np.random.default_rng(0)
    x = scale * rng.random((18, channels, 32, 32), dtype=np.float32)
    return from_arrays(x, np.arange(18) % 2, np.arange(18) // 6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"backbone": "small_cnn", "pretrained": True}, "small_cnn, which has no pre-trained weights"),
        ({"algorithm": "ddg", "batch_size": 1}, "at least 2 images per domain and step. Found 1"),
        ({"algorithm": "ddg", "settings": {"downs": 6}}, "at least 128 pixels a side"),
        ({"algorithm": "mixstyle", "backbone": "mlp"}, "Expected a convolutional network"),
    ],
)
def test_a_rehearsal_refuses_what_training_refuses(options: dict[str, object], sentence: str, tmp_path: Path) -> None:
    spec = digits(steps=2, **options)
    with pytest.raises(UserError, match=sentence):
        rehearse(spec, progress=False)
    with pytest.raises(UserError, match=sentence):
        train(spec, tmp_path, device="cpu", progress=False)


def test_a_rehearsal_is_the_run(tmp_path: Path) -> None:
    rows = np.arange(18)
    np.savez(tmp_path / "rows.npz", X=rows[:, None] / 2.0, y=rows % 2, domain=rows // 6)
    spec = RunSpec(dataset=str(tmp_path / "rows.npz"), algorithm="erm", test_domains="0", steps=1)
    assert rehearse(spec, progress=False) == train(spec, tmp_path, device="cpu", progress=False).spec


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A weights file of the model, by the names of its tensors."""
    path = tmp_path_factory.mktemp("weights") / "w.pt"
    torch.save(build_featurizer(MODEL, (3, 32, 32)).net.state_dict(), path)
    return str(path)


def test_the_network_normalises_images_in_arrays(weights: str) -> None:
    spec = replace(toy_spec(), backbone=MODEL, weights=weights, dropout=0.0)
    run = prepare(spec, small_images(), progress=False)
    assert (run.spec.mean, run.spec.std, run.spec.interpolation) == ((0.5,) * 3, (0.5,) * 3, "")
    featurizer = build_algorithm(run).featurizer.eval()
    x = run.dataset.domains[0].inputs.clean(np.arange(2))
    assert torch.equal(x, small_images().domains[0].inputs.clean(np.arange(2))), "not twice"
    with torch.no_grad():
        assert torch.allclose(featurizer(x), featurizer.net((x - 0.5) / 0.5))
    assert not any(name in ("mean", "std") for name in featurizer.state_dict()), "weights files stay as they were"


@pytest.mark.parametrize("data", [small_images(255.0), small_images(channels=1)])
def test_images_that_cannot_be_normalised_are_refused(weights: str, data: DomainDataset) -> None:
    with pytest.raises(UserError, match=r"3 channels, as uint8 or as floats in \[0, 1\].* Found arrays"):
        prepare(replace(toy_spec(), backbone=MODEL, weights=weights), data, progress=False)


def test_channels_that_are_standardised_enter_a_pretrained_network(weights: str) -> None:
    spec = replace(toy_spec(), backbone=MODEL, weights=weights, standardize=True)
    run = prepare(spec, small_images(255.0), progress=False)
    assert (run.spec.standardize, run.spec.mean) == (True, ())


def test_random_initial_weights_expect_nothing() -> None:
    assert prepare(replace(toy_spec(), backbone=MODEL), small_images(255.0), progress=False).spec.mean == ()


def test_the_record_says_how_weights_were_matched_and_what_computed(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = {"name": "NVIDIA A100", "driver": "535.104.05", "cuda": "12.4", "cudnn": "90100"}
    monkeypatch.setattr(loop, "describe_gpu", lambda _: gpu)
    spec = replace(toy_spec(), backbone=MODEL, weights=weights, steps=1, batch_size=2, snapshots=0)
    record = train(spec, tmp_path, dataset=small_images(), device="cpu", progress=False)
    assert record.folder is not None
    found = read_record(record.folder)
    assert (found.weights_matched, found.gpu) == ("by name", gpu)
    plain = train(replace(toy_spec(), steps=1), tmp_path, dataset=toy_data(), device="cpu", progress=False)
    assert plain.weights_matched is None


def test_a_packages_weights_are_part_of_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = []
    for content in (b"one", b"two"):
        file = tmp_path / content.decode()
        file.write_bytes(content)
        monkeypatch.setattr("fgmix.training.resolve.packaged_weights", lambda _, file=file: file)
        spec = replace(toy_spec(), backbone=f"{MODEL}.package")
        resolved = resolve.resolve(spec, small_images())
        assert resolved.weights_digest
        names.append(resolved.name)
    assert names[0] != names[1]
