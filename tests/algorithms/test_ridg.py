"""RIDG against the authors' loops over classes written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches, create, ridg
from fgmix.errors import UserError
from reference.twin import Twin, assert_follows

ALPHA, M = 0.5, 0.3


class Bank:
    """A rationale for each class that has been seen."""

    def __init__(self) -> None:
        self.of: dict[int, torch.Tensor] = {}

    def step(self, twin: Twin, batches: Batches, classes: range) -> None:
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        z, W = twin.g(x), twin.h.weight
        penalty = 0
        for c in classes:
            rationales = torch.stack([torch.stack([W_k * z_i for W_k in W]) for z_i, y_i in zip(z, y) if y_i == c])
            mean = rationales.mean(0).detach()
            self.of[c] = (1 - M) * self.of[c] + M * mean if c in self.of else mean
            penalty = penalty + sum(((r - self.of[c]) ** 2).sum() / len(W) for r in rationales) / len(rationales)
        twin.descend(cross_entropy(twin.h(z), y) + ALPHA * penalty)


@pytest.mark.parametrize("cached", [0, ridg._CACHED])
def test_five_steps_are_the_authors(cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the classes of the batch one by one, as where R̄ is large, and with all at once."""
    monkeypatch.setattr(ridg, "_CACHED", cached)
    bank = Bank()
    assert_follows(
        "ridg", lambda twin, batches, _: bank.step(twin, batches, range(4)), steps=5, alpha=ALPHA, momentum=M
    )


@pytest.mark.parametrize("cached", [0, ridg._CACHED])
def test_a_class_that_is_missing_keeps_its_rationale(cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridg, "_CACHED", cached)
    algorithm = toy_algorithm("ridg", shape=(6,), momentum=1.0)
    few = [(x, y % 2) for x, y in toy_batches(shape=(6,))]
    algorithm.step(few)
    assert algorithm.seen.tolist() == [True, True, False, False]
    assert algorithm.rationales[2:].abs().sum() == 0
    algorithm.step(toy_batches(shape=(6,)))
    kept = algorithm.rationales[3].clone()
    assert kept.abs().sum() > 0
    algorithm.step(few)
    assert torch.equal(algorithm.rationales[3], kept)


def test_rationales_sum_up_to_logits() -> None:
    algorithm = toy_algorithm("ridg", shape=(6,), momentum=1.0)
    x, y = toy_batches(1, b=4, shape=(6,))[0]  # one sample of each class
    algorithm.objective([(x, y)])
    logits = algorithm.predict(x) - algorithm.classifier.bias
    torch.testing.assert_close(algorithm.rationales.sum(2), logits)


def test_a_nonlinear_head_is_refused() -> None:
    head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(UserError, match=r"expects a linear classifier.*Use --head linear"):
        create("ridg", featurizer=nn.Identity(), classifier=head, n_domains=2)


def test_only_the_rationales_of_the_batch_are_read() -> None:
    """With 60 classes R̄ is large: not-a-number in those of classes that the batch lacks has no effect."""
    algorithm = create("ridg", featurizer=nn.Linear(6, 40), classifier=nn.Linear(40, 60), n_domains=3)
    algorithm.rationales[4:] = torch.nan
    assert algorithm.step(toy_batches(shape=(6,)))["loss"].isfinite()
