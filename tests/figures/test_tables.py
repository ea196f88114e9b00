"""Figures of tables: domains, ranks, sensitivity, differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fgmix.figures.arrays import Findings
from fgmix.figures.differences import arrange_differences, collect_ranks
from fgmix.figures.kinds import describe
from fgmix.figures.tables import (
    Domains,
    align_spans,
    collect_domains,
    collect_sensitivities,
    read_paper_sensitivity,
)
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.results.ranks import rank_rows
from fgmix.results.read import read_runs
from fgmix.results.report import Choices
from fgmix.results.runs import Grid, Runs
from fgmix.results.selection import select
from fgmix.results.statistics import Comparison
from figures import made
from figures.marks import cells, lines, points, words
from results.made import LABELS, finished, sweep

TRIALS = {
    "erm": [[0.5, 0.6, 0.7], [0.52, 0.6, 0.7]],
    "fgmix_a": [[0.6, 0.7, 0.8], [0.6, 0.7, 0.8]],
    "fgmix": [[0.7, 0.8, 0.9], [0.7, 0.8, 0.9]],
}


def find(records: Sequence[RunRecord], **choices: Any) -> Findings:
    return Findings(Runs(records), select(records), Choices(**choices))


def collect_one(records: Sequence[RunRecord], **choices: Any) -> Domains:
    ((_, domains),) = collect_domains(find(records, **choices))
    return domains


def test_domains_have_every_method_and_arm_in_the_order_of_the_table() -> None:
    arm = sweep({"coral": TRIALS["fgmix"]}, arm="λ = 3")
    domains = collect_one([*sweep({**TRIALS, "coral": TRIALS["erm"], "my_own": TRIALS["erm"]}), *arm])
    assert domains.rows.tolist() == ["ERM", "CORAL", "CORAL (λ = 3)", "FGMix-A", "FGMix", "my_own"]
    assert domains.algorithms.tolist() == ["erm", "coral", "coral (λ = 3)", "fgmix_a", "fgmix", "my_own"]
    assert domains.columns.tolist() == ["a", "b", "c", "Avg"]
    np.testing.assert_allclose(domains.value[0], [51, 60, 70, 181 / 3])
    np.testing.assert_allclose(domains.spread[0, :3], [1 / np.sqrt(2), 0, 0], atol=1e-9)
    assert np.isnan(domains.spread[0, 3])
    assert not list(collect_domains(find(sweep({"coral": TRIALS["erm"]}))))  # nothing to compare


def test_only_domains_that_were_held_out_have_a_panel() -> None:
    domains = collect_one([finished("b", 0.5 + 0.1 * i, algorithm=name) for i, name in enumerate(("erm", "coral"))])
    assert "a" not in domains.columns.tolist()
    assert [domains.value[row, domains.columns.tolist().index("b")] for row in (0, 1)] == [50, pytest.approx(60)]
    for panel in describe(domains).panels:
        assert 40 < (panel.x.low or 0) < (panel.x.high or 0) < 70


def test_domains_of_the_published_study_have_all_arms() -> None:
    read = read_runs(Path(__file__).parents[2] / "docs" / "records" / "pacs.records.xz")
    domains = collect_one(read.records)
    rows = {each.arm for each in select(read.records).rows()}
    assert len(rows) == 5
    assert len(domains.rows) == len(select(read.records).rows()) == 22
    assert np.isfinite(domains.value).all()


def test_a_number_far_away_is_written_and_does_not_stretch_the_axis() -> None:
    value = np.array([[50.0], [52.0], [51.0], [10.0], [53.0]])
    ((low, high),) = align_spans(value, np.full_like(value, np.nan))
    assert low == pytest.approx(49.7)
    assert high == pytest.approx(53.3)
    names = np.array(list("uvwxy"))
    chart = describe(Domains("t", "", names, names, np.full(5, False), np.array(["a"]), value, np.full_like(value, 1)))
    assert words(chart) == ["← 10.0"]
    assert len(points(chart)) == 4
    assert "Arrows" in chart.caption
    assert (align_spans(np.array([[99.0], [10.0]]), np.zeros((2, 1)))[0] <= 104).all()


def test_rows_of_the_paper_are_flagged() -> None:
    domains = "art_painting cartoon photo sketch"
    records = sweep({"erm": [[0.5] * 4], "fgmix": [[0.6] * 4]}, domains=domains, dataset="PACS")
    shown = collect_one(records, published=True)
    assert shown.rows.tolist() == ["ERM", "ERM (paper)", "FGMix", "FGMix (paper)"]
    assert shown.algorithms.tolist() == ["erm", "erm", "fgmix", "fgmix"]
    assert shown.published.tolist() == [False, True, False, True]


def test_domains_are_points_with_their_spread() -> None:
    chart = describe(made.domains())
    art, average = chart.panels
    assert (art.title, average.title) == ("art", "Avg")
    assert [text for _, text in art.y.ticks or ()] == ["ERM", "FGMix", "FGMix (paper)"]
    assert [(mark.x, mark.y) for mark in points(chart)[:1]] == [([50], [0])]
    assert list(lines(chart)[0].x) == [49, 51]
    assert np.isnan(points(chart)[1].x[0])
    assert [mark.faint for mark in points(chart)] == [False, False, True]
    spans = [(panel.x.high or 0) - (panel.x.low or 0) for panel in chart.panels]
    assert spans[0] == pytest.approx(spans[1])  # differences can be compared
    assert chart.caption.startswith("Lines: ± standard error, 3 trials. ")


def test_accuracies_are_rounded_as_in_tables() -> None:
    arrays = made.sensitivity()
    arrays.value[0] = [6.25, 62.746]
    mark = cells(describe(arrays))
    assert mark.written[0] == ["6.2", "62.7"]
    assert mark.text[0][0] == "λ₀ = 1, α = 0.03: 6.2"
    bars = made.domains()
    bars.value[0], bars.spread[0] = 6.25, 0.25
    assert points(describe(bars))[0].text[0] == "ERM, art: 6.2 ± 0.2"


def test_ranks_and_their_groups() -> None:
    selection = select(sweep(TRIALS))
    ranks = collect_ranks(rank_rows(selection), selection.labels)
    assert ranks.methods.tolist() == ["FGMix", "FGMix-A", "ERM"]
    assert ranks.algorithms.tolist() == ["fgmix", "fgmix_a", "erm"]
    assert ranks.ranks.tolist() == [1, 2, 3]
    assert ranks.cliques.tolist() == [[0, 1], [1, 2]]  # CD = 1.35 over six pairs
    assert ranks.pairs == 6


def test_ranks_are_points_and_bars_join_groups() -> None:
    chart = describe(made.ranks())
    names = ["FGMix + SWA (1.20)", "FGMix (2.00)", "CORAL (3.10)", "ERM (3.70)"]
    assert [text for _, text in chart.panels[0].y.ticks or ()] == names
    first, second, ruler = lines(chart)
    assert [list(bar.y) for bar in (first, second)] == [[-0.3, 1.3], [0.7, 3.3]]  # beside the rows that they join
    assert 3.7 < first.x[0] < second.x[0]
    assert ruler.x[1] - ruler.x[0] == pytest.approx(1.8)
    assert words(chart) == ["CD = 1.80"]
    assert "p < 0.001" in chart.caption


def test_the_grid_of_a_sweep() -> None:
    records = [
        record
        for lam, shift in ((1.0, 0.0), (3.0, 0.1))
        for alpha in (0.1, 0.3)
        for record in sweep({"fgmix": [[0.5 + shift + alpha / 10] * 3]}, settings={"lam": lam, "alpha": alpha})
    ]
    grid = Grid({"lam": (1.0, 3.0), "alpha": (0.1, 0.3)}, tuple(records))
    ((_, sensitivity),) = collect_sensitivities(Findings(Runs([], [grid]), select([]), Choices()))
    assert (sensitivity.corner, sensitivity.rows.tolist()) == ("λ₀", ["1", "3"])
    assert sensitivity.columns.tolist() == ["α = 0.1", "α = 0.3"]
    np.testing.assert_allclose(sensitivity.value, [[51, 53], [61, 63]])


def test_sensitivity_is_a_cell_for_each_combination() -> None:
    chart = describe(made.sensitivity())
    assert cells(chart).written == [["47.9", "48.2"], ["–", "49.2"]]
    x, y = chart.panels[0].x, chart.panels[0].y
    assert (x.label, y.label) == ("α", "λ₀")
    assert [text for _, text in x.ticks or ()] == ["0.03", "0.1"]
    paper = read_paper_sensitivity()
    assert paper.value[paper.rows.tolist().index("3"), paper.columns.tolist().index("α = 0.1")] == 49.2
    assert paper.value.shape == (4, 4)


def test_what_is_not_significant_is_grey() -> None:
    erm = Row("erm")
    same = Comparison(Row("mixup"), erm, 9, 0.5, (-1.0, 2.0), (-3.0, 4.0), 0.5, 0.5, 0.01)
    better = Comparison(Row("fgmix"), erm, 9, 2.0, (1.0, 3.0), None, 0.001, 0.002, 0.01)
    alone = Comparison(Row("coral"), erm, 0)
    labels = {Row(name): label for name, label in LABELS.items()}
    chart = describe(arrange_differences([same, better, alone], labels))
    assert [mark.colour for mark in points(chart)] == ["#D55E00", "#999999"]  # the largest first
    assert points(chart)[1].text[0] == (
        "Mixup: +0.5 points [-1.0, +2.0] for these test domains, [-3.0, +4.0] for a new test domain, 9 pairs; cannot "
        "be decided with 9 pairs"
    )
    assert points(chart)[0].text[0].endswith("9 pairs; significant difference from ERM")
    # The dashed zero, the only interval of the first row, both of the second.
    assert [list(line.x) for line in lines(chart)] == [[0, 0], [1.0, 3.0], [-3.0, 4.0], [-1.0, 2.0]]
    assert chart.panels[0].y.ticks == ((0.0, "FGMix"), (1.0, "Mixup"))
