"""CNSN: what CrossNorm does to statistics, where it acts, and that SelfNorm is part of the model."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms._base import batch_of
from fgmix.algorithms.cnsn import MIN_AREA, Box, exchange_style, random_box

WHOLE: Box = (slice(None), slice(None))
PI = torch.tensor([2, 0, 1])


def maps() -> Tensor:
    return torch.randn(3, 2, 6, 6) * torch.tensor([1.0, 2.0, 5.0]).view(3, 1, 1, 1) + 1


def test_exchanged_maps_have_the_partners_statistics() -> None:
    h = maps()
    out = exchange_style(h, PI, WHOLE, WHOLE)
    torch.testing.assert_close(out.mean((2, 3)), h.mean((2, 3))[PI], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(out.std((2, 3)), h.std((2, 3))[PI], atol=1e-5, rtol=1e-4)


def test_naive_twin() -> None:
    """Sample by sample; content and style boxes differ."""
    h, content, style = maps(), (slice(1, 5), slice(0, 3)), (slice(2, 6), slice(1, 6))
    expected = h.clone()
    for i, j in enumerate(PI.tolist()):
        for c in range(2):
            part, other = h[i, c, 1:5, 0:3], h[j, c, 2:6, 1:6]
            normed = (part - part.mean()) / (part.var() + 1e-5).sqrt()
            expected[i, c, 1:5, 0:3] = normed * (other.var() + 1e-5).sqrt() + other.mean()
    out = exchange_style(h, PI, content, style)
    torch.testing.assert_close(out, expected)
    outside = torch.ones(6, 6, dtype=torch.bool)
    outside[1:5, 0:3] = False
    assert torch.equal(out[..., outside], h[..., outside])


def test_identity_permutation_is_the_identity() -> None:
    h = maps()
    torch.testing.assert_close(exchange_style(h, torch.arange(3), WHOLE, WHOLE), h)


def test_statistics_take_the_gradient() -> None:
    """Σ out_i is h·w·μ_π(i): its gradient is 1 at the partner's pixels and 0 at the sample's own."""
    h = maps().requires_grad_()
    (gradient,) = torch.autograd.grad(exchange_style(h, PI, WHOLE, WHOLE)[0].sum(), h)
    expected = torch.zeros_like(h)
    expected[2] = 1
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("height", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_boxes_lie_in_the_map_and_have_a_spread(height: int, width: int) -> None:
    for _ in range(50):
        rows, columns = random_box(height, width)
        assert 0 <= rows.start < rows.stop <= height
        assert 0 <= columns.start < columns.stop <= width
        pixels = (rows.stop - rows.start) * (columns.stop - columns.start)
        assert pixels > min(height * width - 1, max(1, MIN_AREA * height * width))


def test_boxes_differ_in_place_and_size() -> None:
    boxes = {
        (rows.start, rows.stop, columns.start, columns.stop) for rows, columns in (random_box(8, 8) for _ in range(60))
    }
    assert len(boxes) > 20


@pytest.mark.parametrize("size", [1, 2])
def test_tiny_maps_stay_finite(size: int) -> None:
    method = toy_algorithm("cnsn", crop="both")
    h = torch.randn(3, 2, size, size, requires_grad=True)
    out = method.crossnorm(h)
    (gradient,) = torch.autograd.grad(out.sum(), h)
    assert torch.isfinite(out).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("active", [1, 2])
def test_exactly_the_active_number_of_blocks_exchange(active: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("fgmix.algorithms.cnsn.exchange_style", lambda h, *_: calls.append(h.shape[1]) or h)
    method, sites = toy_algorithm("cnsn", active=active, p=1.0).train(), set()
    for _ in range(20):
        calls.clear()
        method.step(toy_batches(b=2))
        assert len(calls) == active
        sites.update(calls)
    assert sites == {16, 48, 96}  # the channels of the three blocks


@pytest.mark.parametrize(("crop", "cropped"), [("neither", 0), ("style", 1), ("content", 1), ("both", 2)])
def test_crop_says_which_boxes_are_drawn(crop: str, cropped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Box] = []
    monkeypatch.setattr("fgmix.algorithms.cnsn.random_box", lambda *_: drawn.append(WHOLE) or WHOLE)
    toy_algorithm("cnsn", crop=crop, p=1.0).train().step(toy_batches(b=2))
    assert len(drawn) == cropped


def test_crossnorm_comes_before_selfnorm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step's loss, computed with the last block active by hand."""
    batches, pi = toy_batches(b=2), torch.arange(6).roll(1)
    x, y = batch_of(batches)
    method = toy_algorithm("cnsn", p=1.0, crop="neither").train()
    net, block = method.featurizer.net, method.featurizer.net.layer3[0]
    h = net.layer2(net.layer1(net.stem(x)))
    h = block.selfnorm(exchange_style(block.forward(h), pi, WHOLE, WHOLE))
    expected = cross_entropy(method.classifier(h.mean((2, 3))), y)

    monkeypatch.setattr(torch, "randperm", lambda _n: pi)
    monkeypatch.setattr(method, "active_blocks", lambda: method.blocks[-1:])
    torch.testing.assert_close(method.objective(batches)["loss"], expected)


def test_without_crossnorm_and_with_open_gates_it_is_erm() -> None:
    batches = toy_batches()
    method, erm = toy_algorithm("cnsn", p=0.0, gate_bias=30.0).train(), toy_algorithm("erm")
    method.classifier.load_state_dict(erm.classifier.state_dict())
    torch.testing.assert_close(method.objective(batches)["loss"], erm.objective(batches)["loss"])


def test_gates_are_trained_and_part_of_the_prediction() -> None:
    method = toy_algorithm("cnsn").train()
    before = {n: p.detach().clone() for n, p in method.named_parameters() if ".selfnorm." in n}
    assert all(n.startswith("featurizer.") for n in before)
    for _ in range(3):
        method.step(toy_batches())
    after = dict(method.named_parameters())
    assert all(not torch.equal(after[n], p) for n, p in before.items())

    x = toy_batches()[0][0]
    logits = method.eval().predict(x)
    with torch.no_grad():
        method.featurizer.net.layer1[0].selfnorm.g.beta.fill_(-100.0)
    assert not torch.equal(method.predict(x), logits)


def test_evaluation_does_not_exchange_styles_and_survives_a_copy() -> None:
    method = toy_algorithm("cnsn", p=1.0).train()
    method.step(toy_batches())
    copy = deepcopy(method).eval()
    method.eval()
    x = toy_batches()[0][0]
    with torch.no_grad():
        one_by_one = torch.cat([method.predict(x_i[None]) for x_i in x])
        torch.testing.assert_close(method.predict(x), one_by_one, atol=1e-5, rtol=1e-4)
        assert torch.equal(method.predict(x), copy.predict(x))


@pytest.mark.parametrize("settings", [{"two_gates": True}, {"crop": "both", "p": 1.0}, {"gate_bias": 0.0}])
def test_variants_train(settings: dict[str, object]) -> None:
    method = toy_algorithm("cnsn", **settings).train()
    losses = [float(method.step(toy_batches())["loss"]) for _ in range(3)]
    assert all(torch.isfinite(torch.tensor(losses)))


def test_one_sample_alone() -> None:
    metrics = toy_algorithm("cnsn", n_domains=1, p=1.0).train().step(toy_batches(1, b=1))
    assert torch.isfinite(metrics["loss"])
