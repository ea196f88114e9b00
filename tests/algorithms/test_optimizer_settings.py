"""The optimiser of a method against torch's and timm's own optimisers and schedulers."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from algorithms.toys import toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, BaseConfig, Batches
from fgmix.algorithms._base import batch_of, split_batches
from fgmix.algorithms._optimizer import compute_factor
from fgmix.errors import UserError
from fgmix.networks import Featurizer, build_featurizer
from fgmix.networks.parts import find_layers
from fgmix.records.schema import OPTIMIZER

STEPS, WARMUP, LR = 8, 3, 1e-2
DOCS = Path(__file__).resolve().parents[2] / "docs" / "optimiser.md"


def build_torch_optimizer(name: str, network: nn.Module) -> Optimizer:
    settings: dict[str, Any] = {"lr": LR, "weight_decay": 0.1}
    if name == "sgd":
        return SGD(network.parameters(), momentum=0.9, **settings)
    return (Adam if name == "adam" else AdamW)(network.parameters(), **settings)


def build_torch_scheduler(name: str, optimizer: Optimizer) -> LRScheduler:
    rest = STEPS - WARMUP
    falling: dict[str, LRScheduler] = {
        "constant": LinearLR(optimizer, 1.0, 1.0, rest),
        "cosine": CosineAnnealingLR(optimizer, rest),
        "linear": LinearLR(optimizer, 1.0, 0.0, rest),
    }
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"]  # every scheduler above has changed it
    return SequentialLR(optimizer, [LinearLR(optimizer, 1 / WARMUP, 1.0, WARMUP - 1), falling[name]], [WARMUP])


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_erm_follows_torchs_optimisers_schedulers_and_clipping(optimizer: str, schedule: str) -> None:
    settings = {"optimizer": optimizer, "schedule": schedule, "lr_warmup": WARMUP, "clip_norm": 0.05}
    erm = toy_algorithm("erm", lr=LR, weight_decay=0.1, steps=STEPS, **settings)
    twin = copy.deepcopy(nn.Sequential(erm.featurizer, erm.classifier))
    theirs = build_torch_optimizer(optimizer, twin)
    scheduler = build_torch_scheduler(schedule, theirs)
    for step in range(STEPS):
        batches = toy_batches(b=4, seed=step)
        theirs.zero_grad()
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        cross_entropy(twin(x), y).backward()
        assert clip_grad_norm_(twin.parameters(), 0.05) > 0.05
        erm.step(batches)
        assert erm.optimizer.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"])
        theirs.step()
        scheduler.step()
    for ours, their in zip([*erm.featurizer.parameters(), *erm.classifier.parameters()], twin.parameters()):
        torch.testing.assert_close(ours, their, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("warmup", [0, 10])
def test_the_schedule_is_timms(warmup: int) -> None:
    """In warm-up timm counts from 1, where its rate is not 0, and in decay from 0, as torch does."""
    build_featurizer("resnet18", (3, 32, 32))  # which makes timm importable beside a CPU build of torch
    from timm.scheduler import CosineLRScheduler

    config = BaseConfig(lr=0.5, schedule="cosine", lr_warmup=warmup, steps=50)
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    theirs = CosineLRScheduler(optimizer, 50 - warmup, warmup_t=warmup, warmup_prefix=True, t_in_epochs=False)
    for step in range(50):
        theirs.step_update(step + 1 if step < warmup else step)
        assert 0.5 * compute_factor(config, step) == pytest.approx(optimizer.param_groups[0]["lr"])


def read_rates(optimizer: Optimizer) -> dict[int, tuple[float, float]]:
    """The learning rate and the weight decay of every parameter, by its id."""
    groups = optimizer.param_groups
    return {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}


def build_both(backbone: str) -> tuple[Optimizer, Optimizer, list[tuple[str, nn.Parameter, nn.Parameter]]]:
    """ERM's optimiser and timm's, for a timm network, and its parameters (name, ours, theirs)."""
    build_featurizer("resnet18", (3, 32, 32))
    import timm.optim

    torch.manual_seed(0)
    whole = timm.create_model(backbone, num_classes=4)
    net = copy.deepcopy(whole)
    head, _ = net.get_classifier(), net.reset_classifier(0)
    theirs = timm.optim.create_optimizer_v2(whole, opt="adamw", lr=LR, weight_decay=0.1, layer_decay=0.7)
    for group in theirs.param_groups:  # what timm's schedulers do in every step
        group["lr"] = LR * group["lr_scale"]
    settings = {"optimizer": "adamw", "decay_on": "matrices", "layer_decay": 0.7, "weight_decay": 0.1, "lr": LR}
    g = Featurizer(net, 8, input_shape=(3, 224, 224))
    ours = algorithms.create("erm", featurizer=g, classifier=head, n_domains=1, **settings).optimizer
    own = dict(net.named_parameters())
    pairs = [(n, own[n] if n in own else head.get_parameter(n.rpartition(".")[2]), p) for n, p in whole.named_parameters()]  # fmt: skip  # noqa: E501
    return ours, theirs, pairs


@pytest.mark.parametrize("backbone", ["vit_tiny_patch16_224", "resnet18", "convnext_atto", "test_efficientnet"])
def test_layer_decay_and_decay_on_matrices_are_timms(backbone: str) -> None:
    ours, theirs, pairs = build_both(backbone)
    found, expected = read_rates(ours), read_rates(theirs)
    assert len({rate for rate, _ in expected.values()}) > 5
    for name, our, their in pairs:
        assert found[id(our)] == pytest.approx(expected[id(their)]), name
        our.grad, their.grad = torch.full_like(our, 0.1), torch.full_like(their, 0.1)
    ours.step()
    theirs.step()
    for name, our, their in pairs:
        torch.testing.assert_close(our, their, msg=name)


def test_layers_of_other_networks_are_their_stages_and_a_network_without_any_is_refused() -> None:
    layers = find_layers(build_featurizer("small_cnn", (3, 16, 16)))
    assert [layers[f"net.{name}.weight"] for name in ("stem.0", "layer1.0.conv1", "layer3.0.shortcut")] == [4, 3, 1]
    erm = toy_algorithm("erm", layer_decay=0.5, head_lr=0.3)
    assert {lr for lr, _ in read_rates(erm.optimizer).values()} == {1e-3 / 2**layer for layer in range(1, 5)} | {0.3}
    with pytest.raises(UserError, match="layer_decay"):
        toy_algorithm("erm", shape=(6,), layer_decay=0.5)


def test_a_transformer_that_is_not_timms_has_a_layer_per_block() -> None:
    class Block(nn.Linear):
        def forward(self, h: Tensor) -> Tensor:
            return h + super().forward(h)

    class Transformer(nn.Sequential):
        """As open_clip's: its own parameters are registered before the layers."""

        def __init__(self, *parts: nn.Module) -> None:
            super().__init__(*parts)
            self.start, self.proj = nn.Parameter(torch.zeros(3, 1, 1)), nn.Parameter(torch.eye(8))

        def forward(self, x: Tensor) -> Tensor:
            h: Tensor = super().forward(x + self.start)
            return h.mean(1) @ self.proj

    blocks = [Block(8, 8) for _ in range(5)]
    network = Transformer(nn.Conv2d(3, 8, 4, 4), nn.Flatten(2), nn.Linear(16, 8), *blocks)
    layers = find_layers(Featurizer(network, 8, input_shape=(3, 16, 16)))
    assert (layers["net.start"], layers["net.proj"]) == (6, 1)
    assert [layers[f"net.{i}.weight"] for i in (0, 2, 3, 4, 5, 6, 7)] == [6, 6, 5, 4, 3, 2, 1]


def test_other_networks_of_a_method_have_the_same_optimiser() -> None:
    settings = {"optimizer": "adamw", "schedule": "linear", "decay_on": "matrices", "weight_decay": 0.1, "steps": 4}
    dann = toy_algorithm("dann", lr_d=0.2, weight_decay_d=0.3, **settings)
    for _ in range(3):
        dann.step(toy_batches(b=2))
    for optimizer, lr in ((dann.optimizer, 1e-3), (dann.optimizers()["adversary_optimizer"], 0.2)):
        assert isinstance(optimizer, AdamW)
        assert optimizer.defaults["betas"] == (0.5, 0.9)
        assert {rate for rate, _ in read_rates(optimizer).values()} == {lr / 2}
    rates = read_rates(dann.optimizers()["adversary_optimizer"])
    assert {rates[id(p)][1] for p in dann.get_submodule("discriminator").parameters() if p.ndim == 1} == {0.0}


def test_fgmix_clips_the_policy_apart_from_the_model() -> None:
    fgmix = toy_algorithm("fgmix", tau=0.0, clip_norm=1e-6, optimizer="sgd", lr=1.0, eta2=1.0, steps=1)
    before = {name: p.detach().clone() for name, p in fgmix.named_parameters()}
    fgmix.step(toy_batches())
    moved = {True: 0.0, False: 0.0}
    for name, p in fgmix.named_parameters():
        moved[name.startswith("mixer")] += float((p.detach() - before[name]).square().sum())
    assert [value**0.5 for value in moved.values()] == pytest.approx([1e-6, 1e-6], rel=0.05)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_the_inner_step_of_mldg_is_the_first_of_a_new_optimiser(optimizer: str) -> None:
    settings: dict[str, Any] = {"lr": LR, "weight_decay": 0.1, "schedule": "linear", "steps": 4, "optimizer": optimizer}
    mldg: Any = toy_algorithm("mldg", **settings)
    mldg.step(toy_batches(b=2))
    mldg.step(toy_batches(b=2))  # at 3/4 of the learning rate
    theta = [p for p in mldg.parameters() if p.requires_grad]
    fresh = [nn.Parameter(p.detach().clone()) for p in theta]
    theirs = {"adam": Adam, "adamw": AdamW, "sgd": SGD}[optimizer](fresh, lr=0.75 * LR, weight_decay=0.1)
    for p in fresh:
        p.grad = torch.randn_like(p)
    moved = mldg.take_first_step(theta, [p.grad for p in fresh])
    theirs.step()
    for ours, their in zip(moved, fresh, strict=True):
        torch.testing.assert_close(ours, their)


def test_the_virtual_step_of_metamixup_uses_the_rate_of_each_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    module = "fgmix.algorithms.metamixup.look_ahead_gradient"
    monkeypatch.setattr(module, lambda *given: seen.append(given[-1]) or (torch.zeros(()), torch.zeros(())))
    metamixup = toy_algorithm("metamixup", head_lr=0.2, schedule="linear", steps=2)
    metamixup.step(toy_batches(b=2))
    metamixup.step(toy_batches(b=2))
    assert [set(eta.values()) for eta in seen] == [{0.2}, {0.1}]


def test_a_reset_optimiser_has_the_settings_and_follows_the_schedule() -> None:
    settings: dict[str, Any] = {"optimizer": "sgd", "head_lr": 0.5, "schedule": "linear", "steps": 4}
    eqrm = toy_algorithm("eqrm", burn_in=2, lr=0.1, lr_after=0.01, **settings)
    for _ in range(3):
        eqrm.step(toy_batches(b=2))
    assert isinstance(eqrm.optimizer, SGD)
    assert [group["lr"] for group in eqrm.optimizer.param_groups] == pytest.approx([0.01 / 2, 0.05 / 2])


def test_parts_of_a_batch_have_all_its_samples() -> None:
    batches = [(torch.arange(5.0)[:, None], torch.arange(5)), (torch.arange(2.0)[:, None], torch.arange(2))]
    parts = split_batches(batches, 4)
    assert [[y.tolist() for _, y in part] for part, _ in parts] == [[[0, 1], [0]], [[2], [1]], [[3]], [[4]]]
    assert [share for _, share in parts] == [3 / 7, 2 / 7, 1 / 7, 1 / 7]
    assert split_batches(batches, 1) == [(batches, 1.0)]


def test_only_declared_methods_accept_micro_batches_also_below_a_wrapper() -> None:
    assert {name for name in algorithms.names() if algorithms.get(name).per_sample} >= {"erm", "sd", "miro", "sam"}
    for name, accepted in (("sagm", True), ("sam+coral", False), ("mixup", False), ("fish", False)):
        assert algorithms.get(name).per_sample is accepted
    with pytest.raises(UserError, match="accumulate"):
        toy_algorithm("vrex", accumulate=2)

    class Mine(algorithms.get("erm")):  # type: ignore[misc]
        def objective(self, batches: Any) -> Any:
            """What it does is not known."""

    assert not Mine.per_sample


def test_the_docs_name_the_methods_that_accept_micro_batches() -> None:
    (sentence,) = re.findall(r"single samples accept it: (.*?)\.", DOCS.read_text(), re.DOTALL)
    declared = {name for name in algorithms.names() if algorithms.get(name).per_sample}
    assert {*re.findall(r"`(\w+)`", sentence)} == declared


def test_micro_batches_return_the_terms_of_the_whole_batch() -> None:
    whole, parts = (toy_algorithm("sd", accumulate=n).step(toy_batches()) for n in (1, 4))
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value)


@pytest.mark.parametrize("name", ["erm", "miro", "sam", "sagm+sd"])
def test_micro_batches_have_the_gradient_of_the_whole_batch_up_to_rounding(name: str) -> None:
    """The stated tolerance: sums in another order differ by 1e-6 of the norm in single precision."""
    whole, parts = (toy_algorithm(name, accumulate=n, optimizer="sgd", lr=1.0) for n in (1, 4))
    for algorithm in (whole, parts):
        algorithm.step(toy_batches())
    ours, theirs = (torch.cat([p.grad.flatten() for p in a.parameters() if p.grad is not None]) for a in (whole, parts))
    assert float((ours - theirs).norm() / ours.norm()) < 1e-6


class Squares(Algorithm):
    """Mean squared output: the gradient on small integers has no rounding, whatever the order of the sums."""

    per_sample = True

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        return {"loss": self.predict(batch_of(batches)[0]).square().mean()}


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_micro_batches_of_exact_numbers_have_the_bits_of_the_whole_batch(n: int) -> None:
    """No sample is lost or counted twice: where sums are exact in any order, no bit differs."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(-4, 5, (16, 3), generator=rng).float()  # two domains of eight samples
    g, h = nn.Linear(3, 2, bias=False), nn.Linear(2, 1, bias=False)
    for layer in (g, h):
        layer.weight = nn.Parameter(torch.randint(1, 4, layer.weight.shape, generator=rng).float())
    u, v = g.weight.detach().clone(), h.weight.detach().clone()
    squares = Squares(g, h, 2, BaseConfig(optimizer="sgd", lr=0.25, accumulate=n))
    loss = squares.step([(x_e, torch.zeros(8, dtype=torch.int64)) for x_e in x.split(8)])["loss"]
    outputs = [v[0] @ (u @ a) for a in x]
    assert loss == sum(o * o for o in outputs) / 16
    assert torch.equal(g.weight, u - 0.25 * sum(o * torch.outer(v[0], a) for o, a in zip(outputs, x)) / 8)
    assert torch.equal(h.weight, v - 0.25 * sum(o * (u @ a) for o, a in zip(outputs, x)) / 8)


def test_a_search_space_may_name_settings_of_the_optimiser() -> None:
    from fgmix.algorithms import choice, register, search
    from fgmix.algorithms._registry import _REGISTRY
    from fgmix.sweeps.search import sample_hparams

    @register("searching")
    class Searching(Algorithm):
        class Config(BaseConfig):
            clip_norm: float | None = search(None, choice(0.5, 1.0), help="as in the base")

    try:
        drawn = {sample_hparams("searching", "PACS", "images", h, 0)["settings"]["clip_norm"] for h in range(20)}
    finally:
        del _REGISTRY["searching"]
    assert drawn == {None, 0.5, 1.0}


def test_a_warm_up_that_is_too_long_and_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="lr_warmup"):
        BaseConfig(lr_warmup=5, steps=5)
    with pytest.raises(UserError, match="adamw"):
        BaseConfig(optimizer="adamww")  # type: ignore[arg-type]


def test_an_optimiser_at_its_defaults_is_not_recorded() -> None:
    assert BaseConfig().as_dict().keys() == {"lr", "weight_decay", "steps"}
    assert BaseConfig(optimizer="adamw").as_dict()["optimizer"] == "adamw"
    assert {*OPTIMIZER} == {*BaseConfig.names()} - {"lr", "weight_decay", "steps"}
