"""The table of methods: complete, the same in the docs, and with costs that can be counted again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.operations import relative_operations
from fgmix import algorithms
from fgmix.errors import UserError
from fgmix.records.declarations import FAMILIES, read_overview

PAGE = Path(__file__).resolve().parents[2] / "docs" / "algorithms" / "README.md"
OURS = [row for row in algorithms.overview() if algorithms.get(row.name).__module__.startswith("fgmix.")]


@pytest.mark.parametrize("row", OURS, ids=lambda row: row.name)
def test_every_method_declares_all_but_what_it_needs(row) -> None:  # type: ignore[no-untyped-def]
    assert all((row.label, row.year, row.family, row.cost, row.paper))
    assert row.family in FAMILIES


def test_every_family_has_a_method_and_every_method_one_family() -> None:
    by_family = {family: [row.name for row in algorithms.overview(family=family)] for family in FAMILIES}
    assert all(by_family.values())
    assert sorted(name for names in by_family.values() for name in names) == [row.name for row in OURS]


def test_the_table_read_from_the_source_is_that_of_the_classes() -> None:
    assert read_overview() == OURS


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(UserError, match="Did you mean 'mixup'"):
        algorithms.overview(family="mixups")


def test_the_docs_have_the_same_table() -> None:
    cells = re.findall(
        r"^\| `(\w+)` \| \[(.*)\]\((\w+\.md)\) \| \[(\d+)\]\((.*)\) \| (.*) \| (.*) \| (.*) \|$", PAGE.read_text(), re.M
    )
    assert all((PAGE.parent / cell[2]).exists() for cell in cells)
    documented = [
        (name, label, year, paper, family, cost, needs) for name, label, _, year, paper, family, cost, needs in cells
    ]
    assert documented == [
        (row.name, row.label, row.year, row.paper, row.family, row.cost, row.needs or "–") for row in OURS
    ]
    described = dict(re.findall(r"^\| ([a-z-]+) \| ([^|]+) \|$", PAGE.read_text(), re.M))
    assert FAMILIES.items() <= described.items()


@pytest.mark.parametrize("name", ["fish", "mldg", "transfer", "sam"])
def test_costs_are_those_counted(name: str) -> None:
    """Those of methods without further networks hold for any backbone."""
    counted = relative_operations(name, backbone="small_cnn", image_size=16, batch_size=2)
    assert algorithms.get(name).cost == pytest.approx(counted, rel=0.02)
