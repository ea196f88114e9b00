"""SelfNorm against its formula, and its life inside a network."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from fgmix.algorithms.cnsn import SelfNorm, add_selfnorm
from fgmix.errors import UserError
from fgmix.networks import build_featurizer


def gate_by_hand(gate: nn.Module, x: Tensor) -> Tensor:
    """The authors' modules: a depthwise convolution over [μ, σ], batch-norm, sigmoid."""
    c = x.shape[1]
    statistics = torch.stack([x.mean((2, 3)), x.std((2, 3))], -1)
    conv, norm = nn.Conv1d(c, c, 2, groups=c, bias=False), nn.BatchNorm1d(c)
    with torch.no_grad():
        conv.weight.copy_(gate.w.T[:, None])
        norm.weight.copy_(gate.gamma)
        norm.bias.copy_(gate.beta)
    return torch.sigmoid(norm(conv(statistics)))[..., None]


def test_one_gate_scales_the_map() -> None:
    layer, x = SelfNorm(3, bias=0.5), torch.randn(6, 3, 4, 4)
    torch.testing.assert_close(layer(x), gate_by_hand(layer.g, x) * x)


def test_two_gates_scale_mean_and_deviation_apart() -> None:
    layer, x = SelfNorm(3, two_gates=True), torch.randn(6, 3, 4, 4)
    out, g, f = layer(x), gate_by_hand(layer.g, x), gate_by_hand(layer.f, x)
    torch.testing.assert_close(out.mean((2, 3)), f[..., 0, 0] * x.mean((2, 3)))
    torch.testing.assert_close(out.std((2, 3)), g[..., 0, 0] * x.std((2, 3)))


def test_equal_gates_are_one_gate() -> None:
    two, one = SelfNorm(3, two_gates=True), SelfNorm(3)
    two.f.load_state_dict(two.g.state_dict())
    one.g.load_state_dict(two.g.state_dict())
    x = torch.randn(6, 3, 4, 4)
    torch.testing.assert_close(two(x), one(x))


@pytest.mark.parametrize("training", [True, False])
def test_zero_weights_halve_the_map(training: bool) -> None:
    layer, x = SelfNorm(3).train(training), torch.randn(6, 3, 4, 4)
    nn.init.zeros_(layer.g.w)
    torch.testing.assert_close(layer(x), x / 2)


def test_evaluation_uses_the_running_statistics() -> None:
    """After one batch: running mean 0.1·mean, running variance 0.9 + 0.1·var, as batch-norm with momentum 0.1."""
    layer, x = SelfNorm(2), torch.randn(8, 2, 4, 4) + 2
    layer(x)
    a = layer.g.w[0] * x.mean((2, 3)) + layer.g.w[1] * x.std((2, 3))
    torch.testing.assert_close(layer.g.running_mean, 0.1 * a.mean(0).detach())
    torch.testing.assert_close(layer.g.running_var, 0.9 + 0.1 * a.var(0).detach())
    layer.eval()
    normed = (a - layer.g.running_mean) / (layer.g.running_var + 1e-5).sqrt()
    torch.testing.assert_close(layer(x), torch.sigmoid(normed)[..., None, None] * x)


def test_one_sample_trains_on_the_running_statistics() -> None:
    layer, x = SelfNorm(2), torch.randn(1, 2, 4, 4)
    trained = layer(x)
    torch.testing.assert_close(trained, layer.eval()(x))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("two_gates", [False, True])
def test_tiny_maps_stay_finite(size: int, two_gates: bool) -> None:
    layer, x = SelfNorm(2, two_gates), torch.randn(4, 2, size, size, requires_grad=True)
    out = layer(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.isfinite(out).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("backbone", "blocks"),
    [("small_cnn", 3), ("resnet18", 8), ("resnet26", 8), ("resnetv2_18", 8), ("convnext_atto", 12)],
)
def test_every_block_gets_one(backbone: str, blocks: int) -> None:
    g = build_featurizer(backbone, (3, 32, 32))
    names = set(dict(g.named_parameters()))
    added = [g.get_submodule(f"{block.name}.selfnorm") for block in add_selfnorm(g)]
    assert len(added) == blocks
    assert names < set(dict(g.named_parameters()))  # the old parameters keep their names
    with torch.no_grad():
        assert g(torch.randn(2, 3, 32, 32)).shape == (2, g.out_features)
    assert all(not torch.equal(layer.g.running_mean, torch.zeros_like(layer.g.running_mean)) for layer in added)


def test_wide_open_gates_leave_the_network_as_it_was() -> None:
    g = build_featurizer("small_cnn", (3, 16, 16))
    x = torch.randn(4, 3, 16, 16)
    before = g(x)
    add_selfnorm(g, bias=30.0)
    torch.testing.assert_close(g(x), before)


def test_frozen_batch_norm_does_not_freeze_the_gates() -> None:
    g = build_featurizer("resnet18", (3, 32, 32), freeze_bn=True)
    add_selfnorm(g)
    before = {name: buffer.clone() for name, buffer in g.named_buffers()}
    with torch.no_grad():
        g.train()(torch.randn(2, 3, 32, 32))
    moved = {name for name, buffer in g.named_buffers() if not torch.equal(buffer, before[name])}
    assert moved
    assert all(".selfnorm." in name for name in moved)


def test_a_deep_copy_uses_its_own_layers() -> None:
    g = build_featurizer("small_cnn", (3, 16, 16))
    blocks = add_selfnorm(g)
    copy = deepcopy(g).eval()
    x = torch.randn(4, 3, 16, 16)
    torch.testing.assert_close(copy(x), g.eval()(x))
    for block in blocks:
        nn.init.constant_(copy.get_submodule(block.name).selfnorm.g.beta, -100.0)  # gates shut
    assert torch.equal(copy(x), torch.zeros(4, 96))
    assert not torch.equal(g(x), torch.zeros(4, 96))


def test_a_second_time_is_refused() -> None:
    g = build_featurizer("small_cnn", (3, 16, 16))
    add_selfnorm(g)
    with pytest.raises(UserError, match="without SelfNorm"):
        add_selfnorm(g)
