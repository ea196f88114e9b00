"""Differences from the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from fgmix.plots.looks import GREY, method_look
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Points
from fgmix.report.figures.shared import ink, names_axis
from fgmix.results.statistics import Comparison


def differences(id: str, comparisons: Sequence[Comparison], labels: Sequence[str]) -> Chart:
    """Differences from the baseline with their intervals; what cannot be told from it is pale."""
    known = [(label, c, c.difference) for label, c in zip(labels, comparisons) if c.difference is not None]
    marks: list[Mark] = []
    for place, (label, c, mean) in enumerate(known):
        look = method_look(label)
        low, high = c.interval or (mean, mean)
        sure = "" if c.distinguishable else "; cannot be told from ERM"
        text = f"{label}: {mean:+.2f} points [{low:+.2f}, {high:+.2f}], {c.pairs} pairs{sure}"
        colour = ink(look.colour) if c.distinguishable else GREY
        marks.append(Line("", [low, high], [place, place], colour, width=2, text=text))
        marks.append(Points("", [mean], [place], colour, look.marker, [text]))
    rows = names_axis([label for label, _, _ in known], flipped=True)
    zero = Line("", [0, 0], [-0.5, len(known) - 0.5], GREY, dashed=True, width=1)
    x = Axis("Difference from ERM (percentage points)")
    caption = (
        "Mean difference and its 95 % bootstrap interval over trials and test domains. Grey: cannot be told from ERM "
        "(Wilcoxon, Holm)."
    )
    return Chart(id, "Differences from ERM", caption, [Panel("", x, rows, [zero, *marks])])
