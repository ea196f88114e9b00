"""Steps by the amount of data, where nothing is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from copying import replace
from fgmix.data import DomainDataset, from_arrays
from fgmix.deploy.schedule import note_steps, scale_steps
from fgmix.records.schema import RunSpec


def rows(n: int, domains: int = 4) -> DomainDataset:
    return from_arrays(np.zeros((n, 1)), np.arange(n) // domains % 2, np.arange(n) % domains)


def unequal(*sizes: int) -> DomainDataset:
    """Domains of these sizes."""
    n = sum(sizes)
    return from_arrays(np.zeros((n, 1)), np.arange(n) % 2, np.repeat(np.arange(len(sizes)), sizes))


def spec(**options: Any) -> RunSpec:
    return RunSpec(**{"dataset": "arrays", "algorithm": "erm", **options})


@pytest.mark.parametrize(
    ("n", "options", "steps"),
    [
        (400, {}, None),  # the default, 1,000
        (6_400, {}, None),  # 20 · 1,600 / 32 = 1,000
        (50_000, {}, 7900),  # 7,812.5, rounded up
        (50_000, {"batch_size": 64}, 4000),
        (200_000, {}, 10_000),  # ten times the default at most
        (50_000, {"steps": 500}, 500),
        (50_000, {"protocol": "domainbed-2020"}, None),
    ],
)
def test_steps(n: int, options: dict[str, Any], steps: int | None) -> None:
    said = spec(**options)
    found = scale_steps(said, rows(n))
    assert found.steps == steps
    notes = note_steps(said, found)
    assert bool(notes) == (found.steps != said.steps)
    assert all(note.startswith(f"{steps:,} steps, scaled with the amount of data") for note in notes)


def test_the_largest_domain_is_seen_as_often_as_equal_ones() -> None:
    assert scale_steps(spec(), unequal(12_500, 100, 100)).steps == scale_steps(spec(), rows(50_000)).steps == 7900


def test_a_domain_held_out_changes_nothing() -> None:
    data = rows(50_000)
    found = scale_steps(spec(test_domains=("1",)), data)
    assert replace(found, test_domains=()) == scale_steps(spec(), data)


def test_much_longer_runs_begin_to_average_later_unless_another_start_is_given() -> None:
    assert scale_steps(spec(), rows(50_000)).averaging_start == 7900 // 2 - 1000
    assert scale_steps(spec(averaging_start=500), rows(50_000)).averaging_start == 500
    assert scale_steps(spec(), rows(12_800)).averaging_start == scale_steps(spec(), rows(400)).averaging_start == 100


def test_longer_runs_are_evaluated_less_often() -> None:
    assert scale_steps(spec(), rows(50_000)).eval_every == 395
    assert scale_steps(spec(eval_every=50), rows(50_000)).eval_every == 50
