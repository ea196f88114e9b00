"""Differences from a baseline (ERM by default), paired by dataset, trial and test domain: intervals, tests, power.

A row is compared with the baseline of the same kind: raw weights with raw, averaged weights with its average; in a
report of several folders, with that of its own folder. With x_i and y_i the accuracies of a method and of that
baseline on pair i, d_i = x_i − y_i:

    intervals     Student's, of the mean over test domains: for these domains, and for a new one (`intervals.py`)
    p-value       Wilcoxon's signed-rank test (Wilcoxon, 1945), zeros dropped
    Holm          p-values of all rows corrected together (Holm, 1979): the family-wise error rate is at most α
    detectable    the difference that a t test of the pairs finds with 80 % power, from their spread
    equivalence   two one-sided t tests (Schuirmann, 1987), if a margin is given, with Holm's correction

A test that does not find a difference does not show that there is none: such a row "cannot be decided" unless it is
equivalent within the margin. Wilcoxon's distribution and Holm's correction are implemented here: scipy approximates the
first if accuracies are tied, and does not have the second. Rows that are copies of others (`copies`) are neither
tested nor ranked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import takewhile
from statistics import median
from typing import Any, Literal, Self

import numpy as np

from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.metrics import Floats
from fgmix.records.rows import Labels, Row, label_row
from fgmix.results.intervals import ALPHA, Interval, MeanDifference, detectable_difference
from fgmix.results.runs import Tabular
from fgmix.results.selection import Cell, Selected, Selection
from fgmix.results.tables import Table, order_rows

Pair = tuple[str, int, str]  # dataset, trial, test domain
Verdict = Literal["different", "equivalent", "undecided", "not tested"]

BASELINE = "erm"  # unless another is chosen
DIGITS = 9  # decimals of a percentage: accuracies are ratios of counts, and smaller differences are rounding errors
EXACT = 200  # number of pairs up to which p-values are exact; the time is cubic in it


@dataclass(frozen=True)
class Comparison:
    """A method compared with the baseline of its kind."""

    row: Row  # what is compared
    baseline: Row  # the row that it is compared with
    pairs: int  # number of pairs that both have
    # Mean over test domains of the method minus the baseline, in percentage points; None without pairs.
    difference: float | None = None
    interval: Interval | None = None  # for these test domains; None if none of them has two trials
    new_interval: Interval | None = None  # for a new test domain drawn like these; None for a single one
    p: float | None = None  # Wilcoxon's p-value; None if not tested
    p_holm: float | None = None  # the same, corrected for all rows that were tested
    # The smallest corrected p-value that the numbers of pairs allow, whatever the accuracies.
    smallest: float | None = None
    spread: float | None = None  # standard deviation of the paired differences; None with one pair
    detectable: float | None = None  # difference found with 80 % power, in percentage points; None with one pair
    detectable_holm: float | None = None  # the same at Holm's strictest level, α over the number of rows tested
    margin: float | None = None  # differences below it are of no interest; None if none was given
    p_equivalent: float | None = None  # corrected p-value of a difference of at least ±margin; None if not tested
    # The last step up to which the evaluations of averaged rows agree: their averages share weights; 0 if none.
    shared_steps: int = 0
    # The row of which it is a copy, with the same accuracies in all runs; None if it is not a copy.
    copy_of: Row | None = None

    @property
    def verdict(self) -> Verdict:
        """The result of the tests, or that there is none."""
        if self.p_holm is None:
            return "not tested"
        if self.significant:
            return "different"
        return "equivalent" if self.equivalent else "undecided"

    @property
    def significant(self) -> bool:
        """Whether the difference is significant after Holm's correction."""
        return self.p_holm is not None and self.p_holm <= ALPHA

    @property
    def equivalent(self) -> bool:
        """Whether a difference of the margin or more is excluded; a smaller one may be significant."""
        return self.p_equivalent is not None and self.p_equivalent <= ALPHA


class Comparisons(tuple[Comparison, ...], Tabular):
    """Methods compared with a baseline, in the order of tables; a notebook shows them as a table."""

    labels: Labels  # of rows

    def __new__(cls, every: Iterable[Comparison], labels: Labels) -> Self:
        comparisons = super().__new__(cls, every)
        comparisons.labels = labels
        return comparisons

    def to_dicts(self) -> list[dict[str, Any]]:
        """Describe each comparison in a dictionary: its fields, intervals as two numbers, and the verdict."""
        rows = []
        for one in self:
            values = {each.name: getattr(one, each.name) for each in fields(one)}
            for name in ("row", "baseline", "copy_of"):
                values[name] = values[name] and label_row(self.labels, values[name])
            for name in ("interval", "new_interval"):
                values[f"{name}_low"], values[f"{name}_high"] = values.pop(name) or (None, None)
            rows.append({**values, "verdict": one.verdict})
        return rows

    def to_table(self) -> Table:
        """Make the table that `fgmix report` prints."""
        from fgmix.results.differences import comparison_table

        return comparison_table(self, self.labels)

    def _repr_markdown_(self) -> str | None:
        return self.to_table()._repr_markdown_() if self else None

    def _repr_html_(self) -> str | None:
        return self.to_table()._repr_html_() if self else None


@lru_cache(16)
def accuracies_by_row(selection: Selection, dataset: str | None) -> dict[Row, dict[Pair, float]]:
    """Collect the selected accuracies of a dataset, or of all, in percent, by row, then by pair."""
    by_row: dict[Row, dict[Pair, float]] = {}
    for cell, accuracy in selection.accuracies().items():
        if dataset in (None, cell.dataset):
            by_row.setdefault(cell.row, {})[cell.dataset, cell.trial_seed, cell.test_domain] = 100 * accuracy
    return by_row


@lru_cache(16)
def copies(selection: Selection, dataset: str | None) -> dict[Row, Row]:
    """Find the rows whose runs have exactly another row's accuracies and losses at every evaluation, with that row.

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
    """Say whether two rows are the same; evaluations are compared only if all selected numbers agree."""

    def numbers(cells: list[tuple[Cell, Selected]]) -> list[object]:
        return [(cell.dataset, cell.trial_seed, cell.test_domain, outcome.accuracy) for cell, outcome in cells]

    def evaluations(cell: Cell, outcome: Selected) -> list[object]:
        model = cell.row.model
        return [(each.accuracy.get(model), each.loss.get(model)) for each in outcome.record.evaluations]

    return numbers(first) == numbers(second) and all(
        evaluations(*one) == evaluations(*other) for one, other in zip(first, second)
    )


def compare(
    selection: Selection, baseline: str = BASELINE, margin: float | None = None, *, dataset: str | None = None
) -> Comparisons:
    """Compare every other row with the baseline of its kind, on the pairs that both have, in the order of tables.

    Empty if the baseline has no number. See docs/statistics.md for the intervals and tests. No torch is imported.

    Args:
        selection: the selected accuracies, as `select` returns them.
        baseline: key or label of a row, such as "coral" or "FGMix (γ = 10)".
        margin: half width of equivalence, in percentage points; None for no test of it.
        dataset: one dataset; None for all.
    """
    if not isinstance(selection, Selection):
        raise bad_value("selection", "a selection, as select returns it", selection)
    check_baseline(selection.labels, baseline)
    check_margin(margin)
    scores = accuracies_by_row(selection, dataset)
    baselines = [row.runs for row in scores if _is_named(selection.labels, row, baseline)]
    if not baselines:
        return Comparisons((), selection.labels)
    twins = copies(selection, dataset)
    comparisons, equivalence = [], {}
    for row in order_rows(selection, dataset=dataset):
        if row not in scores or row.runs in baselines:
            continue
        own = _find_baseline(row, baselines)
        d = paired_differences(scores[row], scores.get(own, {}))
        one = Comparison(row, own, len(d), margin=margin, copy_of=twins.get(row))
        if d:
            mean = MeanDifference(group_domains(d))
            one = replace(one, difference=mean.mean, interval=mean.interval(), new_interval=mean.interval_for_new())
            one = replace(one, shared_steps=0 if row.model == "raw" else _count_shared_steps(selection, one, d))
            equivalence[row] = None if margin is None else mean.test_equivalence(margin)
        comparisons.append(one)
    return Comparisons(_add_tests(comparisons, scores, equivalence), selection.labels)


def check_baseline(labels: Labels, baseline: str) -> None:
    """Raise an error if no row is named so."""
    if not is_row(labels, baseline):
        raise unknown("baseline", baseline, list(dict.fromkeys(row.anywhere.key for row in labels)))


def check_margin(margin: float | None) -> None:
    """Raise an error for a margin that is no difference of accuracies."""
    if margin is not None and not (isinstance(margin, int | float) and 0 < margin <= 100):
        raise bad_value("margin", "percentage points above 0 and at most 100", margin)


def is_row(labels: Labels, name: str) -> bool:
    """Say whether a name is the key or the label of a row."""
    return any(_is_named(labels, row, name) for row in labels)


def _is_named(labels: Labels, row: Row, name: str) -> bool:
    here = row.runs.anywhere
    return name in (here.key, label_row(labels, here))


def _find_baseline(row: Row, baselines: Sequence[Row]) -> Row:
    """Find the baseline of the row's own kind and origin, or of the first origin that has one if its own has none."""
    own = (baseline for baseline in baselines if baseline.origin == row.origin)
    return next(own, baselines[0])._replace(model=row.model)


def _count_shared_steps(selection: Selection, comparison: Comparison, pairs: Iterable[Pair]) -> int:
    """Return the last step up to which both runs of every pair have the same accuracies; 0 if it is not averaged."""
    shared = []
    for dataset, trial, domain in pairs:
        cells = (Cell(dataset, row, trial, domain) for row in (comparison.row, comparison.baseline))
        both = [one.record for one in map(selection.cells.get, cells) if isinstance(one, Selected)]
        first = max(record.spec.averaging_start for record in both)
        same = takewhile(lambda two: two[0].accuracy == two[1].accuracy, zip(*(r.evaluations for r in both)))
        shared.append(
            max((e.step for e, _ in same if comparison.row.model in e.accuracy and e.step >= first), default=0)
        )
        if not shared[-1]:
            return 0
    return min(shared, default=0)


def _add_tests(
    comparisons: Sequence[Comparison],
    scores: Mapping[Row, Mapping[Pair, float]],
    equivalence: Mapping[Row, float | None],
) -> list[Comparison]:
    """Test the comparisons; Holm's family is those with pairs that are not copies."""
    family = [c for c in comparisons if c.pairs and c.copy_of is None]
    d = [np.array([*paired_differences(scores[c.row], scores[c.baseline]).values()]) for c in family]
    p = [wilcoxon(each) for each in d]
    # Wilcoxon's p-value is smallest if all n differences have the same sign, and Holm's correction is monotonic in p.
    smallest = holm([min(1.0, 2.0 ** (1 - c.pairs)) for c in family])
    excluded = {c.row: value for c in family if (value := equivalence[c.row]) is not None}
    equivalent = dict(zip(excluded, holm([*excluded.values()])))
    tests = {
        c.row: replace(
            c,
            p=p_raw,
            p_holm=p_holm,
            smallest=least,
            spread=(spread := float(each.std(ddof=1)) if len(each) > 1 else None),
            detectable=detectable_difference(spread, len(each)),
            detectable_holm=detectable_difference(spread, len(each), ALPHA / len(family)),
            p_equivalent=equivalent.get(c.row),
        )
        for c, each, p_raw, p_holm, least in zip(family, d, p, holm(p), smallest)
    }
    return [tests.get(c.row, c) for c in comparisons]


def paired_differences(x: Mapping[Pair, float], y: Mapping[Pair, float]) -> dict[Pair, float]:
    """Compute d = x − y on the pairs that both have, in a fixed order."""
    return {pair: round(x[pair] - y[pair], DIGITS) for pair in sorted(x.keys() & y.keys())}


def group_domains(d: Mapping[Pair, float]) -> dict[Hashable, Floats]:
    """Group differences by dataset and test domain, for `MeanDifference`."""
    by_domain: dict[tuple[str, str], list[float]] = {}
    for (dataset, _, domain), value in d.items():
        by_domain.setdefault((dataset, domain), []).append(value)
    return {place: np.array(values) for place, values in by_domain.items()}


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


def measure_spread(selection: Selection) -> float:
    """Measure by how much differences from ERM vary between pairs: the median standard deviation over raw rows."""
    compared = compare(selection) if is_row(selection.labels, BASELINE) else ()
    spreads = [c.spread for c in compared if c.row.model == "raw" and c.spread is not None]
    if not spreads:
        raise UserError(
            "Expected records of ERM and another method with two or more trials or test domains in common. Found none. "
            "Give a guess with --spread."
        )
    return median(spreads)
