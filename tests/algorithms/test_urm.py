"""URM against DomainBed's update written out, from the same noise."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, logsigmoid
from torch.optim import Adam

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from reference.twin import Twin, assert_follows

LAM = 0.3


@pytest.mark.parametrize(("activation", "hidden"), [("tanh", 1), ("relu", 3)])
def test_steps_are_domainbeds(activation: str, hidden: int) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        D = twin.parts.discriminator
        if step == 0:
            assert [type(layer) for layer in D] == [nn.Linear, nn.LeakyReLU] * (1 + hidden) + [nn.Linear]
            twin.restart(weight_decay=1e-2)
            twin.kept["adversary"] = Adam(D.parameters(), lr=4e-3, weight_decay=1e-2)
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        z = getattr(torch, activation)(twin.g.net(x))
        twin.descend(cross_entropy(twin.h(z), y) - LAM * logsigmoid(D(z)).mean())
        noise = torch.rand(z.shape, dtype=z.dtype)
        noise = 2 * noise - 1 if activation == "tanh" else noise
        told = -logsigmoid(D(noise)).mean() - LAM * logsigmoid(-D(z.detach())).mean()
        twin.kept["adversary"].zero_grad()
        told.backward()
        twin.kept["adversary"].step()

    settings = {"lam": LAM, "lr_d": 4e-3, "weight_decay": 1e-2}
    assert_follows("urm", step, steps=5, whole=True, activation=activation, hidden_layers=hidden, **settings)


@pytest.mark.parametrize(("activation", "low"), [("tanh", -1.0), ("relu", 0.0)])
def test_codes_and_noise_have_one_range(activation: str, low: float) -> None:
    urm = toy_algorithm("urm", shape=(6,), activation=activation)
    z = urm.featurizer(10 * toy_batches(1, shape=(6,))[0][0])
    assert z.min() >= low
    torch.manual_seed(0)
    noise = urm.noise(torch.zeros(1000, 4))
    assert low <= noise.min() < low + 0.01
    assert 0.99 < noise.max() < 1
