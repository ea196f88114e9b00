"""Manifold Mixup against a network written out stage by stage."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from algorithms.toys import linear_algorithm, toy_algorithm, toy_batches
from fgmix.algorithms import Algorithm
from fgmix.algorithms._base import batch_of
from fgmix.errors import UserError

LAYERS = 5  # of the small CNN: input, three stages, code


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """λ, π and the layer m set by the test instead of drawn."""
    chosen: dict[str, Tensor] = {}
    monkeypatch.setattr("fgmix.algorithms.manifold_mixup.sample_beta", lambda _alpha: chosen["lam"])
    monkeypatch.setattr(torch, "randperm", lambda _n: chosen["pi"])
    monkeypatch.setattr(torch, "randint", lambda _n, _shape: chosen["m"])
    return chosen


def mixed_by_hand(algorithm: Algorithm, x: Tensor, m: int, lam: float, pi: Tensor) -> Tensor:
    """The small CNN's layers applied one after another, mixing after the m-th."""
    net = algorithm.featurizer.net
    layers = [lambda h: h, lambda h: net.layer1(net.stem(h)), net.layer2, net.layer3, lambda h: h.mean((2, 3))]
    h = x
    for depth, layer in enumerate(layers):
        h = layer(h)
        if depth == m:
            h = torch.stack([lam * h[i] + (1 - lam) * h[j] for i, j in enumerate(pi.tolist())])
    return algorithm.classifier(h)


@pytest.mark.parametrize("m", range(LAYERS))
def test_loss_and_gradients_at_each_layer(m: int, draws: dict[str, Tensor]) -> None:
    batches = toy_batches(b=4)
    x, y = batch_of(batches)
    lam, pi = 0.3, torch.arange(12).roll(5)
    draws.update(lam=torch.tensor(lam), pi=pi, m=torch.tensor(m))
    algorithm = toy_algorithm("manifold_mixup").train()
    parameters = list(algorithm.parameters())

    logits = mixed_by_hand(algorithm, x, m, lam, pi)
    expected = lam * cross_entropy(logits, y) + (1 - lam) * cross_entropy(logits, y[pi])
    terms = algorithm.objective(batches)

    assert int(terms["layer"]) == m
    torch.testing.assert_close(terms["loss"], expected)
    found, wanted = (torch.autograd.grad(loss, parameters) for loss in (terms["loss"], expected))
    for g, g_expected in zip(found, wanted):
        torch.testing.assert_close(g, g_expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("m", range(LAYERS))
@pytest.mark.parametrize("neutral", ["lam", "pi"])
def test_lambda_one_or_the_identity_permutation_is_erm(m: int, neutral: str, draws: dict[str, Tensor]) -> None:
    batches = toy_batches(b=4)
    draws.update(lam=torch.tensor(0.3), pi=torch.arange(12).roll(5), m=torch.tensor(m))
    draws.update({"lam": torch.tensor(1.0)} if neutral == "lam" else {"pi": torch.arange(12)})
    method, erm = toy_algorithm("manifold_mixup"), toy_algorithm("erm")
    torch.testing.assert_close(method.objective(batches)["loss"], erm.objective(batches)["loss"])


def test_a_linear_network_mixes_its_logits() -> None:
    """With h linear and g the identity, every layer gives logits λ·o + (1 − λ)·o[π]."""
    method = linear_algorithm("manifold_mixup", n_domains=1)
    x, y = toy_batches(1, shape=(5,), classes=3)[0]
    o = method.predict(x)
    torch.manual_seed(2)
    terms = method.objective([(x, y)])
    torch.manual_seed(2)
    torch.randint(2, ())
    torch.distributions.Beta(0.2, 0.2).sample(())
    pi, lam = torch.randperm(len(y)), terms["lam"]
    mixed = lam * o + (1 - lam) * o[pi]
    torch.testing.assert_close(terms["loss"], lam * cross_entropy(mixed, y) + (1 - lam) * cross_entropy(mixed, y[pi]))


def test_every_layer_is_drawn_and_nothing_stays_behind() -> None:
    method = toy_algorithm("manifold_mixup").train()
    drawn = {int(method.step(toy_batches(b=2))["layer"]) for _ in range(40)}
    assert drawn == set(range(LAYERS))
    assert not any(module._forward_hooks for module in method.modules())


def test_hook_is_removed_when_the_forward_pass_fails() -> None:
    method = toy_algorithm("manifold_mixup").train()
    method.classifier = nn.Linear(1, 4)
    for _ in range(10):
        with pytest.raises(RuntimeError):
            method.step(toy_batches(b=2))
    assert not any(module._forward_hooks for module in method.modules())


def test_the_authors_layers_are_the_input_and_two_stages() -> None:
    method = toy_algorithm("manifold_mixup", layers="first").train()
    assert {int(method.step(toy_batches(b=2))["layer"]) for _ in range(30)} == {0, 1, 2}
    with pytest.raises(UserError, match="convolutional"):
        toy_algorithm("manifold_mixup", layers="first", shape=(6,))


def test_arrays_are_mixed_as_input_or_code() -> None:
    method = toy_algorithm("manifold_mixup", shape=(6,)).train()
    assert {int(method.step(toy_batches(b=2, shape=(6,)))["layer"]) for _ in range(20)} == {0, 1}


def test_one_sample_alone_is_erm() -> None:
    batches = toy_batches(1, b=1)
    method, erm = toy_algorithm("manifold_mixup", n_domains=1), toy_algorithm("erm", n_domains=1)
    torch.testing.assert_close(method.objective(batches)["loss"], erm.objective(batches)["loss"])
