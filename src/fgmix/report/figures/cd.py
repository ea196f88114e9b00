"""Average ranks, and what cannot be told apart."""

from __future__ import annotations

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import method_look
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Points
from fgmix.report.figures.shared import INK, ink


def cd(id: str, arrays: kinds.Ranks, command: str) -> Chart:
    """Ranks as points, a row each; bars join what cannot be told apart."""
    labels = [str(method) for method in arrays.methods]
    marks: list[Mark] = []
    for place, (label, rank) in enumerate(zip(labels, arrays.ranks)):
        look = method_look(label)
        marks.append(Points("", [rank], [place], ink(look.colour), look.marker, [f"{label}: average rank {rank:.2f}"]))
    top = -0.4
    for b, (first, last) in enumerate(arrays.cliques):
        top = -0.6 - 0.5 * b
        text = f"cannot be told apart: {', '.join(labels[first : last + 1])}"
        marks.append(Line("", [arrays.ranks[first], arrays.ranks[last]], [top, top], INK, width=4, text=text))
    names = tuple((float(i), name) for i, name in enumerate(labels))
    y = Axis("", names, top - 0.4, len(labels) - 0.4, flipped=True)
    p = "< 0.001" if arrays.p < 0.001 else f"= {arrays.p:.3f}"
    caption = (
        f"Average rank over {arrays.pairs} trials and test domains, the best on the left (Friedman p {p}). Bars join "
        f"methods whose ranks differ by less than {arrays.critical_difference:.2f} (Nemenyi)."
    )
    return Chart(id, "Ranks", caption, [Panel("", Axis("Average rank"), y, marks)], command=command)
