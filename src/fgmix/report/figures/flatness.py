"""Losses around minima."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.analysis.claims import claims
from fgmix.analysis.limits import flatness_note, flatness_top, standard_error
from fgmix.plots.looks import GREY, method_looks
from fgmix.report.charts import Axis, Band, Chart, Line, Mark, Panel
from fgmix.report.figures.shared import ink, row_title, with_points


def flatness(id: str, rows: Sequence[kinds.Flatness], command: str) -> Chart:
    """A row for each test domain: a panel for each method (directions grey, their mean in colour), then all means."""
    panels = [panel for arrays in rows for panel in _row(arrays, several=len(rows) > 1)]
    caption = [flatness_note(rows), *claims(kinds.Rows.of(rows))]
    columns = len(rows[0].methods) + 1
    return Chart(id, row_title("Flatness", rows), "\n".join(caption), panels, None, command, columns)


def _row(arrays: kinds.Flatness, several: bool) -> list[Panel]:
    apart = f"{arrays.test_domains}: " if several else ""
    ticks = tuple((float(gamma), f"{gamma:g}") for gamma in arrays.gammas if gamma % 2 == 0)
    x = Axis("Distance γ" + (" (% of each filter's norm)" if arrays.scope == "network" else ""), ticks or None)
    y = Axis("(L(φ*) − L(φ′))²", low=0.0, high=flatness_top(arrays))
    panels = []
    together: list[Mark] = []
    looks = method_looks(arrays.algorithms.tolist())
    for method, key, data, gaps in zip(map(str, arrays.methods), arrays.algorithms.tolist(), arrays.data, arrays.gaps):
        colour, mean, error = ink(looks[key].colour), gaps.mean(0), standard_error(gaps)
        grey = [Line("", arrays.gammas, gap, GREY, width=0.5, text=f"direction {i}") for i, gap in enumerate(gaps)]
        line = Line("", arrays.gammas, mean, colour, width=3, text=f"mean of {len(gaps)}")
        panels.append(Panel(f"{apart}{method} ({data})", x, y, [*grey, line]))
        together.append(Band(method, arrays.gammas, np.maximum(mean - error, 0), mean + error, colour))
        together += with_points(method, arrays.gammas, mean, colour, looks[key].marker)
    return [*panels, Panel(f"{apart}all means", x, y, together)]
