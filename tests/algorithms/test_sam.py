"""SAM against its rule written out on one vector of weights, around two objectives; `test_wrapping` has the rest."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from algorithms.toys import toy_batches
from fgmix.algorithms import create
from reference.neighbour import Loss, coral, erm, neighbour_step
from reference.twin import assert_follows

RHO = 0.3


@pytest.mark.parametrize(("name", "loss"), [("sam", erm), ("sam+coral", coral)])
def test_five_steps_are_the_papers(name: str, loss: Loss) -> None:
    assert_follows(
        name,
        lambda twin, batches, _: neighbour_step(
            twin, batches, loss, scale=lambda norm: RHO / norm, combine=lambda _, near: near
        ),
        steps=5,
        sam_rho=RHO,
    )


def test_running_statistics_record_one_pass() -> None:
    torch.manual_seed(0)
    parts = {"featurizer": nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)), "classifier": nn.Linear(5, 3)}
    batches = toy_batches(2, shape=(4,), classes=3)
    sam = create("sam", **copy.deepcopy(parts), n_domains=2, lr=1e-3, sam_rho=1.0)
    sam.step(batches)
    once = parts["featurizer"]
    once(torch.cat([x for x, _ in batches]))
    for ours, theirs in zip(sam.featurizer.buffers(), once.buffers(), strict=True):
        assert torch.equal(ours, theirs)
