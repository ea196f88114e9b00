"""SAGM against the authors' rule written out on one vector of weights, around two objectives."""

from __future__ import annotations

import pytest

from reference.neighbour import Loss, coral, erm, neighbour_step
from reference.twin import assert_follows

RHO, ALPHA = 0.3, 0.02


@pytest.mark.parametrize(("name", "loss"), [("sagm", erm), ("sagm+coral", coral)])
def test_five_steps_are_the_authors(name: str, loss: Loss) -> None:
    assert_follows(
        name,
        lambda twin, batches, _: neighbour_step(
            twin,
            batches,
            loss,
            scale=lambda norm: RHO / norm - ALPHA,
            combine=lambda g, near: g + 0.5 * (near - g),  # theirs adds half the difference to the one of them
        ),
        steps=5,
        sagm_rho=RHO,
        sagm_alpha=ALPHA,
    )
