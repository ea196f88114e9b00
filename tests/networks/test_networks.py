"""Backbones, heads, frozen batch-norm."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from fgmix.errors import UserError
from fgmix.networks import build, build_classifier, build_featurizer


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("small_cnn", (3, 32, 32)),
        ("mnist_cnn", (2, 28, 28)),
        ("mlp", (7,)),
        ("domainbed_mlp", (7,)),
        ("identity", (7,)),
        ("signal_cnn", (4, 100)),
        ("signal_cnn", (1, 1)),
        ("small_cnn", (5, 20, 30)),
        ("resnet18", (12, 32, 32)),
        ("resnet18", (3, 32, 32)),
        ("mobilenetv3_small_050", (3, 32, 32)),  # a layer of its head stays in front of the classifier
        pytest.param(  # timm leaves it a classifier for 0 classes
            *("inception_next_atto", (3, 32, 32)), marks=pytest.mark.filterwarnings("ignore:Initializing zero-element")
        ),
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


def test_mistakes() -> None:
    with pytest.raises(UserError, match="Did you mean 'resnet18'"):
        build_featurizer("resnet_18", (3, 32, 32))
    with pytest.raises(UserError, match="Unknown tag of resnet18 'tv_in2k'"):
        build_featurizer("resnet18.tv_in2k", (3, 32, 32))
    with pytest.raises(UserError, match=r"expects samples \(channels, height, width\).*Use `mlp`"):
        build_featurizer("small_cnn", (7,))
    with pytest.raises(UserError, match="Use `signal_cnn`"):
        build_featurizer("resnet18", (2, 100))
    with pytest.raises(UserError, match=r"\(channels, time\).*Use `small_cnn`"):
        build_featurizer("signal_cnn", (3, 32, 32))
    with pytest.raises(UserError, match="has no pre-trained weights"):
        build_featurizer("mlp", (7,), pretrained=True)


def test_many_images_are_evaluated_in_pieces_on_a_cpu() -> None:
    """Maps between layers then fit into its cache; training and stored gradients see whole batches."""
    featurizer = build_featurizer("small_cnn", (3, 16, 16), dropout=0.5).eval()
    sizes: list[int] = []
    featurizer.net.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    x = torch.randn(70, 3, 16, 16)
    whole = featurizer(x)
    with torch.inference_mode():
        torch.testing.assert_close(featurizer(x), whole.detach())
        featurizer.train()(x)
        featurizer.eval()(torch.zeros(17, 3, 65, 64))
    assert sizes == [70, 64, 6, 70, 16, 1]


def test_the_gradient_of_channels_last_maps_is_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over pixels would send a channels-first one, with the same numbers."""
    x, layouts, gradients = torch.randn(4, 3, 64, 64), [], []
    for keeps in (True, False):
        if not keeps:
            monkeypatch.setattr(build, "keep_layout", lambda _: None)
        torch.manual_seed(0)
        featurizer = build_featurizer("mobilenetv3_small_050", x.shape[1:], channels_last=True).double()

        def look(_: nn.Module, inputs: tuple[torch.Tensor]) -> None:
            inputs[0].register_hook(lambda g: layouts.append(g.is_contiguous(memory_format=torch.channels_last)))

        featurizer.net.global_pool.register_forward_pre_hook(look)
        featurizer(x.double()).square().sum().backward()
        gradients.append([p.grad for p in featurizer.parameters() if p.grad is not None])
    assert layouts == [True, False]
    torch.testing.assert_close(*gradients)


def test_pools_that_are_called_otherwise_are_left_alone() -> None:
    class Pool(nn.Module):
        def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
            return maps[0].mean((2, 3))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.global_pool = nn.Conv2d(3, 4, 3), Pool()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.global_pool(maps=[self.conv(x)]) + self.global_pool([self.conv(x)])

    net = Net()
    build.keep_layout(net)
    net(torch.randn(2, 3, 8, 8)).sum().backward()


def test_domainbeds_mlp_ends_in_a_linear_layer() -> None:
    """Linear–ReLU–Linear–ReLU–Linear of width 256, so that codes have both signs; ours ends in the ReLU."""
    x = torch.randn(64, 7)
    ours, theirs = (build_featurizer(name, (7,)) for name in ("mlp", "domainbed_mlp"))
    assert [layer.out_features for layer in theirs.modules() if type(layer) is nn.Linear] == [256] * 3
    assert (ours(x) >= 0).all()
    assert 0.3 < (theirs(x) < 0).float().mean() < 0.7
