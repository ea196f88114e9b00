"""Every method trains with a head of text embeddings, constant or not."""

from __future__ import annotations

import pytest
import torch

from fgmix import algorithms
from fgmix.networks.text import TextHead
from fgmix.testing.toys import run_steps, toy_algorithm, toy_batches

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
