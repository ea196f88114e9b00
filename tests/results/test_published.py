"""The paper's numbers: all there, consistent with each other, and beside the right rows."""

from __future__ import annotations

import pytest

from fgmix.results import published
from fgmix.results.labels import METHODS, known_domains, method_label, paper_domain
from fgmix.results.selection import Method, select
from fgmix.results.tables import dataset_table, overall_table
from results.made import sweep

DATASETS = ["PACS", "VLCS", "OfficeHome", "TerraIncognita", "DomainNet"]


def test_every_published_method_has_a_name_of_ours() -> None:
    ours = {method_label(name, model) for name in METHODS for model in ("raw", "swa")}
    assert set(published.overall()) <= ours
    assert {label for _, label, _ in published.accuracies()} <= ours


@pytest.mark.parametrize("dataset", DATASETS)
def test_domains_are_those_of_the_tables(dataset: str) -> None:
    published_domains = {domain for name, _, domain in published.accuracies() if name == dataset} - {"Avg"}
    assert {paper_domain(dataset, domain) for domain in known_domains(dataset)} == published_domains


def test_averages_are_the_means_of_what_they_average() -> None:
    """To the rounding of printed numbers; two of the paper's are off by more."""
    found = published.accuracies()
    off = set()
    for (dataset, label, column), average in found.items():
        domains = [found[dataset, label, paper_domain(dataset, name) or ""].value for name in known_domains(dataset)]
        values = [value for value in domains if value is not None]
        if column == "Avg" and len(values) == len(domains):
            assert average.value is not None
            if abs(sum(values) / len(values) - average.value) > 0.11:
                off.add((dataset, label))
    assert off == {("PACS", "Manifold Mixup"), ("OfficeHome", "PCGrad")}


def test_the_overall_table_is_made_of_the_datasets_averages() -> None:
    for label, row in published.overall().items():
        assert [row[name] for name in DATASETS] == [
            published.accuracies()[name, label, "Avg"].value for name in DATASETS
        ]
        assert sum(row[name] for name in DATASETS) / 5 == pytest.approx(row["Avg"], abs=0.11)


def test_beside_a_dataset_table() -> None:
    domains = " ".join(known_domains("PACS"))
    records = sweep({"erm": [[0.8] * 4], "mine": [[0.7] * 4]}, domains=domains, dataset="PACS")
    table = published.beside(dataset_table(select(records), "PACS"))
    assert [row.label for row in table.rows] == ["ERM", "ERM (paper)", "mine"]
    assert [entry.shown for entry in table.rows[1].entries] == [
        "84.7 ± 0.4",
        "80.8 ± 0.6",
        "97.2 ± 0.3",
        "79.3 ± 1.0",
        "85.5",
    ]
    assert published.ABOUT in table.caption
    assert not table.is_best(table.rows[1], 0)


def test_beside_a_dataset_with_other_domains_has_no_average() -> None:
    records = sweep({"erm": [[0.8, 0.8]]}, domains="photo infrared", dataset="PACS")
    theirs = published.beside(dataset_table(select(records), "PACS")).rows[1]
    assert [entry.value for entry in theirs.entries] == [None, 97.2, None]  # infrared, photo, Avg


def test_beside_an_overall_table_averages_what_is_shown() -> None:
    records = [r for name in ("PACS", "VLCS") for r in sweep({"fgmix": [[0.8, 0.8]]}, domains="a b", dataset=name)]
    theirs = published.beside(overall_table(select(records))).rows[1]
    assert [entry.value for entry in theirs.entries] == pytest.approx([86.8, 78.1, (86.8 + 78.1) / 2])
    records = [r for name in DATASETS for r in sweep({"fgmix": [[0.8, 0.8]]}, domains="a b", dataset=name)]
    theirs = published.beside(overall_table(select(records))).rows[1]
    assert theirs.entries[-1].value == 65.0


def test_a_table_of_other_datasets_stays_as_it_is() -> None:
    table = overall_table(select(sweep({"erm": [[0.8, 0.8]]}, domains="a b", dataset="digits")))
    assert published.beside(table) is table


def test_sensitivity_peaks_where_the_paper_says() -> None:
    grid = published.sensitivity()
    assert len(grid) == 16
    assert max(grid, key=lambda point: grid[point]) == ("TerraIncognita", 3.0, 0.1)


def test_time_ratios() -> None:
    ratios = published.step_time_ratios()
    assert ratios["erm"] == 1
    assert ratios["metamixup"] == pytest.approx(750.7 / 284.8)
    assert published.step_milliseconds()[Method("fgmix", "swa")] == 319.8


def test_cost_table() -> None:
    table = published.cost_table({Method("erm"): 20.0, Method("fgmix"): 25.0, Method("mine"): 30.0})
    shown = [[entry.shown for entry in row.entries] for row in table.rows]
    assert shown[1] == ["25.0", "1.25", "312.7", "1.10"]
    assert shown[2] == ["30.0", "1.50", "–", "–"]
    alone = published.cost_table({Method("fgmix"): 25.0}).rows[0].entries[1]
    assert (alone.value, alone.note) == (None, "ERM was not measured")
