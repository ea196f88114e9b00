"""Linear probing before the first step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from copying import replace
from fgmix.errors import UserError
from fgmix.seeding import seed_hash
from fgmix.training.loop import train
from fgmix.training.prepare import WARMUP_LR, PreparedRun, build_algorithm, build_source, prepare, warm_up
from training.killed_run import toy_data, toy_spec

STEPS = 5


@pytest.fixture
def prepared() -> PreparedRun:
    return prepare(replace(toy_spec(), warmup_head=STEPS, dropout=0.5), toy_data(), progress=False)


def test_the_classifier_alone_moves_by_adam_on_codes_of_evaluation(prepared: PreparedRun) -> None:
    algorithm, twin = build_algorithm(prepared), build_algorithm(prepared).eval()
    before = {name: value.clone() for name, value in algorithm.featurizer.state_dict().items()}
    warm_up(algorithm, prepared, progress=False)
    optimizer = torch.optim.Adam(twin.classifier.parameters(), lr=WARMUP_LR)
    other = replace(prepared, spec=replace(prepared.spec, seed=seed_hash("warm-up", prepared.spec.seed)))
    for batches in map(build_source(other).at, range(STEPS)):
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        optimizer.zero_grad()
        cross_entropy(twin.predict(x), y).backward()
        optimizer.step()
    for ours, theirs in zip(algorithm.classifier.parameters(), twin.classifier.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert all(torch.equal(before[name], value) for name, value in algorithm.featurizer.state_dict().items())
    assert all(p.grad is None for p in algorithm.parameters())


def test_without_steps_nothing_happens(prepared: PreparedRun) -> None:
    algorithm = build_algorithm(prepared)
    before = nn.utils.parameters_to_vector(algorithm.parameters()).clone()
    warm_up(algorithm, replace(prepared, spec=replace(prepared.spec, warmup_head=0)), progress=False)
    assert torch.equal(nn.utils.parameters_to_vector(algorithm.parameters()), before)


def test_a_run_starts_from_the_warm_classifier(tmp_path: Path) -> None:
    """It is another run, and its first evaluation is better than that of a cold one."""
    spec = replace(toy_spec(), steps=1, eval_every=1, averaging="none", settings={"lr": 1e-6})
    runs = {"out": tmp_path, "dataset": toy_data(), "device": "cpu", "progress": False}
    cold, warm = (train(replace(spec, warmup_head=n), **runs) for n in (0, 100))
    assert cold.spec.name != warm.spec.name
    losses = [sum(parts["holdout"] for parts in record.evaluations[0].loss["raw"].values()) for record in (cold, warm)]
    assert losses[1] < losses[0]


@pytest.mark.parametrize(("option", "value"), [("warmup_head", 3), ("freeze", 1)])
def test_a_backbone_that_is_frozen_as_a_whole_has_neither(option: str, value: int) -> None:
    with pytest.raises(UserError, match=rf"`{option}` should be 0 with --frozen.*Found {value}"):
        prepare(replace(toy_spec(), frozen=True, **{option: value}), toy_data(), progress=False)
