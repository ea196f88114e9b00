"""Learned compatibility against the cosine."""

from __future__ import annotations

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import method_look
from fgmix.report.charts import Axis, Chart, Panel, Points


def scores(id: str, arrays: kinds.Scores, command: str) -> Chart:
    """A cloud of pairs for each pair of domains."""
    colour = method_look("fgmix").colour
    panels = [
        Panel(
            f"{pair}, ρ = {rho:.2f}",
            Axis(f"Cosine of {arrays.inputs}"),
            Axis("A_ω"),
            [Points("", cosine, score, colour, "o", [f"cosine {c:.3f}, A_ω {s:.3f}" for c, s in zip(cosine, score)])],
        )
        for pair, rho, cosine, score in zip(arrays.pairs, arrays.rho, arrays.cosine, arrays.score)
    ]
    caption = "Learned compatibility and cosine, for pairs of samples of two domains; ρ: Spearman's correlation."
    return Chart(id, "Compatibility and cosine", caption, panels, command=command)
