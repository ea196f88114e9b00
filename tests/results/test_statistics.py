"""Tests of significance, against enumeration, hand calculation and published constants."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from copying import replace
from fgmix.errors import UserError
from fgmix.records.evaluations import Evaluation
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.results.differences import comparison_table, mark_rows
from fgmix.results.formats import comma_separated, latex, markdown
from fgmix.results.intervals import detectable_difference
from fgmix.results.paper_rows import add_paper_rows
from fgmix.results.ranks import Ranking, critical_difference, rank_rows, ranking_table, unranked_table
from fgmix.results.selection import select
from fgmix.results.statistics import (
    Comparison,
    check_baseline,
    compare,
    copies,
    holm,
    measure_spread,
    paired_differences,
    wilcoxon,
)
from fgmix.results.tables import dataset_table
from results.made import finished, run, sweep


def wilcoxon_by_enumeration(d: list[float]) -> float:
    """All 2ⁿ signs of the ranks, counted."""
    sizes = sorted(abs(x) for x in d if x)
    ranks = [np.mean([i + 1 for i, size in enumerate(sizes) if size == abs(x)]) for x in d if x]
    observed = sum(rank for rank, x in zip(ranks, [x for x in d if x]) if x > 0)
    sums = [sum(rank for rank, sign in zip(ranks, signs) if sign) for signs in product([0, 1], repeat=len(ranks))]
    low = sum(s <= observed for s in sums) / len(sums)
    high = sum(s >= observed for s in sums) / len(sums)
    return min(1.0, 2 * min(low, high))


@pytest.mark.parametrize(
    "d",
    [
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [-1.0, 2.0, 3.0, 4.0, -5.0, 6.0, 7.0],
        [1.0, 1.0, -1.0, 2.0, 2.0, 2.0, -3.0],  # ties
        [0.0, 0.0, 1.0, -2.0, 3.0, 3.0],  # zeros
        [-0.5, -1.5, -2.5, -3.5, -4.5],
        [1.0, -1.0, 2.0, 2.0, 3.0, -3.0, 4.0, 4.0, 4.0, 5.0, -6.0, 7.0, 7.0, 8.0, 9.0],  # ties beyond scipy's limit
    ],
)
def test_wilcoxon_is_exact(d: list[float]) -> None:
    assert wilcoxon(np.array(d)) == pytest.approx(wilcoxon_by_enumeration(d), abs=1e-12)


def test_wilcoxon_against_the_tables() -> None:
    # The two-sided 5 % critical value of min(W⁺, W⁻) is 0 for n = 6 and 8 for n = 10.
    ten = np.arange(1.0, 11.0)
    at_8, at_9 = ten.copy(), ten.copy()
    at_8[[7]] *= -1
    at_9[[8]] *= -1
    assert wilcoxon(at_8) < 0.05 < wilcoxon(at_9)
    assert wilcoxon(np.arange(1.0, 7.0)) == pytest.approx(2 / 64)


@pytest.mark.parametrize(("pairs", "method"), [(80, "exact"), (200, "exact"), (201, "approx")])
def test_wilcoxon_of_many_pairs_is_scipys(pairs: int, method: str) -> None:
    d = np.random.default_rng(pairs).normal(0.2, 1, pairs)
    assert wilcoxon(d) == pytest.approx(stats.wilcoxon(d, method=method).pvalue, rel=1e-9)


def test_differences_equal_but_for_rounding_are_ties() -> None:
    assert 0.3 - 0.2 != 0.2 - 0.1
    x, y = ({("d", i, "a"): value for i, value in enumerate(values)} for values in ((0.3, 0.1, 0.6), (0.2, 0.2, 0.2)))
    d = [*paired_differences(x, y).values()]
    assert d == [0.1, -0.1, 0.4]
    assert wilcoxon(np.array(d)) == wilcoxon(np.array([1.0, -1.0, 4.0]))
    assert wilcoxon(np.zeros(5)) == 1.0


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04 × 4 3 2 1 = .02 .03 .06 .04 → the last may not fall below .06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (10, 3.164)]
)  # Demšar 2006, table 5
def test_nemenyi_constants(k: int, q: float) -> None:
    assert critical_difference(k, 1) / np.sqrt(k * (k + 1) / 6) == pytest.approx(q, abs=1e-3)


# Eight pairs (4 trials × 2 domains). `better` is ERM + 1…8 points, `same` alternates around it.
ERM = [[0.50, 0.60]] * 4
BETTER = [[0.51, 0.62], [0.53, 0.64], [0.55, 0.66], [0.57, 0.68]]
SAME = [[0.51, 0.58], [0.53, 0.56], [0.45, 0.66], [0.57, 0.52]]
SELECTION = select(sweep({"erm": ERM, "better": BETTER, "same": SAME}, domains="a b"))


def test_compare() -> None:
    better, same = compare(SELECTION)
    assert (better.row, better.pairs) == (Row("better"), 8)
    assert better.difference == pytest.approx(4.5)
    # Within both domains the differences are 2 points apart: 1, 3, 5, 7 and 2, 4, 6, 8.
    error = np.std([1, 3, 5, 7], ddof=1) / np.sqrt(8)
    assert better.interval == pytest.approx(stats.t.interval(0.95, 6, 4.5, error))
    # The domains' means are 4 and 5: one degree of freedom.
    assert better.new_interval == pytest.approx(stats.t.interval(0.95, 1, 4.5, 0.5))
    assert better.spread == pytest.approx(np.std(range(1, 9), ddof=1))
    assert better.detectable == detectable_difference(better.spread, 8)
    assert better.detectable_holm == detectable_difference(better.spread, 8, 0.05 / 2)
    assert better.p == pytest.approx(2 / 256)
    assert better.p_holm == pytest.approx(4 / 256)
    assert better.verdict == "different"
    assert same.verdict == "undecided"
    assert same.interval is not None
    assert same.interval[0] < 0 < same.interval[1]


def test_comparisons_stand_in_the_order_of_tables() -> None:
    parts = {20: {"a": (0.5, 0.5), "b": (None, 0.5)}}
    averaged = {20: {"a": (0.6, 0.5), "b": (None, 0.5)}}
    records = [run("a", parts, swa=averaged, algorithm=name) for name in ("mine", "fgmix", "erm", "coral")]
    expected = [Row(name, model=model) for model in ("raw", "swa") for name in ("coral", "fgmix", "mine")]
    assert [c.row for c in compare(select(records))] == expected


def test_pairs_are_what_both_have() -> None:
    records = sweep({"erm": ERM, "better": BETTER}, domains="a b")
    comparison = compare(select(records[:-1]))[0]  # without the last of `better`, which is 8 points up
    assert (comparison.pairs, comparison.difference) == (7, pytest.approx(4.0))


def test_datasets_pool_or_stand_alone() -> None:
    other = sweep({"erm": [[0.5, 0.5]], "better": [[0.4, 0.4]]}, domains="x y", dataset="other")
    selection = select([*sweep({"erm": ERM, "better": BETTER}, domains="a b"), *other])
    assert compare(selection)[0].pairs == 10
    assert compare(selection, dataset="other")[0].difference == pytest.approx(-10)


def test_a_row_is_compared_with_erm_of_its_own_kind() -> None:
    """Averaging alone is worth 10 points here, and m1 nothing: its averaged row must not inherit the gain."""

    def record(algorithm: str, trial: int, gain: float) -> RunRecord:
        parts, averaged = (
            {20: {"a": (value, 0.5), "b": (None, 0.5)}} for value in (0.5 + gain, 0.6 + 0.001 * trial + 2 * gain)
        )
        return run("a", parts, swa=averaged, algorithm=algorithm, trial=trial)

    selection = select([record(name, r, gain) for name, gain in (("erm", 0.0), ("m1", 0.01)) for r in range(3)])
    found = {c.row: (c.baseline, c.difference) for c in compare(selection)}
    assert found == {
        Row("m1"): (Row("erm"), pytest.approx(1)),
        Row("m1", model="swa"): (Row("erm", model="swa"), pytest.approx(2)),
    }


def test_without_erm_of_the_kind_there_is_no_test() -> None:
    parts = {20: {"a": (0.5, 0.5), "b": (None, 0.5)}}
    better = {20: {"a": (0.7, 0.5), "b": (None, 0.5)}}
    averages = {20: {"a": (0.8, 0.5), "b": (None, 0.5)}}
    selection = select([run("a", parts), run("a", better, swa=averages, algorithm="m1")])
    by_method = {c.row: c for c in compare(selection)}
    averaged = by_method[Row("m1", model="swa")]
    assert (averaged.pairs, averaged.verdict) == (0, "not tested")
    text = markdown(comparison_table(list(by_method.values()), selection.labels))
    assert "has no trial and test domain in common with ERM + SWA" in text


def test_no_baseline_and_no_pairs() -> None:
    with pytest.raises(UserError, match=r"Unknown baseline 'erm'. Known: better."):
        compare(select(sweep({"better": BETTER}, domains="a b")))
    apart = [*sweep({"erm": [[0.5, 0.5]]}, domains="a b"), *sweep({"x": [[0.5, 0.5]]}, domains="a b", dataset="d")]
    (comparison,) = compare(select(apart))
    assert comparison == Comparison(Row("x"), Row("erm"), 0)
    assert comparison.verdict == "not tested"


# Copies


def twice(accuracy: float, **keys: Any) -> RunRecord:
    """A run whose averaged weights are the raw ones."""
    parts = {20: {"a": (accuracy, 0.5), "b": (None, 0.5)}}
    return run("a", parts, swa=parts, **keys)


def test_copies_enter_neither_holms_family_nor_the_ranks() -> None:
    """Eight runs that ended before their average began: each averaged row is the raw one once more."""
    gains = {"erm": 0.0, "m1": 0.01, "m2": 0.02}
    records = [twice(0.5 + gain * (1 + r), algorithm=name, trial=r) for name, gain in gains.items() for r in range(8)]
    selection = select(records)
    assert copies(selection, None) == {Row(name, model="swa"): Row(name) for name in gains}
    alone = select([replace(r, evaluations=(only_raw(r.evaluations[0]),)) for r in records])
    assert not copies(alone, None)
    found = {c.row: c for c in compare(selection)}
    for comparison in compare(alone):
        assert found[comparison.row] == comparison  # the same p-values as without the copies
    copy = found[Row("m1", model="swa")]
    assert (copy.p, copy.p_holm, copy.verdict, copy.copy_of) == (None, None, "not tested", Row("m1"))
    assert rank_rows(selection).ranks == rank_rows(alone).ranks
    text = markdown(comparison_table(compare(selection), selection.labels))
    assert "identical to m1 at every evaluation of every run: not tested, and not counted by Holm" in text
    ranks = markdown(ranking_table(rank_rows(selection), selection.labels))
    assert "Not ranked: ERM + SWA (identical to ERM), m1 + SWA (identical to m1)" in ranks


def only_raw(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, accuracy={"raw": evaluation.accuracy["raw"]})


def test_equal_numbers_of_different_runs_are_no_copies() -> None:
    erm, twin = (run("a", {20: {"a": (0.5, 0.5), "b": (None, v)}}, algorithm=n) for n, v in (("erm", 0.6), ("m1", 0.7)))
    selection = select([erm, twin])
    assert copies(selection, None) == {}
    assert compare(selection)[0].p == 1.0


def test_a_method_that_is_erm_at_every_evaluation_is_a_copy_of_it() -> None:
    selection = select(sweep({"erm": ERM, "idle": ERM}, domains="a b"))
    assert copies(selection, None) == {Row("idle"): Row("erm")}
    alike = [
        replace(each, evaluations=tuple(replace(e, loss={"raw": {"a": {"train": 0.1}}}) for e in each.evaluations))
        if each.spec.algorithm == "idle"
        else each
        for each in sweep({"erm": ERM, "idle": ERM}, domains="a b")
    ]
    assert copies(select(alike), None) == {}  # few samples: accuracies agree where probabilities do not
    table = mark_rows(dataset_table(selection, "toy"), compare(selection))
    assert table.label(table.rows[1]) == "idle ‡"  # without a mark it would look significant
    assert table.caption.endswith(
        "‡: not tested against ERM (a copy of another row, or no trial and test domain in common)."
    )


# Too few pairs


@pytest.mark.parametrize(
    ("pairs", "methods", "smallest", "verdict"),
    [
        (4, 1, 0.125, "undecided"),
        (5, 1, 0.0625, "undecided"),
        (6, 1, 0.03125, "different"),
        (6, 2, 0.0625, "undecided"),  # 2 · 2⁻⁵ after Holm's correction
        (7, 2, 0.03125, "different"),
    ],
)
def test_too_few_pairs_are_said(pairs: int, methods: int, smallest: float, verdict: str) -> None:
    """Every method is better than ERM on every pair: the smallest p-values possible."""
    accuracies = {"erm": [[0.5]] * pairs} | {
        f"m{i}": [[0.5 + 0.01 * (r + 1) + 0.001 * i] for r in range(pairs)] for i in range(methods)
    }
    records = [r for r in sweep(accuracies, domains="a b") if r.spec.test_domains == ("a",)]
    comparison = compare(select(records))[0]
    assert (comparison.smallest, comparison.p_holm) == (pytest.approx(smallest), pytest.approx(smallest))
    assert comparison.verdict == verdict


def test_the_report_says_too_few_instead_of_no_difference() -> None:
    selection = select(sweep({"erm": [[0.5, 0.6]] * 2, "better": BETTER[:2]}, domains="a b"))
    comparisons = compare(selection)
    text = markdown(comparison_table(comparisons, selection.labels))
    assert "no significant difference" not in text
    assert "too few pairs: with 4 the smallest p-value possible is 0.125 after Holm's correction" in text
    table = mark_rows(dataset_table(selection, "toy"), comparisons)
    assert table.label(table.rows[1]) == "better †"
    assert "†: too few trials and test domains to tell it from ERM" in table.caption
    assert latex(table).isascii()


def test_many_pairs_of_one_method_make_room_for_another() -> None:
    """Holm multiplies the second smallest p-value by one less: 6 pairs are enough beside a method with 20."""
    accuracies = {"erm": [[0.5]] * 20, "long": [[0.5 + 0.01 * (r + 1)] for r in range(20)]}
    accuracies["short"] = [[0.51 + 0.01 * r] for r in range(6)]
    records = [r for r in sweep(accuracies, domains="a b") if r.spec.test_domains == ("a",)]
    short = next(c for c in compare(select(records)) if c.row == Row("short"))
    assert (short.pairs, short.smallest, short.verdict) == (6, pytest.approx(2**-5), "different")


def test_marks_and_the_table_of_differences() -> None:
    comparisons = compare(SELECTION)
    table = mark_rows(dataset_table(SELECTION, "toy"), comparisons)
    assert [table.label(row) for row in table.rows] == ["ERM", "better", "same †"]
    assert latex(table).isascii()
    assert mark_rows(dataset_table(SELECTION, "toy"), comparisons[:1]) == dataset_table(SELECTION, "toy")
    text = markdown(comparison_table(comparisons, SELECTION.labels))
    assert (
        "| better | +4.5 [+2.3, +6.7] | [-1.9, +10.9] | 0.008 | 0.016 | 2.8 | 3.3 | 8 | significant difference" in text
    )
    assert "| cannot be decided with 8 pairs |" in text
    assert "no significant difference" not in text
    assert latex(comparison_table(comparisons, SELECTION.labels)).isascii()


def test_marks_are_not_put_on_rows_of_the_paper() -> None:
    records = sweep({"erm": ERM, "fgmix": SAME}, domains="photo sketch", dataset="PACS")
    selection = select(records)
    table = add_paper_rows(mark_rows(dataset_table(selection, "PACS"), compare(selection)))
    assert [table.label(row) for row in table.rows] == ["ERM", "ERM (paper)", "FGMix †", "FGMix (paper)"]


# Intervals that cannot be computed


def test_one_trial_has_no_interval_for_these_domains() -> None:
    selection = select(sweep({"erm": [[0.5, 0.6]], "better": [[0.51, 0.62]]}, domains="a b"))
    (one,) = compare(selection, margin=5)
    assert (one.interval, one.p_equivalent, one.verdict) == (None, None, "undecided")
    assert one.new_interval is not None
    table = comparison_table([one], selection.labels)
    assert table.rows[0].entries[0].note.startswith("Each test domain has one trial: no interval")
    assert table.rows[0].entries[1].note == ""


def test_one_domain_has_no_interval_for_a_new_one() -> None:
    records = [r for r in sweep({"erm": ERM, "better": BETTER}, domains="a b") if r.spec.test_domains == ("a",)]
    selection = select(records)
    (one,) = compare(selection)
    assert one.interval is not None
    assert one.new_interval is None
    notes = [entry.note for entry in comparison_table([one], selection.labels).rows[0].entries]
    assert notes[:2] == ["", "There is one test domain: no interval for a new one."]


def test_one_pair_detects_nothing() -> None:
    selection = select([finished("a", 0.5), finished("a", 0.6, algorithm="m1")])
    (one,) = compare(selection)
    assert (one.interval, one.new_interval, one.spread, one.detectable, one.verdict) == (None,) * 4 + ("undecided",)
    assert "cannot be decided with 1 pair [3] |" in markdown(comparison_table([one], selection.labels))


# Equivalence

CLOSE = [[0.501, 0.599], [0.499, 0.601], [0.501, 0.601], [0.4995, 0.599]]  # within ±0.1 of ERM


def test_equivalence_is_a_verdict_of_its_own() -> None:
    selection = select(sweep({"erm": ERM, "close": CLOSE, "same": SAME}, domains="a b"))
    close, same = compare(selection, margin=0.5)
    assert (close.verdict, same.verdict) == ("equivalent", "undecided")
    assert [c.verdict for c in compare(selection)] == ["undecided", "undecided"]
    table = mark_rows(dataset_table(selection, "toy"), [close, same])
    assert [table.label(row) for row in table.rows] == ["ERM", "close ≈", "same †"]
    assert "≈: equivalent within ±0.5 to ERM" in table.caption
    differences = comparison_table([close, same], selection.labels)
    assert "p (±0.5)" in differences.columns
    assert ",result,,,,equivalent within ±0.5 to ERM," in comma_separated([differences])
    assert latex(differences).isascii()


def test_equivalence_is_corrected_for_the_number_of_rows() -> None:
    alone = compare(select(sweep({"erm": ERM, "close": CLOSE}, domains="a b")), margin=0.2)[0]
    again = [[0.501, 0.5992], *CLOSE[1:]]
    two = compare(select(sweep({"erm": ERM, "close": CLOSE, "again": again}, domains="a b")), margin=0.2)
    assert alone.p_equivalent is not None
    assert max(c.p_equivalent or 0 for c in two) > alone.p_equivalent


def test_a_small_difference_may_be_significant_and_equivalent() -> None:
    above = [[0.501 + 0.0001 * r, 0.6012 + 0.0001 * r] for r in range(4)]
    selection = select(sweep({"erm": ERM, "above": above}, domains="a b"))
    (one,) = compare(selection, margin=1)
    assert (one.verdict, one.equivalent) == ("different", True)
    text = markdown(comparison_table([one], selection.labels))
    assert "significant difference from ERM, equivalent within ±1 |" in text


# Another baseline


def test_another_baseline_is_named_everywhere() -> None:
    records = sweep({"erm": ERM, "better": BETTER, "coral": SAME}, domains="a b")
    selection = select(records)
    comparisons = compare(selection, baseline="coral")
    assert {c.row: c.baseline for c in comparisons} == {Row("erm"): Row("coral"), Row("better"): Row("coral")}
    (against_erm,) = [c for c in compare(selection) if c.row == Row("coral")]
    assert comparisons[0].difference == pytest.approx(-(against_erm.difference or 0))
    table = comparison_table(comparisons, selection.labels)
    assert table.title == "Differences from CORAL"
    assert "ERM" not in table.caption
    marked = mark_rows(dataset_table(selection, "toy"), comparisons)
    assert "to tell it from CORAL" in marked.caption
    with pytest.raises(UserError, match="nothing"):
        compare(selection, baseline="nothing")
    check_baseline(selection.labels, "CORAL")


def test_the_baseline_may_be_an_arm_by_key_or_label() -> None:
    records = [
        finished("a", 0.5 + 0.01 * i, algorithm=name, arm=arm, trial=r)
        for i, (name, arm) in enumerate([("erm", ""), ("fgmix", ""), ("fgmix", "γ = 10")])
        for r in range(2)
    ]
    selection = select(records)
    assert selection.label(Row("fgmix", "γ = 10")) == "FGMix (γ = 10)"
    for name in ("fgmix (γ = 10)", "FGMix (γ = 10)"):
        found = compare(selection, baseline=name)
        assert [(c.row, c.baseline) for c in found] == [
            (Row("erm"), Row("fgmix", "γ = 10")),
            (Row("fgmix"), Row("fgmix", "γ = 10")),
        ]


# Averages that share weights


@pytest.mark.parametrize(("start", "shared"), [(10, 20), (20, 20), (21, 0)])
def test_averages_say_up_to_which_step_they_share_weights(start: int, shared: int) -> None:
    def record(algorithm: str, trial: int, end: float) -> RunRecord:
        values = {10: 0.4, 20: 0.5, 30: end}
        parts = {step: {"a": (value, 0.5), "b": (None, 0.5)} for step, value in values.items()}
        return run("a", parts, swa=parts, algorithm=algorithm, trial=trial, averaging_start=start)

    ends = {"erm": 0.5, "late": 0.6}
    selection = select([record(name, r, end) for name, end in ends.items() for r in range(2)], "last_evaluations")
    comparisons = [replace(c, copy_of=None) for c in compare(selection)]
    assert {c.row.model: c.shared_steps for c in comparisons} == {"raw": 0, "swa": shared}
    raw, swa = (row.entries[0].note for row in comparison_table(comparisons, selection.labels).rows)
    assert raw == ""
    assert swa.startswith(f"Same training as ERM + SWA up to step {shared} or later") if shared else swa == ""


def test_the_spread_of_records_is_the_median_over_raw_rows() -> None:
    spreads = [c.spread for c in compare(SELECTION)]
    assert measure_spread(SELECTION) == pytest.approx(np.median(spreads))
    with pytest.raises(UserError, match="--spread"):
        measure_spread(select([finished("a", 0.5)]))


def test_friedman_by_hand() -> None:
    # Ranks of (erm, better, same) on four pairs: 3 1 2, 3 1 2, 2.5 1 2.5, 1 2 3
    rows = [(0.1, 0.3, 0.2), (0.4, 0.6, 0.5), (0.1, 0.2, 0.1), (0.9, 0.8, 0.7)]
    accuracies = {name: [[row[i]] for row in rows] for i, name in enumerate(("erm", "better", "same"))}
    records = [r for r in sweep(accuracies, domains="a b") if r.spec.test_domains == ("a",)]
    ranking = rank_rows(select(records))
    assert list(ranking.ranks.items()) == [
        (Row("better"), 1.25),
        (Row("erm"), 2.375),
        (Row("same"), 2.375),
    ]
    # Σ_j (R_j − 8)² = 1.5² + 3² + 1.5² = 13.5; Σ r² = 14 + 14 + 13.5 + 14 = 55.5; 55.5 − 4·3·16/4 = 7.5
    assert ranking.statistic == pytest.approx(2 * 13.5 / 7.5)
    assert ranking.p == pytest.approx(np.exp(-13.5 / 7.5))  # χ² with two degrees of freedom
    assert ranking.pairs == 4
    assert ranking.critical_difference == pytest.approx(2.343 * np.sqrt(12 / 24), abs=1e-3)


def test_friedman_uses_complete_pairs_only() -> None:
    records = sweep({"erm": ERM, "same": SAME, "better": BETTER}, domains="a b")
    assert rank_rows(select(records[:-3])).pairs == 5
    with pytest.raises(UserError, match=r"Expected at least 3 methods.*Found 2 methods with 8 in common"):
        rank_rows(select(records[:16]))


def test_equal_methods_share_their_rank() -> None:
    """All ties: scipy's χ² would be 0/0."""
    records = [
        finished("a", 0.5, algorithm=name, trial=r, validation=v)
        for name, v in (("erm", 0.1), ("m1", 0.2), ("m2", 0.3))
        for r in range(3)
    ]
    ranking = rank_rows(select(records))
    assert set(ranking.ranks.values()) == {2.0}
    assert (ranking.statistic, ranking.p) == (0.0, 1.0)


def test_cliques_are_the_longest_bars() -> None:
    a, b, c, d, e = (Row(name) for name in "abcde")
    ranking = Ranking({a: 1.0, b: 1.5, c: 2.2, d: 2.4, e: 4.0}, 10, 0.0, 1.0, 1.0, {})
    assert ranking.cliques() == [(a, b), (b, c, d)]


def test_the_table_of_ranks() -> None:
    labels = {Row("erm"): "ERM"}
    ranking = Ranking({Row("x"): 1.25, Row("erm", model="swa"): 1.75}, 4, 3.6, 0.1653, 0.98, {})
    text = markdown(ranking_table(ranking, labels))
    assert "| x | 1.25 |\n| ERM + SWA | 1.75 |" in text  # no bold: the highest is not the best
    assert "over 4 trials and test domains" in text
    assert "χ² = 3.60, p = 0.165. Ranks that differ by less than 0.98 cannot be told apart (Nemenyi" in text
    assert latex(ranking_table(ranking, labels)).isascii()
    nothing = markdown(unranked_table([Row("x"), Row("erm")], "Too few.", labels))
    assert "| x | – [1] |\n| ERM | – [1] |" in nothing
    assert "[1] Too few." in nothing
