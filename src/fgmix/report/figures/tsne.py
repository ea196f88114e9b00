"""Latent codes in the plane, with a thumbnail of each sample."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import domain_looks
from fgmix.report.charts import Axis, Chart, Mark, Panel, Pictures, Points
from fgmix.report.figures.shared import INK, ink

NO_AXIS = Axis(ticks=())
PICTURES_PER_ROW = 32


def tsne(id: str, arrays: kinds.Embedding, command: str) -> Chart:
    """A panel for each set of codes."""
    panels = [
        Panel(_panel_title(arrays, i), NO_AXIS, NO_AXIS, _embedded(arrays, arrays.panel == i))
        for i in range(len(arrays.panels))
    ]
    caption = (
        "t-SNE of latent codes: neighbours are similar, distances between clusters mean little. Hover over a point to "
        "see its sample, highlighted in every panel."
    )
    return Chart(id, "Latent codes", caption, panels, pictures(arrays.thumbnails), command)


def _panel_title(arrays: kinds.Embedding, i: int) -> str:
    share = arrays.extrapolated[i]
    return str(arrays.panels[i]) + ("" if np.isnan(share) else f" ({100 * share:.1f} % extrapolated)")


def _embedded(arrays: kinds.Embedding, here: Any) -> list[Mark]:
    mixed = here & (arrays.domain < 0)
    keys = arrays.thumbnail if len(arrays.thumbnail) else np.full(len(arrays.points), -1)
    marks: list[Mark] = []

    def add(name: str, at: Any, what: Callable[[int], str], colour: str, marker: str, faint: bool) -> None:
        where = np.flatnonzero(at)
        x, y = arrays.points[where].T
        marks.append(Points(name, x, y, colour, marker, [what(int(i)) for i in where], keys[where], faint))

    for d, (name, look) in enumerate(domain_looks(arrays.domains.tolist()).items()):
        test = bool(arrays.is_test[d])
        label = f"{name} (test)" if test else name

        def what(i: int, label: str = label) -> str:
            return f"{arrays.classes[arrays.label[i]]}, {label}, sample {arrays.sample[i]}"

        add(label, here & (arrays.domain == d), what, ink(look.colour), look.marker, bool(mixed.any()) and not test)
    if mixed.any():
        add("mixed", mixed, lambda i: f"mixed code of class {arrays.classes[arrays.label[i]]}", INK, "x", False)
    return marks


def pictures(thumbnails: Any) -> Pictures | None:
    """All thumbnails (n, s, s, 3) as one PNG; None for none."""
    from PIL import Image

    if not len(thumbnails):
        return None
    n, side = thumbnails.shape[:2]
    rows = -(-n // PICTURES_PER_ROW)
    sheet = np.zeros((rows * PICTURES_PER_ROW, side, side, 3), dtype=np.uint8)
    sheet[:n] = thumbnails
    sheet = sheet.reshape(rows, PICTURES_PER_ROW, side, side, 3).swapaxes(1, 2)
    file = io.BytesIO()
    Image.fromarray(sheet.reshape(rows * side, PICTURES_PER_ROW * side, 3)).save(file, "png", optimize=True)
    return Pictures(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}", side, PICTURES_PER_ROW)
