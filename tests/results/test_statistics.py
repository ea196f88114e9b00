"""Tests of significance, against enumeration, hand calculation and published constants."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fgmix.errors import UserError
from fgmix.results.formats import latex, markdown
from fgmix.results.selection import Method, select
from fgmix.results.statistics import (
    Comparison,
    Ranking,
    bootstrap_interval,
    compare,
    comparison_table,
    critical_difference,
    holm,
    marked,
    normal_range_quantile,
    rank_methods,
    ranking_table,
    unranked_table,
    wilcoxon,
)
from fgmix.results.tables import dataset_table
from results.made import run, sweep


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


def test_wilcoxon_agrees_with_scipy_on_many() -> None:
    from scipy.stats import wilcoxon as scipys

    d = np.random.default_rng(0).normal(0.3, 1, 40)
    assert wilcoxon(d) == pytest.approx(float(scipys(d, method="exact").pvalue), rel=1e-9)


def test_differences_equal_but_for_rounding_are_ties() -> None:
    assert 0.3 - 0.2 != 0.2 - 0.1
    assert wilcoxon(np.array([0.3 - 0.2, 0.1 - 0.2, 0.4])) == wilcoxon(np.array([1.0, -1.0, 4.0]))
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


@pytest.mark.parametrize(("p", "k"), [(0.95, 2), (0.9, 5), (0.95, 23), (0.999, 60)])
def test_quantiles_of_the_range_agree_with_scipy(p: float, k: int) -> None:
    from scipy.stats import studentized_range

    assert normal_range_quantile(p, k) == pytest.approx(float(studentized_range.ppf(p, k, np.inf)), abs=1e-9)


def test_bootstrap_agrees_with_scipy() -> None:
    from scipy.stats import bootstrap

    d = np.random.default_rng(1).exponential(1, 25) - 0.4  # skewed: bias and acceleration matter
    theirs = bootstrap((d,), np.mean, n_resamples=20_000, method="BCa", random_state=0).confidence_interval
    assert bootstrap_interval(d, resamples=20_000) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    percentile = bootstrap((d,), np.mean, n_resamples=20_000, method="percentile", random_state=0).confidence_interval
    assert abs(percentile.high - theirs.high) > 0.03  # the test would see a plain percentile interval


def test_bootstrap_is_deterministic_and_degenerates_to_a_point() -> None:
    d = np.array([0.1, 0.4, -0.2, 0.5])
    assert bootstrap_interval(d) == bootstrap_interval(d)
    assert bootstrap_interval(np.full(5, 0.3)) == (0.3, 0.3)
    low, high = bootstrap_interval(d, alpha=0.5)
    assert bootstrap_interval(d)[0] < low < high < bootstrap_interval(d)[1]
    with pytest.raises(UserError, match="resamples"):
        bootstrap_interval(d, resamples=10)


def test_bootstrap_covers() -> None:
    rng = np.random.default_rng(2)
    intervals = [bootstrap_interval(rng.normal(0, 1, 20), resamples=500) for _ in range(200)]
    assert 0.88 < np.mean([low < 0 < high for low, high in intervals]) < 0.99


# Eight pairs (4 trials × 2 domains). `better` is ERM + 1…8 points, `same` alternates around it.
ERM = [[0.50, 0.60]] * 4
BETTER = [[0.51, 0.62], [0.53, 0.64], [0.55, 0.66], [0.57, 0.68]]
SAME = [[0.51, 0.58], [0.53, 0.56], [0.45, 0.66], [0.57, 0.52]]
SELECTION = select(sweep({"erm": ERM, "better": BETTER, "same": SAME}, domains="a b"))


def test_compare() -> None:
    better, same = compare(SELECTION)
    assert (better.method, better.pairs) == (Method("better"), 8)
    assert better.difference == pytest.approx(4.5)
    assert better.interval is not None
    assert 1 < better.interval[0] < 4.5 < better.interval[1] < 8
    assert better.p == pytest.approx(2 / 256)
    assert better.p_holm == pytest.approx(4 / 256)
    assert better.distinguishable
    assert not same.distinguishable
    assert same.interval is not None
    assert same.interval[0] < 0 < same.interval[1]


def test_pairs_are_what_both_have() -> None:
    records = sweep({"erm": ERM, "better": BETTER}, domains="a b")
    comparison = compare(select(records[:-1]))[0]  # without the last of `better`, which is 8 points up
    assert (comparison.pairs, comparison.difference) == (7, pytest.approx(4.0))


def test_datasets_pool_or_stand_alone() -> None:
    other = sweep({"erm": [[0.5, 0.5]], "better": [[0.4, 0.4]]}, domains="x y", dataset="other")
    selection = select([*sweep({"erm": ERM, "better": BETTER}, domains="a b"), *other])
    assert compare(selection)[0].pairs == 10
    assert compare(selection, dataset="other")[0].difference == pytest.approx(-10)


def test_the_averaged_model_is_compared_with_raw_erm() -> None:
    parts = {20: {"a": (0.5, 0.5), "b": (None, 0.5)}}
    averaged = {20: {"a": (0.6, 0.5), "b": (None, 0.5)}}
    (comparison,) = compare(select([run("a", parts, swa=averaged, trial=trial) for trial in range(3)]))
    assert comparison.method == Method("erm", "swa")
    assert comparison.difference == pytest.approx(10)
    assert comparison.note == "3 pairs are too few: p cannot go below 0.25"


def test_no_baseline_and_no_pairs() -> None:
    with pytest.raises(UserError, match="Expected results of ERM"):
        compare(select(sweep({"better": BETTER}, domains="a b")))
    apart = [*sweep({"erm": [[0.5, 0.5]]}, domains="a b"), *sweep({"x": [[0.5, 0.5]]}, domains="a b", dataset="d")]
    (comparison,) = compare(select(apart))
    assert comparison == Comparison(Method("x"), 0, None, None, None, None, 0.05)
    assert not comparison.distinguishable
    assert "shares no trial" in comparison.note


def test_marks_and_the_table_of_differences() -> None:
    comparisons = compare(SELECTION)
    table = marked(dataset_table(SELECTION, "toy"), comparisons)
    assert [row.label for row in table.rows] == ["ERM", "better", "same ≈"]
    assert "≈: cannot be told from ERM" in table.caption
    assert latex(table).isascii()
    assert marked(dataset_table(SELECTION, "toy"), comparisons[:1]) == dataset_table(SELECTION, "toy")
    text = markdown(comparison_table(comparisons))
    assert "| better | +4.5 [+" in text
    assert "| 0.008 | 0.016 | 8 | differs from ERM |" in text
    assert "not told from ERM" in text
    assert latex(comparison_table(comparisons)).isascii()


def test_friedman_by_hand() -> None:
    # Ranks of (erm, better, same) on four pairs: 3 1 2, 3 1 2, 2.5 1 2.5, 1 2 3
    rows = [(0.1, 0.3, 0.2), (0.4, 0.6, 0.5), (0.1, 0.2, 0.1), (0.9, 0.8, 0.7)]
    accuracies = {name: [[row[i]] for row in rows] for i, name in enumerate(("erm", "better", "same"))}
    records = [r for r in sweep(accuracies, domains="a b") if r.spec.test_domains == ("a",)]
    ranking = rank_methods(select(records))
    assert list(ranking.ranks.items()) == [
        (Method("better"), 1.25),
        (Method("erm"), 2.375),
        (Method("same"), 2.375),
    ]
    # Σ_j (R_j − 8)² = 1.5² + 3² + 1.5² = 13.5; Σ r² = 14 + 14 + 13.5 + 14 = 55.5; 55.5 − 4·3·16/4 = 7.5
    assert ranking.statistic == pytest.approx(2 * 13.5 / 7.5)
    assert ranking.p == pytest.approx(np.exp(-13.5 / 7.5))  # χ² with two degrees of freedom
    assert ranking.pairs == 4
    assert ranking.critical_difference == pytest.approx(2.343 * np.sqrt(12 / 24), abs=1e-3)


def test_friedman_uses_complete_pairs_only() -> None:
    records = sweep({"erm": ERM, "better": BETTER}, domains="a b")
    assert rank_methods(select(records[:-3])).pairs == 5
    with pytest.raises(UserError, match="at least two methods"):
        rank_methods(select(records[:8]))


def test_equal_methods_share_their_rank() -> None:
    ranking = rank_methods(select(sweep({"erm": ERM, "twin": ERM}, domains="a b")))
    assert set(ranking.ranks.values()) == {1.5}
    assert (ranking.statistic, ranking.p) == (0.0, 1.0)


def test_cliques_are_the_longest_bars() -> None:
    a, b, c, d, e = (Method(name) for name in "abcde")
    ranking = Ranking({a: 1.0, b: 1.5, c: 2.2, d: 2.4, e: 4.0}, 10, 0.0, 1.0, critical_difference=1.0)
    assert ranking.cliques() == [(a, b), (b, c, d)]


def test_the_table_of_ranks() -> None:
    ranking = Ranking({Method("x"): 1.25, Method("erm", "swa"): 1.75}, 4, 3.6, 0.1653, critical_difference=0.98)
    text = markdown(ranking_table(ranking))
    assert "| x | 1.25 |\n| ERM + SWA | 1.75 |" in text  # no bold: the highest is not the best
    assert "over 4 trials and test domains" in text
    assert "χ² = 3.60, p = 0.165. Ranks that differ by less than 0.98 cannot be told apart (Nemenyi, α = 0.05)" in text
    assert latex(ranking_table(ranking)).isascii()
    nothing = markdown(unranked_table([Method("x"), Method("erm")], "Too few."))
    assert "| x | – [1] |\n| ERM | – [1] |" in nothing
    assert "[1] Too few." in nothing
