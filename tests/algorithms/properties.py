"""Properties that several methods share, stated once."""

from __future__ import annotations

from typing import Any

import torch

from fgmix.testing.contract import copy_through_file, get_tensors, require_same_tensors
from fgmix.testing.toys import run_steps, toy_algorithm, toy_batches


def assert_order_of_domains_is_irrelevant(name: str, **settings: Any) -> None:
    batches = toy_batches(shape=(6,))
    a, b = (toy_algorithm(name, shape=(6,), **settings) for _ in range(2))
    straight, turned = a.step(batches), b.step([batches[2], batches[0], batches[1]])
    for key in straight:
        torch.testing.assert_close(straight[key], turned[key])
    torch.testing.assert_close(a.classifier.weight, b.classifier.weight)


def assert_resumes_at(name: str, cut: int, last: int = 6, **settings: Any) -> None:
    """Steps 0 … last, interrupted before step `cut` and resumed from the saved state, or never interrupted."""
    shape = settings.pop("shape", (6,))
    batches = toy_batches(shape=shape)
    whole, first, second = (toy_algorithm(name, shape=shape, **settings) for _ in range(3))
    run_steps(whole, batches, 0, last)
    run_steps(first, batches, 0, cut)
    second.load_state_dict(copy_through_file(first.state_dict()))
    run_steps(second, batches, cut, last)
    require_same_tensors(get_tensors(whole), get_tensors(second))
