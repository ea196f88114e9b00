"""Differences from ERM, from the comparisons of a report; nothing is saved."""

from __future__ import annotations

from collections.abc import Sequence

from fgmix.figures.description import Axis, Chart, Line, Mark, Panel, Points, list_names, to_ink
from fgmix.figures.looks import GREY, assign_looks
from fgmix.records.rows import Labels, label_row
from fgmix.results.rounding import difference_text
from fgmix.results.statistics import Comparison


def describe_differences(comparisons: Sequence[Comparison], labels: Labels) -> Chart:
    """Describe differences from ERM of the same kind with their intervals; grey where they are not significant."""
    known = [(label_row(labels, c.row), c, c.difference) for c in comparisons if c.difference is not None]
    looks = assign_looks(c.row.anywhere.key for c in comparisons)
    marks: list[Mark] = []
    for place, (label, c, mean) in enumerate(known):
        look = looks[c.row.anywhere.key]
        low, high = c.interval or (mean, mean)
        result = "significant difference" if c.significant else c.verdict
        text = f"{label}: {difference_text(mean, c.interval)} points, {c.pairs} pairs; {result}"
        colour = to_ink(look.colour) if c.significant else GREY
        marks.append(Line("", [low, high], [place, place], colour, width=2, text=text))
        marks.append(Points("", [mean], [place], colour, look.marker, [text]))
    rows = list_names([label for label, _, _ in known], flipped=True)
    zero = Line("", [0, 0], [-0.5, len(known) - 0.5], GREY, dashed=True, width=1)
    x = Axis("Difference from ERM (percentage points)")
    averaged = (
        "; averaged weights are compared with averaged ERM" if any(c.row.model != "raw" for _, c, _ in known) else ""
    )
    grey = any(not c.significant for _, c, _ in known)
    caption = (
        f"Mean difference and its 95 % bootstrap interval over trials and test domains{averaged}."
        f"{' Grey: no significant difference (Wilcoxon, Holm), or not tested.' if grey else ''}"
    )
    return Chart("Differences from ERM", caption, [Panel("", x, rows, [zero, *marks])])
