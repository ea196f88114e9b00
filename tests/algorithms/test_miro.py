"""MIRO against the authors' rule written out."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches, create
from fgmix.algorithms.miro import information_gap
from fgmix.networks import build_featurizer
from reference.twin import wide

LAM = 0.7


class Reference:
    """Layers called one by one on the small CNN; a Gaussian log-likelihood from torch.distributions."""

    def __init__(self, g: nn.Module, h: nn.Module, lr: float) -> None:
        self.g, self.h = copy.deepcopy(g), copy.deepcopy(h)
        self.g0 = copy.deepcopy(g)
        start = math.log(math.exp(0.1 - 1e-5) - 1)
        self.b = [torch.full((1, c, 1, 1), start, dtype=torch.float64, requires_grad=True) for c in (16, 16, 48, 96)]
        network = [*self.g.parameters(), *self.h.parameters()]
        self.optimizer = Adam([{"params": network}, {"params": self.b, "lr": 10 * lr}], lr=lr)

    @staticmethod
    def layers(g: nn.Module, x: Tensor) -> list[Tensor]:
        net, found = g.net, []
        for layer in (net.stem, net.layer1, net.layer2, net.layer3):
            x = layer(x)
            found.append(x)
        return found

    def step(self, batches: Batches) -> None:
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        f, f0 = self.layers(self.g, x), [f.detach() for f in self.layers(self.g0, x)]
        loss = cross_entropy(self.h(f[-1].mean((2, 3))), y)
        for f_l, f0_l, b in zip(f, f0, self.b):
            spread = (b.exp().log1p() + 1e-5).sqrt().expand_as(f_l)
            log_likelihood = torch.distributions.Normal(f_l, spread).log_prob(f0_l).mean()
            loss = loss - LAM * (log_likelihood + 0.5 * math.log(2 * math.pi))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def test_five_steps_are_the_authors() -> None:
    algorithm, batches = wide(toy_algorithm("miro", lam=LAM), toy_batches(b=4))
    reference = Reference(algorithm.featurizer, algorithm.classifier, algorithm.config.lr)
    for _ in range(5):
        algorithm.step(batches)
        reference.step(batches)
    for ours, theirs in zip(algorithm.b, reference.b, strict=True):
        torch.testing.assert_close(ours, theirs.flatten(), rtol=0, atol=1e-7)
    for ours, theirs in ((algorithm.featurizer, reference.g), (algorithm.classifier, reference.h)):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-7)


def test_the_copy_stays_as_training_found_it() -> None:
    algorithm = toy_algorithm("miro")
    before = copy.deepcopy(algorithm.featurizer.state_dict())
    algorithm.train()
    algorithm.step(toy_batches())
    assert not algorithm.initial.training
    assert all(torch.equal(before[name], value) for name, value in algorithm.initial.state_dict().items())
    assert not all(torch.equal(before[name], value) for name, value in algorithm.featurizer.state_dict().items())


def test_a_weight_of_zero_is_erm() -> None:
    miro, erm = toy_algorithm("miro", lam=0.0), toy_algorithm("erm")
    for algorithm in (miro, erm):
        algorithm.step(toy_batches())
    for a, b in zip(miro.featurizer.parameters(), erm.featurizer.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("backbone", "layers"), [("test_vit", 5), ("test_resnet", 5), ("mnist_cnn", 1)])
def test_transformers_are_compared_at_quarters_of_their_blocks(backbone: str, layers: int) -> None:
    featurizer = build_featurizer(backbone, (3, 32, 32), freeze_bn=True)
    classifier = nn.Linear(featurizer.out_features, 4)
    algorithm = create("miro", featurizer=featurizer, classifier=classifier, n_domains=1).train()
    assert len(algorithm.b) == layers
    metrics = algorithm.step([(torch.rand(2, 3, 32, 32), torch.tensor([0, 1]))])
    assert metrics["gap"].item() == pytest.approx(layers * math.log(0.1) / 2, rel=1e-4)  # the copy is still equal


def test_the_gap_keeps_double_precision() -> None:
    f, f0, b = (torch.full((2, 1), value, dtype=torch.float64) for value in (1.0, 1.0 + 1e-9, 0.0))
    assert information_gap(f, f0, b[:1, 0], axis=1).dtype == torch.float64
