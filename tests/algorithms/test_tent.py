"""Tent against its rule, written out on the scales and shifts of the network with torch.autograd."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from algorithms.toys import toy_algorithm
from fgmix.algorithms import Algorithm, create
from fgmix.errors import UserError

B, D, C = 6, 4, 3
LR, EPSILON = 0.05, 1e-8


def network(norm: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(OrderedDict(first=nn.Linear(D, 8), norm=norm, relu=nn.ReLU()))


def build(norm: nn.Module, **settings: float) -> Algorithm:
    settings = {"lr": LR, "weight_decay": 0.01, **settings}
    algorithm = create("tent", featurizer=network(norm), classifier=nn.Linear(8, C), n_domains=2, **settings)
    return algorithm.double().eval()


def normalise(x: Tensor, norm: nn.Module) -> Tensor:
    """Normalise over the batch (batch norm) or over the features of each sample (layer norm)."""
    dim = 0 if isinstance(norm, nn.BatchNorm1d) else 1
    return (x - x.mean(dim, keepdim=True)) / (x.var(dim, correction=0, keepdim=True) + norm.eps).sqrt()


def adapt(algorithm: Algorithm, batches: list[Tensor], lr: float, steps: int) -> list[Tensor]:
    """Predict batches: the logits of the last pass, then θ moves by Adam, written out."""
    g, h = algorithm.featurizer, algorithm.classifier
    theta = torch.cat([g.norm.weight, g.norm.bias]).detach()
    m, v, t, logits = torch.zeros_like(theta), torch.zeros_like(theta), 0, []
    for x in batches:
        for _ in range(steps):
            theta.requires_grad_(True)
            scale, shift = theta.split(8)
            o = h((normalise(g.first(x), g.norm) * scale + shift).relu())
            p = o.softmax(1)
            entropy = -(p * p.log()).sum(1).mean()
            (gradient,) = torch.autograd.grad(entropy, theta)
            theta = theta.detach()
            gradient = gradient + algorithm.config.weight_decay * theta
            t += 1
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            theta = theta - lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + EPSILON)
        logits.append(o.detach())
    return logits


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(8), nn.LayerNorm(8)], ids=["batch", "layer"])
@pytest.mark.parametrize(("alpha", "steps"), [(1.0, 1), (0.1, 3)])
def test_scales_and_shifts_follow_the_entropy(norm: nn.Module, alpha: float, steps: int) -> None:
    algorithm = build(norm, tent_alpha=alpha, tent_steps=steps)
    batches = [torch.randn(B, D, dtype=torch.float64) + 2 for _ in range(4)]
    expected = adapt(algorithm, batches, alpha * LR, steps)
    before = {name: value.clone() for name, value in algorithm.state_dict().items() if isinstance(value, Tensor)}
    with torch.inference_mode():
        predict = algorithm.start_test()
        for x, o in zip(batches, expected, strict=True):
            torch.testing.assert_close(predict(x), o, rtol=1e-5, atol=1e-7)
    assert all(torch.equal(algorithm.state_dict()[name], value) for name, value in before.items())


def test_a_sample_alone_is_predicted_by_the_trained_model() -> None:
    algorithm, x = build(nn.BatchNorm1d(8)), torch.randn(1, D, dtype=torch.float64)
    with torch.inference_mode():
        assert torch.equal(algorithm.start_test()(x), algorithm.predict(x))


def test_the_network_is_that_of_the_inner_method() -> None:
    ours, theirs = toy_algorithm("tent+coral").eval(), toy_algorithm("coral").eval()
    x = torch.rand(3, 3, 16, 16)
    assert torch.equal(ours.predict(x), theirs.predict(x))


def test_a_network_without_normalisation_is_refused() -> None:
    with pytest.raises(UserError, match="batch norm"):
        create("tent", featurizer=nn.Linear(D, 8), classifier=nn.Linear(8, C), n_domains=2)
