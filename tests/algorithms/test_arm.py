"""ARM against DomainBed's update written out, and what is predicted in which context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from algorithms.toys import toy_algorithm, toy_batches
from deploy.made import small_image_model, small_images
from fgmix import algorithms
from fgmix.algorithms import Batches
from fgmix.deploy.export import export_model
from fgmix.errors import UserError
from fgmix.networks import build_featurizer
from reference.twin import Twin, assert_follows

SHAPE = (3, 8, 8)


def in_context(twin: Twin, batches: Batches) -> Tensor:
    """Codes: the context network runs over all images at once, its maps are averaged within each domain."""
    x = torch.cat([x for x, _ in batches])
    maps = twin.g.context(x).reshape(len(batches), -1, 1, *x.shape[2:])
    repeated = maps.mean(dim=1).repeat_interleave(maps.shape[1], dim=0)
    return twin.g.net(torch.cat([x, repeated], dim=1))


@pytest.mark.parametrize("train_context", [False, True])
def test_steps_are_domainbeds(train_context: bool) -> None:
    def step(twin: Twin, batches: Batches, _: int) -> None:
        y = torch.cat([y for _, y in batches])
        if not train_context:
            twin.g.context.requires_grad_(False)
        twin.descend(cross_entropy(twin.h(in_context(twin, batches)), y))

    options = {"shape": SHAPE, "per_domain": 2, "whole": True, "train_context": train_context}
    assert_follows("arm", step, steps=5, **options)


def test_the_new_channel_has_the_weights_of_the_first() -> None:
    plain, widened = build_featurizer("small_cnn", SHAPE), build_featurizer("small_cnn", SHAPE)
    widened.load_state_dict(plain.state_dict())
    arm = algorithms.create("arm", featurizer=widened, classifier=nn.Linear(96, 4), n_domains=3)
    before = next(m for m in plain.modules() if isinstance(m, nn.Conv2d)).weight
    after = next(m for m in arm.featurizer.net.modules() if isinstance(m, nn.Conv2d)).weight
    assert torch.equal(after[:, :3], before)
    assert torch.equal(after[:, 3], before[:, 0])


def test_a_prediction_has_the_context_of_its_batch_and_an_image_alone_its_own() -> None:
    arm = toy_algorithm("arm", shape=SHAPE).eval()
    x = toy_batches(1, b=4, shape=SHAPE)[0][0]
    g = arm.featurizer
    mean = g.context(x).mean(0, keepdim=True).expand(4, -1, -1, -1)
    torch.testing.assert_close(arm.predict(x), arm.classifier(g.net(torch.cat([x, mean], 1))))
    alone = arm.classifier(g.net(torch.cat([x[:1], g.context(x[:1])], 1)))
    torch.testing.assert_close(arm.predict(x[:1]), alone)
    assert not torch.allclose(arm.predict(x)[:1], alone, atol=1e-6)


def test_a_frozen_convolution_stays_frozen() -> None:
    featurizer = build_featurizer("small_cnn", SHAPE)
    frozen = next(m for m in featurizer.modules() if isinstance(m, nn.Conv2d)).requires_grad_(False)
    algorithms.create("arm", featurizer=featurizer, classifier=nn.Linear(96, 4), n_domains=3)
    assert frozen.weight.shape[1] == 4
    assert not frozen.weight.requires_grad


@pytest.mark.long
def test_an_exported_model_has_the_context_of_a_call(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = small_image_model(tmp_path / "model", algorithm="arm")
    session = onnxruntime.InferenceSession(str(export_model(model, tmp_path / "model.onnx")))
    for n in (5, 1):
        x = small_images()[0][:n]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], model.predict(x).probabilities, atol=1e-4)


def test_networks_without_a_convolution_are_refused() -> None:
    with pytest.raises(UserError, match="whose first layer is a convolution"):
        toy_algorithm("arm", shape=(6,))
