"""Differences from ERM in tables: a mark after every row without a significant one, and a separate table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fgmix.records.rows import Labels, label_row
from fgmix.results.rounding import difference_text, p_text
from fgmix.results.statistics import Comparison, Verdict
from fgmix.results.tables import Entry, Table, TableRow

DIFFERENCES = "Differences from ERM"  # title of the table
MARKS: dict[Verdict, str] = {"not significant": "≈", "too few pairs": "†", "not tested": "‡"}  # in tables


def marked(table: Table, comparisons: Sequence[Comparison]) -> Table:
    """The table with a mark after every row without a significant difference from ERM; the caption explains it."""
    marks = {c.row: MARKS[c.verdict] for c in comparisons if c.verdict in MARKS}
    rows = tuple(
        replace(row, mark=marks[row.row]) if row.row in marks and not row.source else row for row in table.rows
    )
    level = f"Holm, α = {comparisons[0].alpha:g}" if comparisons else ""
    meanings: dict[Verdict, str] = {
        "not significant": f"no significant difference from ERM (Wilcoxon over trials and test domains, {level})",
        "too few pairs": f"too few trials and test domains for a significant difference from ERM (Wilcoxon, {level})",
        "not tested": "not tested against ERM (a copy of another row, or no trial and test domain in common)",
    }
    used = {row.mark for row in rows}
    legend = [f"{MARKS[verdict]}: {meaning}." for verdict, meaning in meanings.items() if MARKS[verdict] in used]
    return replace(table, rows=rows, caption=" ".join([table.caption, *legend]))


def comparison_table(comparisons: Sequence[Comparison], labels: Labels) -> Table:
    """Differences from ERM with their intervals and p-values."""
    rows = tuple(
        TableRow(
            c.row,
            (
                Entry(c.difference, text="" if c.difference is None else difference_text(c.difference, c.interval)),
                Entry(c.p, text="" if c.p is None else p_text(c.p)),
                Entry(c.p_holm, text="" if c.p_holm is None else p_text(c.p_holm)),
                Entry(c.pairs, text=str(c.pairs)),
                Entry(text=_verdict_text(c, labels), note=_note(c, labels)),
            ),
        )
        for c in comparisons
    )
    coverage = f"{100 * (1 - comparisons[0].alpha):g} %" if comparisons else ""
    caption = (
        f"Difference from ERM in percentage points, paired by trial and test domain, with its {coverage} bootstrap "
        "interval (BCa). Raw weights are compared with raw ERM, averaged weights with averaged ERM. p: Wilcoxon's "
        "signed-rank test. Holm: p corrected for all rows that are tested."
    )
    columns = ("difference", "p", "p (Holm)", "pairs", "result")
    return Table(DIFFERENCES, caption, columns, rows, labels, best=False)


def _verdict_text(comparison: Comparison, labels: Labels) -> str:
    name = label_row(labels, comparison.baseline)
    return {
        "different": f"significant difference from {name}",
        "not significant": f"no significant difference from {name}",
        "too few pairs": "too few pairs",
        "not tested": "not tested",
    }[comparison.verdict]


def _note(comparison: Comparison, labels: Labels) -> str:
    """Why there is no test result; empty if there is one."""
    if comparison.copy_of is not None:
        twin = label_row(labels, comparison.copy_of)
        return f"identical to {twin} at every evaluation of every run: not tested, and not counted by Holm"
    if comparison.pairs == 0:
        return f"has no trial and test domain in common with {label_row(labels, comparison.baseline)}"
    if comparison.verdict == "too few pairs":
        return (
            f"too few pairs: with {comparison.pairs} the smallest p-value possible is {comparison.smallest:.3g} after "
            f"Holm's correction, above α = {comparison.alpha:g}; run more trials"
        )
    return ""
