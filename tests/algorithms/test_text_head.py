"""Every method trains with a head of text embeddings, constant or not."""

from __future__ import annotations

import pytest
import torch

from fgmix import algorithms
from fgmix.mixing.flatness import flat_loss
from fgmix.mixing.scores import classifier_gradients
from fgmix.networks.text import TextHead
from fgmix.testing.toys import run_steps, toy_algorithm, toy_batches
from reference.literal import flat_loss_along, gradients_by_loop

NAMES = [name for name in algorithms.names() if algorithms.get(name).__module__.startswith("fgmix.")]


@pytest.mark.parametrize("head", ["text", "text-frozen"])
@pytest.mark.parametrize("name", NAMES)
def test_every_method_trains_with_a_text_head(name: str, head: str) -> None:
    settings = algorithms.get(name).at_work
    algorithm = toy_algorithm(name, head=head, **settings)
    given = algorithm.classifier
    before = given.weight.detach().clone() if isinstance(given, TextHead) else None
    metrics = run_steps(algorithm, toy_batches(b=4), 0, 2)
    assert all(value.isfinite() for value in metrics.values())
    if before is not None:
        still = torch.equal(before, given.weight)
        assert still == (head == "text-frozen") or not algorithm.trains or algorithms.get(name).head
    algorithm.eval()
    with torch.no_grad():
        assert algorithm.predict(toy_batches(b=4)[0][0]).shape == (4, 4)


@pytest.mark.parametrize("frozen", [False, True])
def test_fgmix_differentiates_a_text_head(frozen: bool) -> None:
    """Its general path: gradients of every sample, and the flatness of mixed codes, against loops."""
    g = torch.Generator().manual_seed(0)
    w, z, y = torch.randn(3, 5, generator=g), torch.randn(4, 5, generator=g), torch.tensor([0, 1, 2, 0])
    head = TextHead(w, scale=7.0, frozen=frozen)
    expected = gradients_by_loop(TextHead(w, scale=7.0), z, y)
    torch.testing.assert_close(classifier_gradients(head, z, y).dense(), expected)
    A = torch.rand(2, 4, generator=g)
    along = flat_loss_along(head, A @ z, y[:2], 0.5, torch.randn(2000, w.numel(), generator=g))
    sampled = flat_loss(head, A, z, y[:2], gamma=0.5, directions=2000, generator=g)
    assert float(sampled) == pytest.approx(float(along), rel=0.15)
