"""Average ranks, and the groups without a significant difference."""

from __future__ import annotations

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import method_looks
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Points
from fgmix.report.figures.shared import INK, ink
from fgmix.results.rounding import p_equation, rank_text


def cd(id: str, arrays: kinds.Ranks, command: str) -> Chart:
    """Ranks as points, one row per method; bars join methods without a significant difference."""
    labels = [str(method) for method in arrays.methods]
    marks: list[Mark] = []
    looks = method_looks(arrays.algorithms.tolist())
    for place, (label, key, rank) in enumerate(zip(labels, arrays.algorithms.tolist(), arrays.ranks)):
        text = f"{label}: average rank {rank_text(rank)}"
        marks.append(Points("", [rank], [place], ink(looks[key].colour), looks[key].marker, [text]))
    top = -0.4
    for b, (first, last) in enumerate(arrays.cliques):
        top = -0.6 - 0.5 * b
        text = f"no significant difference: {', '.join(labels[first : last + 1])}"
        marks.append(Line("", [arrays.ranks[first], arrays.ranks[last]], [top, top], INK, width=4, text=text))
    names = tuple((float(i), f"{name} ({rank_text(rank)})") for i, (name, rank) in enumerate(zip(labels, arrays.ranks)))
    y = Axis("", names, top - 0.4, len(labels) - 0.4, flipped=True)
    joined = "Bars join methods without a significant difference, whose ranks differ by less than"
    alone = "Ranks that differ by less than this are not significantly different:"
    caption = (
        f"Average rank over {arrays.pairs} trials and test domains, the best on the left (Friedman, "
        f"{p_equation(arrays.p)}). {joined if len(arrays.cliques) else alone} "
        f"{rank_text(arrays.critical_difference)} (Nemenyi). {arrays.not_ranked}"
    ).strip()
    return Chart(id, "Ranks", caption, [Panel("", Axis("Average rank"), y, marks)], command=command)
