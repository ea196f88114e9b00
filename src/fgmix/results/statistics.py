"""Significance tests of the differences from ERM, paired by dataset, trial and test domain, and their tables.

A row is compared with ERM of the same kind: raw weights with raw, averaged weights with ERM's average; in a report of
several folders, with that of its own folder. With x_i and y_i the accuracies of a method and of that ERM on pair i,
d_i = x_i − y_i:

    interval    bias-corrected and accelerated bootstrap of mean d (Efron, 1987), pairs resampled
    p-value     Wilcoxon's signed-rank test (Wilcoxon, 1945), zeros dropped
    Holm        p-values of all rows corrected together (Holm, 1979): the family-wise error rate is at most α

scipy.stats computes the intervals. Wilcoxon's distribution and Holm's correction are implemented here: scipy
approximates the first if accuracies are tied, and does not have the second. Rows that are copies of others (`copies`)
are neither tested nor ranked. Pairs of one test domain share that domain, so they are not fully independent: the
results are about these domains, not about new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fgmix.errors import bad_value
from fgmix.records.metrics import Floats
from fgmix.records.rows import Labels, Row, label_row
from fgmix.results.rounding import difference_text, p_text
from fgmix.results.selection import Cell, Selected, Selection, compute_once
from fgmix.results.tables import Entry, Table, TableRow, order_rows
from fgmix.seeding import numpy_generator

Pair = tuple[str, int, str]  # dataset, trial, test domain
Verdict = Literal["different", "not significant", "too few pairs", "not tested"]

BASELINE = "erm"
ALPHA = 0.05  # level of significance; the intervals cover 1 − α
DIFFERENCES = "Differences from ERM"  # title of the table
MARKS: dict[Verdict, str] = {"not significant": "≈", "too few pairs": "†", "not tested": "‡"}  # in tables
DIGITS = 9  # decimals of a percentage: accuracies are ratios of counts, and smaller differences are rounding errors
RESAMPLES = 10_000
EXACT = 200  # number of pairs up to which p-values are exact; the time is cubic in it


@dataclass(frozen=True)
class Comparison:
    """A method compared with the baseline of its kind."""

    row: Row  # what is compared
    baseline: Row  # the row that it is compared with
    pairs: int  # number of pairs that both have
    difference: float | None = None  # mean of the method minus the baseline, in percentage points; None without pairs
    interval: tuple[float, float] | None = None  # its bootstrap confidence interval; None with fewer than two pairs
    p: float | None = None  # Wilcoxon's p-value; None if not tested
    p_holm: float | None = None  # the same, corrected for all rows that were tested
    # The smallest corrected p-value that the numbers of pairs allow, whatever the accuracies.
    smallest: float | None = None
    # The row of which it is a copy, with the same accuracies in all runs; None if it is not a copy.
    copy_of: Row | None = None

    @property
    def verdict(self) -> Verdict:
        """The result of the test, or why there is none."""
        if self.p_holm is None or self.smallest is None:
            return "not tested"
        if self.p_holm <= ALPHA:
            return "different"
        return "too few pairs" if self.smallest > ALPHA else "not significant"

    @property
    def significant(self) -> bool:
        return self.verdict == "different"


@compute_once
def accuracies_by_row(selection: Selection, dataset: str | None = None) -> dict[Row, dict[Pair, float]]:
    """Collect the selected accuracies of a dataset, or of all, in percent, by row, then by pair."""
    by_row: dict[Row, dict[Pair, float]] = {}
    for cell, accuracy in selection.accuracies().items():
        if dataset in (None, cell.dataset):
            by_row.setdefault(cell.row, {})[cell.dataset, cell.trial_seed, cell.test_domain] = 100 * accuracy
    return by_row


@compute_once
def copies(selection: Selection, dataset: str | None = None) -> dict[Row, Row]:
    """Find the rows whose runs have exactly the accuracies of another's at every evaluation, each with that other.

    Averaged weights of a run that ended before the average began are the raw ones; a method whose settings switch it
    off is ERM; one run may be listed under two points of a grid. Raw rows come first, then ERM, then the first folder:
    later ones are copies of these.
    """
    measured: dict[Row, list[tuple[Cell, Selected]]] = {}
    for cell, outcome in sorted(selection.cells.items()):
        if isinstance(outcome, Selected) and dataset in (None, cell.dataset):
            measured.setdefault(cell.row, []).append((cell, outcome))
    folders = list(dict.fromkeys(row.origin for row in selection.rows()))

    def place(row: Row) -> tuple[bool, bool, int]:
        return row.model != "raw", (row.algorithm, row.arm) != (BASELINE, ""), folders.index(row.origin)

    originals: list[Row] = []
    twins: dict[Row, Row] = {}
    for row in sorted(measured, key=place):
        twin = next((other for other in originals if _are_copies(measured[other], measured[row])), None)
        if twin is None:
            originals.append(row)
        else:
            twins[row] = twin
    return twins


def _are_copies(first: list[tuple[Cell, Selected]], second: list[tuple[Cell, Selected]]) -> bool:
    """Say whether two rows have the same accuracies; evaluations are compared only if all selected numbers agree."""

    def numbers(cells: list[tuple[Cell, Selected]]) -> list[object]:
        return [(cell.dataset, cell.trial_seed, cell.test_domain, outcome.accuracy) for cell, outcome in cells]

    def evaluations(cell: Cell, outcome: Selected) -> list[object]:
        return [evaluation.accuracy.get(cell.row.model) for evaluation in outcome.record.evaluations]

    return numbers(first) == numbers(second) and all(
        evaluations(*one) == evaluations(*other) for one, other in zip(first, second)
    )


def compare(selection: Selection, dataset: str | None = None) -> list[Comparison]:
    """Compare every other row with ERM of its kind, on the pairs that both have, in the order of tables.

    Empty if ERM has no number. The generator of the bootstrap is fixed: the same records give the same intervals.

    Args:
        selection: the selected accuracies.
        dataset: one dataset; None for all.
    """
    scores = accuracies_by_row(selection, dataset)
    baselines = [row.runs for row in scores if (row.algorithm, row.arm) == (BASELINE, "")]
    if not baselines:
        return []
    twins = copies(selection, dataset)
    comparisons = []
    for row in order_rows(selection, dataset=dataset):
        if row in scores and row.runs not in baselines:
            baseline = _find_baseline(row, baselines)
            d = paired_differences(scores[row], scores.get(baseline, {}))
            difference = float(d.mean()) if len(d) else None
            interval = bootstrap_interval(d) if len(d) > 1 else None
            comparisons.append(Comparison(row, baseline, len(d), difference, interval, copy_of=twins.get(row)))
    return _add_p_values(comparisons, scores)


def _find_baseline(row: Row, baselines: Sequence[Row]) -> Row:
    """Find the baseline of the row's own kind and origin, or of the first origin that has one if its own has none."""
    own = (baseline for baseline in baselines if baseline.origin == row.origin)
    return next(own, baselines[0])._replace(model=row.model)


def _add_p_values(comparisons: Sequence[Comparison], scores: Mapping[Row, Mapping[Pair, float]]) -> list[Comparison]:
    """Test the comparisons; Holm's family is those with pairs that are not copies."""
    family = [c for c in comparisons if c.pairs and c.copy_of is None]
    p = [wilcoxon(paired_differences(scores[c.row], scores[c.baseline])) for c in family]
    # Wilcoxon's p-value is smallest if all n differences have the same sign, and Holm's correction is monotonic in p.
    smallest = holm([min(1.0, 2.0 ** (1 - c.pairs)) for c in family])
    tests = {
        c.row: replace(c, p=p_raw, p_holm=p_holm, smallest=least)
        for c, p_raw, p_holm, least in zip(family, p, holm(p), smallest)
    }
    return [tests.get(c.row, c) for c in comparisons]


def paired_differences(x: Mapping[Pair, float], y: Mapping[Pair, float]) -> Floats:
    """Compute d = x − y on the pairs that both have, in a fixed order."""
    d = np.array([x[pair] - y[pair] for pair in sorted(x.keys() & y.keys())], dtype=np.float64)
    return d.round(DIGITS)


def bootstrap_interval(d: Floats, alpha: float = ALPHA, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Compute the bias-corrected and accelerated (BCa) confidence interval of the mean of d.

    Args:
        d: differences, at least two.
        alpha: 1 − coverage.
        resamples: number of bootstrap resamples.
    """
    from scipy.stats import bootstrap

    if resamples < 100:
        raise bad_value("resamples", "at least 100", resamples)
    if np.ptp(d) == 0:
        return float(d[0]), float(d[0])  # all equal: every resample has the same mean
    rng = numpy_generator("bootstrap", len(d), resamples)
    result = bootstrap((d,), np.mean, n_resamples=resamples, confidence_level=1 - alpha, method="BCa", rng=rng)
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def wilcoxon(d: Floats) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test; 1 if all differences are zero.

    Under the null hypothesis each rank r_i is positive or negative with equal probability, so that the sum w of the
    positive ranks has the probability generating function ∏ (1 + x^{r_i}) / 2. It is expanded for up to 200 non-zero
    differences, ties included (ranks are doubled, so that those of ties are integers); for more, scipy's normal
    approximation is used. scipy itself approximates from 14 pairs on if there are ties, which are common in accuracies.

    >>> wilcoxon(np.array([1.0, 2.0, 2.0, 3.0]))
    0.125
    """
    from scipy.stats import rankdata
    from scipy.stats import wilcoxon as signed_rank

    d = d[d != 0]
    if len(d) == 0:
        return 1.0
    if len(d) > EXACT:
        return float(signed_rank(d).pvalue)
    ranks = (2 * rankdata(np.abs(d))).astype(int)
    probability = np.ones(1)
    for r in ranks:
        probability = (np.pad(probability, (0, r)) + np.pad(probability, (r, 0))) / 2
    w = int(ranks[d > 0].sum())
    return float(min(1.0, 2 * min(probability[: w + 1].sum(), probability[w:].sum())))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the i-th smallest of m is multiplied by m − i + 1, and at least the one before.

    >>> holm([0.04, 0.01, 0.03])
    [0.06, 0.03, 0.06]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def mark_rows(table: Table, comparisons: Sequence[Comparison]) -> Table:
    """Mark every row of a table without a significant difference from ERM; the caption explains the marks."""
    marks = {c.row: MARKS[c.verdict] for c in comparisons if c.verdict in MARKS}
    rows = tuple(row if row.source else replace(row, mark=marks.get(row.row, "")) for row in table.rows)
    level = f"Holm, α = {ALPHA:g}"
    meanings: dict[Verdict, str] = {
        "not significant": f"no significant difference from ERM (Wilcoxon over trials and test domains, {level})",
        "too few pairs": f"too few trials and test domains for a significant difference from ERM (Wilcoxon, {level})",
        "not tested": "not tested against ERM (a copy of another row, or no trial and test domain in common)",
    }
    used = {row.mark for row in rows}
    legend = [f"{MARKS[verdict]}: {meaning}." for verdict, meaning in meanings.items() if MARKS[verdict] in used]
    return replace(table, rows=rows, caption=" ".join([table.caption, *legend]))


def comparison_table(comparisons: Sequence[Comparison], labels: Labels) -> Table:
    """Make the table of differences from ERM with their intervals and p-values."""
    rows = tuple(
        TableRow(
            c.row,
            (
                Entry(c.difference, text="" if c.difference is None else difference_text(c.difference, c.interval)),
                Entry(c.p, text="" if c.p is None else p_text(c.p)),
                Entry(c.p_holm, text="" if c.p_holm is None else p_text(c.p_holm)),
                Entry(c.pairs, text=str(c.pairs)),
                Entry(text=_describe_verdict(c, labels), note=_describe_reason(c, labels)),
            ),
        )
        for c in comparisons
    )
    caption = (
        f"Difference from ERM in percentage points, paired by trial and test domain, with its {100 * (1 - ALPHA):g} % "
        "bootstrap interval (BCa). Raw weights are compared with raw ERM, averaged weights with averaged ERM. p: "
        "Wilcoxon's signed-rank test. Holm: p corrected for all rows that are tested."
    )
    columns = ("difference", "p", "p (Holm)", "pairs", "result")
    return Table(DIFFERENCES, caption, columns, rows, labels, best=False)


def _describe_verdict(comparison: Comparison, labels: Labels) -> str:
    name = label_row(labels, comparison.baseline)
    if comparison.significant:
        return f"significant difference from {name}"
    return f"no significant difference from {name}" if comparison.verdict == "not significant" else comparison.verdict


def _describe_reason(comparison: Comparison, labels: Labels) -> str:
    """Say why there is no test result; empty if there is one."""
    if comparison.copy_of is not None:
        twin = label_row(labels, comparison.copy_of)
        return f"identical to {twin} at every evaluation of every run: not tested, and not counted by Holm"
    if comparison.pairs == 0:
        return f"has no trial and test domain in common with {label_row(labels, comparison.baseline)}"
    if comparison.verdict == "too few pairs":
        return (
            f"too few pairs: with {comparison.pairs} the smallest p-value possible is {comparison.smallest:.3g} after "
            f"Holm's correction, above α = {ALPHA:g}; run more trials"
        )
    return ""
