"""The paper's rows beside ours."""

from __future__ import annotations

import pytest

from fgmix.records.benchmarks import known_domains
from fgmix.results.formats import latex
from fgmix.results.paper_rows import ABOUT, add_paper_rows
from fgmix.results.selection import select
from fgmix.results.tables import dataset_table, overall_table
from results.made import sweep

DATASETS = ["PACS", "VLCS", "OfficeHome", "TerraIncognita", "DomainNet"]


def test_beside_a_dataset_table() -> None:
    domains = " ".join(known_domains("PACS"))
    records = sweep({"erm": [[0.8] * 4], "mine": [[0.7] * 4]}, domains=domains, dataset="PACS")
    table = add_paper_rows(dataset_table(select(records), "PACS"))
    assert [table.label(row) for row in table.rows] == ["ERM", "ERM (paper)", "mine"]
    assert [entry.shown for entry in table.rows[1].entries] == [
        "84.7 ± 0.4",
        "80.8 ± 0.6",
        "97.2 ± 0.3",
        "79.3 ± 1.0",
        "85.5",
    ]
    assert ABOUT in table.caption
    assert not table.is_best(table.rows[1], 0)


def test_beside_a_dataset_with_other_domains_has_no_average() -> None:
    records = sweep({"erm": [[0.8, 0.8]]}, domains="photo infrared", dataset="PACS")
    theirs = add_paper_rows(dataset_table(select(records), "PACS")).rows[1]
    assert [entry.value for entry in theirs.entries] == [None, 97.2, None]  # infrared, photo, Avg


def test_beside_an_overall_table_averages_what_is_shown() -> None:
    records = [r for name in ("PACS", "VLCS") for r in sweep({"fgmix": [[0.8, 0.8]]}, domains="a b", dataset=name)]
    theirs = add_paper_rows(overall_table(select(records))).rows[1]
    assert [entry.value for entry in theirs.entries] == pytest.approx([86.8, 78.1, (86.8 + 78.1) / 2])
    records = [r for name in DATASETS for r in sweep({"fgmix": [[0.8, 0.8]]}, domains="a b", dataset=name)]
    theirs = add_paper_rows(overall_table(select(records))).rows[1]
    assert theirs.entries[-1].value == 65.0


def test_what_the_paper_lacks_is_said_with_the_option_that_brings_it() -> None:
    digits = overall_table(select(sweep({"erm": [[0.8, 0.8]]}, domains="a b", dataset="digits")))
    table = add_paper_rows(digits)
    assert table.rows == digits.rows
    assert "The paper has no numbers for these rows. Its datasets are PACS, VLCS," in table.caption
    assert table.caption.endswith("fgmix sweep --preset paper-overall.")
    assert r"sweep -{}-preset paper-overall" in latex(table)  # LaTeX would print -- as a dash
    domains = " ".join(known_domains("PACS"))
    records = sweep({"erm": [[0.8] * 4], "mine": [[0.7] * 4]}, domains=domains, dataset="PACS")
    assert "The paper has no numbers of mine." in add_paper_rows(dataset_table(select(records), "PACS")).caption
    many = sweep({name: [[0.7] * 4] for name in ("erm", *"abcd")}, domains=domains, dataset="PACS")
    assert "no numbers of 4 of these rows." in add_paper_rows(dataset_table(select(many), "PACS")).caption
    only = sweep({"erm": [[0.8] * 4]}, domains=domains, dataset="PACS")
    assert "no numbers" not in add_paper_rows(dataset_table(select(only), "PACS")).caption
