"""MTL against DomainBed's update written out, with its noise and with embeddings instead of the noise."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.testing.toys import run_steps
from reference.twin import Twin, assert_follows


@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize("ema", [1.0, 0.9])
def test_steps_are_domainbeds(noise: bool, ema: float) -> None:
    def step(twin: Twin, batches: Batches, _: int) -> None:
        loss, stored = 0.0, twin.h.embeddings
        for e, (x, y) in enumerate(batches):
            z = twin.g(x)
            embedding = ema * z.mean(0) + (1 - ema) * stored[e].clone()
            stored[e] = embedding.detach()
            rows = embedding.view(1, -1).repeat(len(z), 1)
            rows = torch.empty_like(rows).normal_() if noise else rows
            loss = loss + cross_entropy(twin.h.head(torch.cat((z, rows), 1)), y)
        twin.descend(loss)

    assert_follows("mtl", step, steps=5, whole=True, noise=noise, ema=ema)
    assert_follows("mtl", step, steps=5, whole=True, noise=noise, ema=ema, batch_norm=True)


def test_an_unknown_domain_has_the_mean_of_the_embeddings() -> None:
    mtl = toy_algorithm("mtl", shape=(6,), noise=False)
    run_steps(mtl, toy_batches(shape=(6,)), 0, 3)
    mtl.eval()
    x = toy_batches(1, shape=(6,), seed=5)[0][0]
    z, m = mtl.featurizer(x), mtl.classifier.embeddings
    assert m.std(0).max() > 0.01
    expected = mtl.classifier.head(torch.cat([z, (m[0] + m[1] + m[2]).div(3).repeat(len(z), 1)], 1))
    torch.testing.assert_close(mtl.predict(x), expected)


def test_where_training_has_noise_a_prediction_has_its_mean() -> None:
    mtl = toy_algorithm("mtl", shape=(6,))
    run_steps(mtl, toy_batches(shape=(6,)), 0, 3)
    x = toy_batches(1, shape=(6,), seed=5)[0][0]
    z = mtl.eval().featurizer(x)
    torch.testing.assert_close(mtl.predict(x), mtl.classifier.head(torch.cat([z, torch.zeros_like(z)], 1)))


@pytest.mark.parametrize("noise", [True, False])
def test_an_image_is_predicted_alone_as_among_others(noise: bool) -> None:
    mtl = toy_algorithm("mtl", noise=noise)
    run_steps(mtl, toy_batches(), 0, 2)
    x = toy_batches(1)[0][0]
    mtl.eval()
    torch.testing.assert_close(torch.cat([mtl.predict(x_i[None]) for x_i in x]), mtl.predict(x))
