"""Backbones, heads, frozen batch-norm, weights from files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from fgmix.errors import UserError
from fgmix.networks import build_classifier, build_featurizer, residual_blocks, stages


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("small_cnn", (3, 32, 32)),
        ("mnist_cnn", (2, 28, 28)),
        ("mlp", (7,)),
        ("identity", (7,)),
        ("resnet18", (3, 32, 32)),
    ],
)
def test_codes_have_the_width_that_is_declared(name: str, shape: tuple[int, ...]) -> None:
    featurizer = build_featurizer(name, shape).eval()
    assert featurizer(torch.randn(2, *shape)).shape == (2, featurizer.out_features)


def test_vision_transformers_are_built_for_the_images_at_hand() -> None:
    """timm's are made for 224 px and refuse others unless told."""
    featurizer = build_featurizer("vit_tiny_patch16_224", (3, 32, 32))
    assert featurizer(torch.randn(2, 3, 32, 32)).shape == (2, 192)


def test_small_cnn_is_sized_for_a_cpu() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        build_featurizer("small_cnn", (3, 32, 32))(torch.randn(1, 3, 32, 32))
    assert 8e6 < counter.get_total_flops() < 12e6


def test_mnist_cnn_is_domainbeds() -> None:
    """conv 64, 128 (stride 2), 128, 128 with GroupNorm(8): parameters counted by hand, halved resolution."""
    net = build_featurizer("mnist_cnn", (3, 28, 28)).net
    convs = (3 * 64 + 64 * 128 + 2 * 128 * 128) * 9 + 64 + 3 * 128
    norms = 2 * (64 + 3 * 128)
    assert sum(p.numel() for p in net.parameters()) == convs + norms
    sizes = []
    net.convs[1].register_forward_hook(lambda _m, _i, out: sizes.append(out.shape[-1]))
    net(torch.randn(1, 3, 28, 28))
    assert sizes == [14]


def test_heads() -> None:
    assert isinstance(build_classifier("linear", 8, 3), nn.Linear)
    assert build_classifier("mlp", 8, 3)(torch.randn(2, 8)).shape == (2, 3)
    with pytest.raises(UserError, match="Did you mean 'linear'"):
        build_classifier("linea", 8, 3)


def test_frozen_batch_norm_keeps_its_statistics_while_its_scale_trains() -> None:
    featurizer = build_featurizer("resnet18", (3, 32, 32), freeze_bn=True).train()
    norm = next(m for m in featurizer.modules() if isinstance(m, nn.BatchNorm2d))
    before = norm.running_mean.clone()
    featurizer(torch.randn(4, 3, 32, 32)).sum().backward()
    assert torch.equal(norm.running_mean, before)
    assert norm.weight.grad is not None
    assert featurizer.training
    assert not norm.training


def test_batch_norm_is_frozen_where_weights_are_given_and_free_elsewhere(tmp_path: Path) -> None:
    donor = build_featurizer("resnet18", (3, 32, 32))
    assert not donor.freeze_bn
    torch.save(donor.net.state_dict(), tmp_path / "weights.pt")
    assert build_featurizer("resnet18", (3, 32, 32), weights=str(tmp_path / "weights.pt")).freeze_bn


def test_dropout_drops_in_training_only() -> None:
    featurizer = build_featurizer("identity", (1000,), dropout=0.5)
    x = torch.ones(1, 1000)
    assert 400 < int((featurizer.train()(x) == 0).sum()) < 600
    assert torch.equal(featurizer.eval()(x), x)
    with pytest.raises(UserError, match="dropout"):
        build_featurizer("identity", (3,), dropout=1.0)


class TestWeights:
    def test_by_name(self, tmp_path: Path) -> None:
        donor, taker = (build_featurizer("small_cnn", (3, 8, 8)) for _ in range(2))
        torch.save(donor.net.state_dict(), tmp_path / "w.pt")
        loaded = build_featurizer("small_cnn", (3, 8, 8), weights=str(tmp_path / "w.pt"))
        assert torch.equal(loaded.net.stem[0].weight, donor.net.stem[0].weight)
        assert not torch.equal(taker.net.stem[0].weight, donor.net.stem[0].weight)

    def test_by_order_with_a_classifier_left_over(self, tmp_path: Path) -> None:
        donor = build_featurizer("small_cnn", (3, 8, 8)).net.state_dict()
        renamed = {f"theirs.{i}": tensor for i, tensor in enumerate(donor.values())}
        torch.save({"state_dict": {**renamed, "head": torch.zeros(5)}}, tmp_path / "w.pt")
        loaded = build_featurizer("small_cnn", (3, 8, 8), weights=str(tmp_path / "w.pt")).net.state_dict()
        assert all(torch.equal(loaded[name], donor[name]) for name in donor)

    def test_safetensors_is_never_taken_by_order(self, tmp_path: Path) -> None:
        """It keeps tensors sorted by name: a batch-norm's bias would become its weight, silently."""
        from safetensors.torch import save_file

        donor = {f"other.{k}": v for k, v in build_featurizer("small_cnn", (3, 8, 8)).net.state_dict().items()}
        save_file(donor, tmp_path / "w.safetensors")
        with pytest.raises(UserError, match="does not keep the order"):
            build_featurizer("small_cnn", (3, 8, 8), weights=str(tmp_path / "w.safetensors"))
        torch.save(donor, tmp_path / "w.pt")
        build_featurizer("small_cnn", (3, 8, 8), weights=str(tmp_path / "w.pt"))

    def test_safetensors(self, tmp_path: Path) -> None:
        from safetensors.torch import save_file

        donor = build_featurizer("small_cnn", (3, 8, 8)).net.state_dict()
        save_file(donor, tmp_path / "w.safetensors")
        loaded = build_featurizer("small_cnn", (3, 8, 8), weights=str(tmp_path / "w.safetensors")).net.state_dict()
        assert all(torch.equal(loaded[name], donor[name]) for name in donor)

    def test_files_that_do_not_fit(self, tmp_path: Path) -> None:
        torch.save({"a": torch.zeros(3)}, tmp_path / "other.pt")
        (tmp_path / "junk.pt").write_bytes(b"junk")
        for name, sentence in [
            ("other.pt", "neither by name nor by order"),
            ("junk.pt", "does not load"),
            ("no.pt", "Found none"),
        ]:
            with pytest.raises(UserError, match=sentence):
                build_featurizer("small_cnn", (3, 8, 8), weights=str(tmp_path / name))

    def test_a_pickled_program_is_not_run(self, tmp_path: Path) -> None:
        import pickle

        class Evil:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return (Path.touch, (tmp_path / "owned",))  # type: ignore[return-value]

        (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil()))
        with pytest.raises(UserError, match="does not load"):
            build_featurizer("small_cnn", (3, 8, 8), weights=str(tmp_path / "evil.pt"))
        assert not (tmp_path / "owned").exists()


def test_mistakes() -> None:
    with pytest.raises(UserError, match="Did you mean 'resnet18'"):
        build_featurizer("resnet_18", (3, 32, 32))
    with pytest.raises(UserError, match="expects images"):
        build_featurizer("small_cnn", (7,))
    with pytest.raises(UserError, match="has no pre-trained weights"):
        build_featurizer("mlp", (7,), pretrained=True)


@pytest.mark.parametrize(
    ("name", "n_stages", "n_blocks"),
    [("small_cnn", 3, 3), ("resnet18", 4, 8), ("resnet50", 4, 16), ("tf_efficientnet_lite0", 7, 16)],
)
def test_stages_and_blocks_map_maps_to_maps(name: str, n_stages: int, n_blocks: int) -> None:
    featurizer = build_featurizer(name, (3, 64, 64)).eval()
    found = [*stages(featurizer), *residual_blocks(featurizer)]
    assert (len(stages(featurizer)), len(residual_blocks(featurizer))) == (n_stages, n_blocks)
    shapes: list[int] = []
    for module in found:
        module.register_forward_hook(lambda _m, _i, out: shapes.append(out.ndim))
    featurizer(torch.randn(1, 3, 64, 64))
    assert shapes == [4] * (n_stages + n_blocks)


def test_networks_without_stages_are_refused() -> None:
    for name, shape in [("mlp", (7,)), ("vit_tiny_patch16_224", (3, 224, 224))]:
        with pytest.raises(UserError, match="convolutional"):
            stages(build_featurizer(name, shape))
