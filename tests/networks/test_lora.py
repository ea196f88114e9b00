"""Adapters of low rank: what trains, what is saved, and that merged networks compute the same."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fgmix.algorithms import Algorithm, create
from fgmix.errors import UserError
from fgmix.networks import Featurizer, build_featurizer
from fgmix.networks._torchvision import ensure_torchvision
from fgmix.networks.lora import add_adapters, list_base, merge_adapters
from fgmix.networks.parts import recompute_blocks
from fgmix.testing.contract import copy_through_file, get_tensors, require_same_tensors
from fgmix.testing.toys import CLASSES, run_steps, toy_batches
from fgmix.training.averaging import get_predictor_tensors

ensure_torchvision()  # which peft's imports need
pytest.importorskip("peft")

SHAPE = (3, 32, 32)
METHODS = ("erm", "fgmix", "fish", "mldg", "iga", "miro", "sam", "ermplusplus", "urm")


class Attention(nn.Module):
    """A network with torch's own attention, as the image towers of open_clip have it."""

    out_features = 8

    def __init__(self, ballast: int = 1) -> None:
        super().__init__()
        self.ballast = nn.Conv2d(3, 8, ballast, padding="same")
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.ballast(x).flatten(2)[..., :5].transpose(1, 2)
        return self.fc(self.attn(tokens, tokens, tokens, need_weights=False)[0]).mean(1)


def build(backbone: str = "test_vit", **options: Any) -> Featurizer:
    """Build a network with adapters of rank 2, always from the same random numbers."""
    torch.manual_seed(0)
    net = Featurizer(Attention(), 8) if backbone == "attention" else build_featurizer(backbone, SHAPE)
    add_adapters(net, **{"rank": 2, **options})
    return net


def disturb(featurizer: nn.Module) -> None:
    """Move the adapters away from their start, at which they have no effect."""
    for parameter in featurizer.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.1)


def toy(name: str, **settings: Any) -> Algorithm:
    featurizer = build()
    classifier = nn.Linear(featurizer.out_features, CLASSES)
    settings = {"lr": 1e-2, "steps": 4, **settings}
    return create(name, featurizer=featurizer, classifier=classifier, n_domains=3, **settings)


def images() -> Tensor:
    return torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("backbone", ["test_vit", "attention"])
def test_adapters_add_the_scaled_product_of_their_factors(backbone: str) -> None:
    """Against W + α/r · B A, computed and put into a plain network by hand."""
    featurizer = build(backbone, alpha=3.0)
    torch.manual_seed(0)
    plain = Featurizer(Attention(), 8) if backbone == "attention" else build_featurizer(backbone, SHAPE)
    torch.testing.assert_close(featurizer.eval()(images()), plain.eval()(images()))
    disturb(featurizer)
    state, weights = featurizer.state_dict(), plain.state_dict()
    for name, a in state.items():
        if ".lora_A." in name:
            path = name.removesuffix(".lora_A.default.weight")
            weight = f"{path}.in_proj_weight" if f"{path}.in_proj_weight" in weights else f"{path}.weight"
            weights[weight] += 3.0 / 2 * state[f"{path}.lora_B.default.weight"] @ a
    plain.load_state_dict(weights)
    torch.testing.assert_close(featurizer(images()), plain(images()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backbone", ["test_vit", "attention", "test_resnet"])
def test_a_merged_network_computes_the_same_with_the_tensors_of_the_base(backbone: str) -> None:
    if backbone == "test_resnet":  # no linear layer
        with pytest.raises(UserError, match="linear layers"):
            build(backbone)
        return
    featurizer = build(backbone).eval()
    disturb(featurizer)
    merged = merge_adapters(featurizer)
    torch.testing.assert_close(merged(images()), featurizer(images()), rtol=1e-4, atol=1e-5)
    torch.manual_seed(0)
    plain = Featurizer(Attention(), 8) if backbone == "attention" else build_featurizer(backbone, SHAPE)
    assert merged.state_dict().keys() == plain.state_dict().keys()
    assert not any(module.__class__.__module__.startswith("peft") for module in merged.modules())
    assert list_base(featurizer)
    assert featurizer.base


@pytest.mark.parametrize("method", METHODS)
def test_methods_train_adapters_alone_and_resume_exactly(method: str) -> None:
    algorithm, batches = toy(method), toy_batches(b=4, shape=SHAPE)
    base = {name: p.clone() for name, p in algorithm.featurizer.named_parameters() if not p.requires_grad}
    run_steps(algorithm, batches, 0, 2)
    resumed = toy(method)
    resumed.load_state_dict(copy_through_file(algorithm.state_dict()))
    for each in (algorithm, resumed):
        run_steps(each, batches, 2, 4)
    require_same_tensors(get_tensors(algorithm), get_tensors(resumed))
    parameters = dict(algorithm.featurizer.named_parameters())
    assert base
    assert all(torch.equal(parameters[name], value) for name, value in base.items())
    assert not any(name.startswith("featurizer.") and ".base_layer." in name for name in algorithm.state_dict())


def test_bfloat16_trains() -> None:
    algorithm = toy("fgmix")
    with torch.autocast("cpu", torch.bfloat16):
        metrics = run_steps(algorithm, toy_batches(b=4, shape=SHAPE), 0, 2)
    assert metrics["loss"].isfinite()


def test_only_adapters_and_head_are_averaged_and_saved() -> None:
    algorithm = toy("erm")
    run_steps(algorithm, toy_batches(b=4, shape=SHAPE), 0, 1)
    trained = {name for name, p in algorithm.named_parameters() if p.requires_grad}
    assert get_predictor_tensors(algorithm).keys() == {*trained, "featurizer.base_digest"}
    assert algorithm.state_dict().keys() == {*trained, "featurizer.base_digest", "_extra_state"}
    moments = algorithm.optimizer.state_dict()["state"]
    assert len(moments) == len(trained)


def test_the_size_of_a_state_does_not_depend_on_the_base() -> None:
    sizes = []
    for ballast in (1, 33):
        featurizer = Featurizer(Attention(ballast), 8)
        add_adapters(featurizer, 2)
        algorithm = create("erm", featurizer=featurizer, classifier=nn.Linear(8, CLASSES), n_domains=3)
        run_steps(algorithm, toy_batches(b=4, shape=SHAPE), 0, 1)
        buffer = io.BytesIO()
        torch.save(algorithm.state_dict(), buffer)
        sizes.append(len(buffer.getvalue()))
    assert sizes[0] == sizes[1] < 20_000


def test_adapters_of_another_base_are_refused() -> None:
    ours, theirs = build(), build()
    ours.load_state_dict(theirs.state_dict())
    other = build_featurizer("test_vit", SHAPE)  # other random weights
    add_adapters(other, 2)
    with pytest.raises(UserError, match="backbone weights"):
        ours.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ("", {"attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"}),
        ("attn", {"attn.qkv", "attn.proj"}),
        ("qkv, fc2", {"attn.qkv", "mlp.fc2"}),
        ("mlp.fc1", {"mlp.fc1"}),
    ],
)
def test_targets_are_layers_or_modules_with_them(targets: str, expected: set[str]) -> None:
    featurizer = build(targets=targets)
    adapted = {name for name, module in featurizer.named_modules() if hasattr(module, "lora_A")}
    assert {name.removeprefix("net.blocks.0.") for name in adapted if "blocks.0" in name} == expected


def test_targets_that_match_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="fc1, fc2"):
        build(targets="query")


def test_dropout_is_of_linear_layers() -> None:
    assert any(isinstance(module, nn.Dropout) and module.p == 0.3 for module in build(dropout=0.3).modules())
    with pytest.raises(UserError, match="lora-dropout"):
        build("attention", dropout=0.3)
    build("attention", dropout=0.3, targets="fc")


def test_adapters_have_the_rates_and_the_decay_of_their_layer() -> None:
    algorithm = toy("erm", optimizer="adamw", weight_decay=0.1, decay_on="matrices", layer_decay=0.5, head_lr=1.0)
    groups = algorithm.optimizer.param_groups
    names = {id(p): name for name, p in algorithm.named_parameters()}
    found = {names[id(p)]: (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    for name, pair in found.items():
        if ".lora_" in name:
            assert pair == found[f"{name.partition('.lora_')[0]}.base_layer.weight"]
    assert len({rate for name, (rate, _) in found.items() if ".lora_" in name}) > 2


def test_activations_computed_again_give_the_same_steps() -> None:
    batches, ends = toy_batches(b=4, shape=SHAPE), []
    for again in (False, True):
        algorithm = toy("erm")
        if again:
            recompute_blocks(algorithm.featurizer)
        run_steps(algorithm, batches, 0, 2)
        ends.append(get_tensors(algorithm))
    require_same_tensors(*ends)
