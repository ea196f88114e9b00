"""Losses around minima."""

from __future__ import annotations

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import GREY, method_looks
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel
from fgmix.report.figures.shared import ink, with_points


def flatness(id: str, arrays: kinds.Flatness, command: str) -> Chart:
    """Losses at a distance from each minimum: all directions in grey, their mean in colour."""
    x = Axis("Distance γ" + (" (% of each filter's norm)" if arrays.scope == "network" else ""))
    y = Axis("(L(φ*) − L(φ′))²", low=0.0, high=float(arrays.gaps.max()) or 1.0)  # one scale for all methods
    panels = []
    together: list[Mark] = []
    looks = method_looks(arrays.algorithms.tolist())
    for method, key, data, gaps in zip(map(str, arrays.methods), arrays.algorithms.tolist(), arrays.data, arrays.gaps):
        look = looks[key]
        grey = [Line("", arrays.gammas, gap, GREY, width=0.5, text=f"direction {i}") for i, gap in enumerate(gaps)]
        mean = Line("", arrays.gammas, gaps.mean(0), ink(look.colour), width=3, text=f"mean of {len(gaps)}")
        panels.append(Panel(f"{method} ({data})", x, y, [*grey, mean]))
        together += with_points(method, arrays.gammas, gaps.mean(0), ink(look.colour), look.marker)
    panels.append(Panel("Means", x, Axis(y.label, low=0.0), together))
    caption = (
        f"{arrays.scope.capitalize()}; {arrays.gaps.shape[1]} random directions in grey, their mean in colour. Lower "
        "is flatter."
    )
    return Chart(id, f"Flatness, test domain {arrays.test_domains}", caption, panels, command=command)
