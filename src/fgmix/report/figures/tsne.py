"""Latent codes in the plane, with a thumbnail of each sample."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.analysis.hulls import codes_note, name_places, source_regions
from fgmix.plots.looks import EXTRAPOLATED, GREY, INTERPOLATED, domain_looks
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Pictures, Points, Words
from fgmix.report.figures.shared import ink, row_title

NO_AXIS = Axis(ticks=())
PICTURES_PER_ROW = 32


def tsne(id: str, rows: Sequence[kinds.Embedding], command: str) -> Chart:
    """A row for each test domain, a panel for each set of codes."""
    thumbnails = [arrays.thumbnails for arrays in rows]
    shown = pictures(np.concatenate(thumbnails)) if len({each.shape[1:] for each in thumbnails}) == 1 else None
    first = np.cumsum([0, *(len(each) for each in thumbnails)])
    panels = [
        Panel(_panel_title(arrays, i, len(rows) > 1), NO_AXIS, NO_AXIS, _embedded(arrays, i, int(start), len(rows) > 1))
        for arrays, start in zip(rows, first)
        for i in range(len(arrays.panels))
    ]
    caption = [
        "t-SNE of latent codes: neighbours are similar, distances between clusters mean little.",
        codes_note(rows),
        "Hover over a point to see its sample, highlighted in every panel." if shown else "",
    ]
    title = row_title("Latent codes", rows)
    return Chart(id, title, " ".join(filter(None, caption)), panels, shown, command, len(rows[0].panels))


def _panel_title(arrays: kinds.Embedding, i: int, several: bool) -> str:
    share = arrays.extrapolated(i)
    title = f"{arrays.test_domains}: {arrays.panels[i]}" if several else str(arrays.panels[i])
    return title + ("" if np.isnan(share) else f" ({100 * share:.1f} % extrapolated)")


def _embedded(arrays: kinds.Embedding, panel: int, first: int, several: bool) -> list[Mark]:
    """The marks of a panel; `first` is the number of the first picture of its row."""
    here = arrays.panel == panel
    mixed = here & (arrays.domain < 0)
    keys = arrays.thumbnail if len(arrays.thumbnail) else np.full(len(arrays.points), -1)
    keys = np.where(keys < 0, -1, keys + first)
    marks: list[Mark] = []

    def add(name: str, at: Any, what: Callable[[int], str], colour: str, marker: str, faint: bool) -> None:
        where = np.flatnonzero(at)
        x, y = arrays.points[where].T
        marks.append(Points(name, x, y, colour, marker, [what(int(i)) for i in where], keys[where], faint))

    for d, (name, look) in enumerate(domain_looks(arrays.domains.tolist()).items()):
        test = bool(arrays.is_test[d])
        label = f"{name} (test)" if test and not several else name  # else the titles name it

        def what(i: int, label: str = label) -> str:
            return f"{arrays.classes[arrays.label[i]]}, {label}, sample {arrays.sample[i]}"

        add(label, here & (arrays.domain == d), what, ink(look.colour), look.marker, bool(mixed.any()) and not test)
    if mixed.any():
        for kind, of_kind in ((INTERPOLATED, ~arrays.extrapolates), (EXTRAPOLATED, arrays.extrapolates)):

            def mixed_code(i: int, kind: str = kind.name) -> str:
                return f"{kind} code of class {arrays.classes[arrays.label[i]]}"

            add(kind.name, mixed & of_kind, mixed_code, ink(kind.colour), kind.marker, False)
    return [*marks, *_regions(arrays, panel)]


def _regions(arrays: kinds.Embedding, panel: int) -> list[Mark]:
    """The outline and the name of each class of the sources."""
    outlines = [Line("", c[:, 0], c[:, 1], GREY, width=1) for c in source_regions(arrays, panel).values()]
    names = name_places(arrays, panel)
    if not names:
        return [*outlines]
    x, y = np.array([*names.values()]).T
    return [*outlines, Words(x, y, list(names))]


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
