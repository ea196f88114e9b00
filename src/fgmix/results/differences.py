"""Tables of differences from a baseline, and the marks of rows in tables of accuracies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fgmix.records.rows import Labels, label_row
from fgmix.results.intervals import ALPHA, POWER
from fgmix.results.rounding import difference_text, interval_text, p_text, points_text
from fgmix.results.statistics import Comparison, Verdict
from fgmix.results.tables import Entry, Table, TableRow

DIFFERENCES = "Differences from "  # beginning of the table's title
MARKS: dict[Verdict, str] = {"equivalent": "≈", "undecided": "†", "not tested": "‡"}  # in tables
HIGHER, LOWER = "▲", "▼"  # on the page, for significant differences
COVERAGE = f"{100 * (1 - ALPHA):g} %"  # of the intervals


def mark_rows(table: Table, comparisons: Sequence[Comparison]) -> Table:
    """Mark every row of a table that is not significantly different; the caption explains the marks."""
    marks = {c.row: MARKS[c.verdict] for c in comparisons if c.verdict in MARKS}
    rows = tuple(row if row.source else replace(row, mark=marks.get(row.row, "")) for row in table.rows)
    name = name_baseline(comparisons, table.labels)
    level = f"Holm, α = {ALPHA:g}"
    meanings: dict[Verdict, str] = {
        "equivalent": f"{_state_margin(comparisons)} to {name} (two one-sided t tests, {level})",
        "undecided": f"too few trials and test domains to tell it from {name} (Wilcoxon, {level})",
        "not tested": f"not tested against {name} (a copy of another row, or no trial and test domain in common)",
    }
    used = {row.mark for row in rows}
    legend = [f"{MARKS[verdict]}: {meaning}." for verdict, meaning in meanings.items() if MARKS[verdict] in used]
    return replace(table, rows=rows, caption=" ".join([table.caption, *legend]))


def name_baseline(comparisons: Sequence[Comparison], labels: Labels) -> str:
    """Name what rows are compared with, without its folder and its kind of weights."""
    return label_row(labels, comparisons[0].baseline.runs.anywhere) if comparisons else ""


def comparison_table(comparisons: Sequence[Comparison], labels: Labels) -> Table:
    """Make the table of differences from the baseline with their intervals, tests and what they could have found."""
    name, margin = name_baseline(comparisons, labels), comparisons[0].margin
    within = "" if margin is None else f"p (±{margin:g})"
    columns = [
        "difference",
        "new domain",
        "p",
        "p (Holm)",
        "detectable",
        "detectable (Holm)",
        within,
        "pairs",
        "result",
    ]
    rows = tuple(TableRow(c.row, tuple(_make_entries(c, labels))) for c in comparisons)
    averaged = [c for c in comparisons if c.row.model != "raw"]
    parts = [
        f"Difference from {name} in percentage points, paired by trial and test domain: the mean over test domains",
        f"In brackets its {COVERAGE} t interval for these test domains (with other trials)",
        f"New domain: the {COVERAGE} t interval for the expected difference on a new test domain drawn like these",
        "Intervals are not corrected for the number of rows",
        "p: Wilcoxon's signed-rank test. Holm: corrected for all rows that are tested",
        f"Detectable: the difference that as many pairs with this spread find with {100 * POWER:g} % power",
        f"{within}: two one-sided t tests for these test domains, with Holm's correction" if within else "",
        f"Raw weights are compared with raw {name}, averaged weights with averaged {name}" if averaged else "",
    ]
    caption = ". ".join(filter(None, parts)) + "."
    return Table(f"{DIFFERENCES}{name}", caption, tuple(filter(None, columns)), rows, labels, best=False)


def mark_differences(table: Table, comparisons: Sequence[Comparison]) -> Table:
    """Replace the words of the results by marks, which the caption explains, and put the largest difference first.

    For a page, where words of this length would take three lines of every row.
    """
    by_row = {c.row: c for c in comparisons}
    rows = sorted(table.rows, key=lambda row: -(by_row[row.row].difference or 0.0) if row.row in by_row else 0.0)
    shown = tuple(replace(row, entries=row.entries[:-1], mark=_find_mark(by_row[row.row])) for row in rows)
    pairs = sorted({c.pairs for c in comparisons if c.verdict == "undecided"})
    many = " to ".join(str(n) for n in dict.fromkeys([*pairs[:1], *pairs[-1:]]))
    meanings = {
        HIGHER: "significantly better (Wilcoxon, Holm)",
        LOWER: "significantly worse",
        MARKS["equivalent"]: _state_margin(comparisons),
        MARKS["undecided"]: f"cannot be decided with {many} pairs",
        MARKS["not tested"]: "not tested",
    }
    used = {row.mark for row in shown}
    legend = ". ".join(f"{mark}: {meaning}" for mark, meaning in meanings.items() if mark in used)
    caption = f"{legend}. {table.caption}" if legend else table.caption
    return replace(table, rows=shown, columns=table.columns[:-1], caption=caption)


def mark_significant(table: Table, comparisons: Sequence[Comparison]) -> Table:
    """Mark the rows of a table of accuracies that are significantly better or worse, for a page."""
    marks = {c.row: _find_mark(c) for c in comparisons if c.verdict == "different"}
    rows = tuple(row if row.source else replace(row, mark=row.mark or marks.get(row.row, "")) for row in table.rows)
    name, used = name_baseline(comparisons, table.labels), {row.mark for row in rows}
    meanings = {HIGHER: "better", LOWER: "worse"}
    legend = [f"{mark}: significantly {what} than {name}." for mark, what in meanings.items() if mark in used]
    return replace(table, rows=rows, caption=" ".join([table.caption, *legend]))


def _find_mark(c: Comparison) -> str:
    if c.verdict == "different":
        return HIGHER if (c.difference or 0.0) > 0 else LOWER
    return MARKS[c.verdict]


def _make_entries(c: Comparison, labels: Labels) -> Iterator[Entry]:
    text = "" if c.difference is None else difference_text(c.difference, c.interval)
    yield Entry(
        c.difference, text=text, note=" ".join(filter(None, (_explain_interval(c), explain_sharing([c], labels))))
    )
    one = "There is one test domain: no interval for a new one." if c.pairs and not c.new_interval else ""
    yield Entry(text=interval_text(c.new_interval) if c.new_interval else "", note=one)
    for p in (c.p, c.p_holm):
        yield Entry(p, text="" if p is None else p_text(p))
    for points in (c.detectable, c.detectable_holm):
        yield Entry(points, text="" if points is None else points_text(points))
    if c.margin is not None:
        yield Entry(c.p_equivalent, text="" if c.p_equivalent is None else p_text(c.p_equivalent))
    yield Entry(c.pairs, text=str(c.pairs))
    yield Entry(text=describe_verdict(c, labels), note=_describe_reason(c, labels))


def describe_verdict(c: Comparison, labels: Labels) -> str:
    """Write the result of a comparison."""
    name = label_row(labels, c.baseline)
    within = _state_margin([c])
    if c.significant:
        return f"significant difference from {name}" + (f", {within}" if c.equivalent else "")
    if c.equivalent:
        return f"{within} to {name}"
    return f"cannot be decided with {c.pairs} pair{'s' if c.pairs > 1 else ''}" if c.p is not None else "not tested"


def _state_margin(comparisons: Sequence[Comparison]) -> str:
    margin = comparisons[0].margin if comparisons else None
    return "" if margin is None else f"equivalent within ±{margin:g}"


def _explain_interval(c: Comparison) -> str:
    """Say why there is no interval for these test domains; empty if there is one."""
    alone = c.pairs > 0 and c.interval is None
    return (
        "Each test domain has one trial: no interval for these test domains, and no test of equivalence."
        if alone
        else ""
    )


def explain_sharing(comparisons: Sequence[Comparison], labels: Labels) -> str:
    """Say which steps the averages of rows and of their baseline share; empty if none."""
    shared = {label_row(labels, c.baseline): c.shared_steps for c in comparisons if c.shared_steps}
    return " ".join(
        f"Same training as {name} up to step {step} or later: both averages contain these weights, so they differ by "
        "less than methods that differ from the start."
        for name, step in shared.items()
    )


def _describe_reason(c: Comparison, labels: Labels) -> str:
    """Say why there is no test result; empty if there is one."""
    if c.copy_of is not None:
        twin = label_row(labels, c.copy_of)
        return f"identical to {twin} at every evaluation of every run: not tested, and not counted by Holm"
    if c.pairs == 0:
        return f"has no trial and test domain in common with {label_row(labels, c.baseline)}"
    if c.verdict == "undecided" and c.smallest is not None and c.smallest > ALPHA:
        return (
            f"too few pairs: with {c.pairs} the smallest p-value possible is {c.smallest:.3g} after Holm's correction, "
            f"above α = {ALPHA:g}; run more trials"
        )
    return ""
