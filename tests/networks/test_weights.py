"""Weights from files, from an installed package and from a hub."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fgmix.errors import UserError
from fgmix.networks import Featurizer, build_featurizer
from fgmix.networks._weights import load_weights
from fgmix.networks.names import PACKAGES, packaged_weights

PACKAGED = "tf_efficientnet_lite0.package"


def small(weights: Path | None = None) -> Featurizer:
    return build_featurizer("small_cnn", (3, 8, 8), weights=None if weights is None else str(weights))


def same(a: nn.Module, b: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, b[name]) for name, tensor in a.state_dict().items())


class TestMatching:
    def test_by_name(self, tmp_path: Path) -> None:
        donor = small().net.state_dict()
        torch.save(dict(reversed(donor.items())), tmp_path / "w.pt")
        loaded = small(tmp_path / "w.pt")
        assert same(loaded.net, donor)
        assert loaded.weights_matched == "by name"
        assert small().weights_matched is None

    def test_by_order_with_a_classifier_left_over(self, tmp_path: Path) -> None:
        donor = small().net.state_dict()
        renamed = {f"theirs.{i}": tensor for i, tensor in enumerate(donor.values())}
        torch.save({"state_dict": {**renamed, "head": torch.zeros(5)}}, tmp_path / "w.pt")
        loaded = small(tmp_path / "w.pt")
        assert same(loaded.net, donor)
        assert loaded.weights_matched == "by order"

    def test_counters_of_batches_do_not_count(self, tmp_path: Path) -> None:
        """Other libraries save batch-norm's without them."""
        donor = build_featurizer("test_resnet", (3, 32, 32)).net
        state = {f"m.{k}": v for k, v in donor.state_dict().items() if not k.endswith("num_batches_tracked")}
        torch.save(state, tmp_path / "w.pt")
        taker = build_featurizer("test_resnet", (3, 32, 32)).net
        assert load_weights(taker, tmp_path / "w.pt") == "by order"
        assert same(taker, donor.state_dict())

    def test_by_order_a_bias_never_becomes_a_weight(self, tmp_path: Path) -> None:
        """All four tensors of a batch-norm have one shape: their names, where they tell, must agree."""
        state = {f"m.{k}": v for k, v in sorted(build_featurizer("test_resnet", (3, 32, 32)).net.state_dict().items())}
        torch.save(state, tmp_path / "w.pt")
        with pytest.raises(UserError, match="neither by name nor by order"):
            build_featurizer("test_resnet", (3, 32, 32), weights=str(tmp_path / "w.pt"))

    def test_the_names_of_this_backbone_with_another_shape(self, tmp_path: Path) -> None:
        """Position codes of another image size."""
        save_file(build_featurizer("test_vit", (3, 32, 32)).net.state_dict(), tmp_path / "w.safetensors")
        with pytest.raises(UserError, match=r"pos_embed.*--image-size"):
            build_featurizer("test_vit", (3, 64, 64), weights=str(tmp_path / "w.safetensors"))

    def test_safetensors(self, tmp_path: Path) -> None:
        donor = small().net.state_dict()
        save_file(donor, tmp_path / "w.safetensors")
        assert same(small(tmp_path / "w.safetensors").net, donor)

    def test_safetensors_is_never_matched_by_order(self, tmp_path: Path) -> None:
        """It keeps tensors sorted by name: a batch-norm's bias would become its weight, silently."""
        donor = {f"other.{k}": v for k, v in small().net.state_dict().items()}
        save_file(donor, tmp_path / "w.safetensors")
        with pytest.raises(UserError, match="does not keep the order"):
            small(tmp_path / "w.safetensors")
        torch.save(donor, tmp_path / "w.pt")
        assert small(tmp_path / "w.pt").weights_matched == "by order"


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.path,))


def write_nothing(_path: Path) -> None:
    pass


def write_empty(path: Path) -> None:
    path.touch()


def write_junk(path: Path) -> None:
    path.write_bytes(b"junk")


def write_half(path: Path) -> None:
    torch.save(small().net.state_dict(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_tensor(path: Path) -> None:
    torch.save(torch.zeros(3), path)


def write_list(path: Path) -> None:
    torch.save([torch.zeros(3)], path)


def write_numbers(path: Path) -> None:
    torch.save({"epoch": 3, "loss": 0.5}, path)


def write_other(path: Path) -> None:
    torch.save({"a": torch.zeros(3)}, path)


def write_diverged(path: Path) -> None:
    state = small().net.state_dict()
    state["layer1.0.conv1.weight"][0, 0, 0, 0] = torch.nan
    torch.save(state, path)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (write_nothing, "Found none"),
        (write_empty, "cannot be loaded"),
        (write_junk, "cannot be loaded"),
        (write_half, "cannot be loaded .* Download it again"),
        (write_tensor, "Expected a state_dict.* Found a Tensor without any"),
        (write_list, "Expected a state_dict.* Found a list without any"),
        (write_numbers, "Expected a state_dict.* Found a dict without any"),
        (write_other, "Found 1 tensors that match neither by name nor by order"),
        (write_diverged, "Expected finite numbers.*the first is layer1.0.conv1.weight"),
    ],
)
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_odd_files(write: Callable[[Path], None], sentence: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"w.{suffix}"
    write(path)
    if suffix == "safetensors" and path.exists():
        sentence = "cannot be loaded"  # whatever torch wrote there is not this format
    with pytest.raises(UserError, match=sentence):
        small(path)


def test_a_pickled_program_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil(tmp_path / "owned")))
    with pytest.raises(UserError, match="cannot be loaded"):
        small(tmp_path / "evil.pt")
    assert not (tmp_path / "owned").exists()


class TestPackage:
    def test_a_missing_package_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(PACKAGES, PACKAGED, "no_such_package_of_weights")
        with pytest.raises(UserError, match=r"`no_such_package_of_weights`.*fgmix\[weights\]"):
            build_featurizer(PACKAGED, (3, 32, 32), pretrained=True)
        assert build_featurizer(PACKAGED, (3, 32, 32)).out_features == 1280  # random weights need no package

    def test_its_code_is_not_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "toy_weights" / "models").mkdir(parents=True)
        (tmp_path / "toy_weights" / "__init__.py").write_text("raise SystemExit('ran')")
        donor = build_featurizer("tf_efficientnet_lite0", (3, 32, 32)).net.state_dict()
        file = tmp_path / "toy_weights" / "models" / "w.pth"
        torch.save({f"_{name}": tensor for name, tensor in donor.items()}, file)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(PACKAGES, PACKAGED, "toy_weights")
        assert packaged_weights(PACKAGED) == file
        loaded = build_featurizer(PACKAGED, (3, 32, 32), pretrained=True)
        assert same(loaded.net, donor)
        assert (loaded.weights_matched, loaded.freeze_bn) == ("by order", True)
        assert "toy_weights" not in sys.modules

    def test_the_real_package(self) -> None:
        if find_spec(PACKAGES[PACKAGED]) is None:
            pytest.skip("the package of weights is not installed")
        loaded = build_featurizer(PACKAGED, (3, 64, 64), pretrained=True)
        assert loaded.weights_matched == "by order"
        variances = [v for name, v in loaded.net.state_dict().items() if name.endswith("running_var")]
        assert all((v >= 0).all() for v in variances)
        with torch.no_grad():
            norms = loaded.eval()(torch.rand(4, 3, 64, 64) * 2 - 1).norm(dim=1)
        assert ((norms > 1) & (norms < 50)).all()  # trained batch-norm statistics hold the codes; about 15 on photos


class TestHub:
    """No test talks to the hub: a session that never answers stands in for it."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, float]]:
        import huggingface_hub

        asked: list[tuple[str, float]] = []

        class Deaf:
            def head(self, address: str, timeout: float) -> None:
                asked.append((address, timeout))
                raise ConnectionError

        monkeypatch.setattr(huggingface_hub.utils, "get_session", Deaf)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
        return asked

    def cached_file(self, cache: Path) -> Path:
        """Where Hugging Face's cache keeps the weights of test_resnet."""
        model = cache / "models--timm--test_resnet.r160_in1k"
        (model / "refs").mkdir(parents=True)
        (model / "refs" / "main").write_text("abc")
        (model / "snapshots" / "abc").mkdir(parents=True)
        return model / "snapshots" / "abc" / "model.safetensors"

    def test_a_hub_out_of_reach_is_reported_at_once(self, asked: list[tuple[str, float]]) -> None:
        with pytest.raises(UserError, match=r"cannot be reached .*--weights PATH.*HF_HUB_OFFLINE=1"):
            build_featurizer("test_resnet.r160_in1k", (3, 32, 32), pretrained=True)
        [(address, timeout)] = asked
        assert address.endswith("/timm/test_resnet.r160_in1k")
        assert timeout <= 5

    def test_weights_outside_the_hub_are_asked_for_where_they_are(self, asked: list[tuple[str, float]]) -> None:
        with pytest.raises(UserError, match="cannot be reached"):
            build_featurizer("legacy_seresnet18", (3, 32, 32), pretrained=True)
        assert asked[0][0].endswith(".pth")

    def test_weights_in_the_cache_need_no_hub(self, asked: list[Any], tmp_path: Path) -> None:
        from fgmix.networks.names import load_timm

        donor = load_timm().create_model("test_resnet").state_dict()
        save_file(donor, self.cached_file(tmp_path))
        loaded = build_featurizer("test_resnet", (3, 32, 32), pretrained=True)
        assert same(loaded.net, donor)
        assert asked == []

    def test_a_broken_file_in_the_cache(self, asked: list[Any], tmp_path: Path) -> None:
        self.cached_file(tmp_path).write_bytes(b"half")
        with pytest.raises(UserError, match=r"with pre-trained weights.* Download its weights again"):
            build_featurizer("test_resnet", (3, 32, 32), pretrained=True)
        assert asked == []

    def test_a_model_without_weights_is_refused_before_anything_is_asked(self, asked: list[Any]) -> None:
        with pytest.raises(UserError, match="Found coatnet_0_224, of which it has none"):
            build_featurizer("coatnet_0_224", (3, 224, 224), pretrained=True)
        assert asked == []
