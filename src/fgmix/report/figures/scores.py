"""Learned compatibility against the cosine."""

from __future__ import annotations

from fgmix.analysis import arrays as kinds
from fgmix.analysis.claims import claims, rho_interval, rising_pairs
from fgmix.analysis.limits import common_range
from fgmix.plots.looks import method_look
from fgmix.report.charts import Axis, Chart, Panel, Points


def scores(id: str, arrays: kinds.Scores, command: str) -> Chart:
    """A scatter plot for each pair of domains, all on the same axes."""
    colour = method_look("fgmix").colour
    x = Axis(f"Cosine of {arrays.inputs}", None, *common_range(arrays.cosine))
    y = Axis("A_ω", None, *common_range(arrays.score))
    panels = []
    for pair, rho, cosine, score in zip(arrays.pairs, arrays.rho, arrays.cosine, arrays.score):
        low, high = rho_interval(float(rho), len(score))
        texts = [f"cosine {c:.3f}, A_ω {s:.3f}" for c, s in zip(cosine, score)]
        panels.append(
            Panel(
                f"{pair}, ρ = {rho:.2f} [{low:.2f}, {high:.2f}]", x, y, [Points("", cosine, score, colour, "o", texts)]
            )
        )
    caption = [
        "Learned compatibility and cosine, for pairs of samples of two source domains; ρ: Spearman's correlation with "
        "its 95 % interval.",
        claims(arrays)[0],
        f"Test domain {arrays.test_domains}: {rising_pairs(arrays)}.",  # the numbers are the titles of the panels
    ]
    title = f"Compatibility and cosine, test domain {arrays.test_domains}"
    return Chart(id, title, "\n".join(caption), panels, None, command, columns=min(3, len(panels)))
