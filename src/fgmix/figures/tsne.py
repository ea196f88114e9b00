"""t-SNE: latent codes in the plane, with a thumbnail of each sample and an outline of each class of the sources."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fgmix.figures.arrays import Bools, Bytes, Floats, Ints, Texts
from fgmix.figures.description import Axis, Chart, Line, Mark, Panel, Pictures, Points, Words, title_rows
from fgmix.figures.looks import GREY, MIXED_LOOKS, assign_domain_looks

NO_AXIS = Axis(ticks=())
PICTURES_PER_ROW = 32
NAMED = 20  # classes that are named in a figure; more names would cover the codes
KEPT = 0.9  # share of a class's codes, nearest to their median: t-SNE places a few far away, across other classes


@dataclass(frozen=True, eq=False)
class Embedding:
    """Latent codes in the plane, in panels."""

    panels: Texts  # titles of the panels (p,)
    domains: Texts  # names of all of the dataset's domains (k,)
    is_test: Bools  # which of them were held out (k,)
    classes: Texts  # names of the classes
    points: Floats  # coordinates (n, 2)
    panel: Ints  # panel of each point (n,)
    domain: Ints  # its domain (n,); −1 for a mixed code
    label: Ints  # its class (n,)
    sample: Ints  # its number within the domain (n,); −1 for a mixed code
    # Small pictures of the samples (t, s, s, 3); none if samples are not images
    thumbnails: Bytes = field(default_factory=lambda: np.zeros((0, 1, 1, 3), dtype=np.uint8))
    thumbnail: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # its thumbnail (n,); −1 for none
    # Whether it is a mixed code with a weight below 0 (n,)
    extrapolates: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    # Share of extrapolated codes in training, over the steps before the last evaluation; NaN if nothing was mixed
    trained_share: float = float("nan")

    def extrapolated(self, panel: int) -> float:
        """Compute the share of extrapolations among the mixed codes of a panel; NaN without mixed codes."""
        mixed = (self.panel == panel) & (self.domain < 0)
        return float(self.extrapolates[mixed].mean()) if mixed.any() else float("nan")

    @property
    def test_domains(self) -> str:
        """The domains held out, in words."""
        return " and ".join(self.domains[self.is_test])


def describe_embedding(rows: Sequence[Embedding]) -> Chart:
    """Describe a row for each test domain, a panel for each set of codes; colour and marker show the domain."""
    thumbnails = [arrays.thumbnails for arrays in rows]
    same_size = len({each.shape[1:] for each in thumbnails}) == 1
    pictures = join_pictures(np.concatenate(thumbnails)) if same_size else None
    first = np.cumsum([0, *(len(each) for each in thumbnails)])
    several = len(rows) > 1
    panels = [
        Panel(_title_panel(arrays, i, several), NO_AXIS, NO_AXIS, _describe_codes(arrays, i, int(start), several))
        for arrays, start in zip(rows, first)
        for i in range(len(arrays.panels))
    ]
    caption = [
        "t-SNE of latent codes: neighbours are similar, distances between clusters mean little. "
        f"{_write_caption(rows)}",
        "Hover over a point to see its sample, highlighted in every panel." if pictures else "",
    ]
    title = title_rows("Latent codes", rows)
    return Chart(title, "\n".join(filter(None, caption)), panels, len(rows[0].panels), pictures)


def _title_panel(arrays: Embedding, i: int, several: bool) -> str:
    share = arrays.extrapolated(i)
    title = f"{arrays.test_domains}: {arrays.panels[i]}" if several else str(arrays.panels[i])
    return title + ("" if np.isnan(share) else f" ({100 * share:.1f} % extrapolated)")


def _describe_codes(arrays: Embedding, panel: int, first: int, several: bool) -> list[Mark]:
    """Describe the marks of a panel; `first` is the number of the first picture of its row."""
    here = arrays.panel == panel
    mixed = here & (arrays.domain < 0)
    keys = arrays.thumbnail if len(arrays.thumbnail) else np.full(len(arrays.points), -1)
    keys = np.where(keys < 0, -1, keys + first)
    groups = []
    for d, (name, look) in enumerate(assign_domain_looks(arrays.domains.tolist()).items()):
        test = bool(arrays.is_test[d])
        label = f"{name} (test)" if test and not several else name  # else the titles name it
        groups.append((label, here & (arrays.domain == d), look, bool(mixed.any()) and not test))
    if mixed.any():
        kinds = zip(MIXED_LOOKS.items(), (~arrays.extrapolates, arrays.extrapolates))
        groups += [(name, mixed & of_kind, look, False) for (name, look), of_kind in kinds]
    marks: list[Mark] = []
    for name, at, look, faint in groups:
        where = np.flatnonzero(at)
        x, y = arrays.points[where].T
        texts = [_describe_code(arrays, int(i), name) for i in where]
        marks.append(Points(name, x, y, look.ink, look.marker, texts, keys[where], faint))
    return [*marks, *_describe_regions(arrays, panel)]


def _describe_code(arrays: Embedding, i: int, name: str) -> str:
    label = arrays.classes[arrays.label[i]]
    return f"{name} code of class {label}" if arrays.domain[i] < 0 else f"{label}, {name}, sample {arrays.sample[i]}"


def _describe_regions(arrays: Embedding, panel: int) -> list[Mark]:
    """Describe the outline and the name of each class of the sources."""
    outlines = [Line("", c[:, 0], c[:, 1], GREY, width=1) for c in outline_classes(arrays, panel).values()]
    names = place_names(arrays, panel)
    if not names:
        return [*outlines]
    x, y = np.array([*names.values()]).T
    return [*outlines, Words(x, y, list(names))]


def _write_caption(rows: Sequence[Embedding]) -> str:
    """Write what the outlines are and, if there are mixed codes, what extrapolation is."""
    outlines = (
        f"Outlines: each class of the source domains (convex hull of the central {100 * KEPT:.0f} % of its codes)."
    )
    if not any((arrays.domain < 0).any() for arrays in rows):
        return outlines
    trained = [
        f"{100 * arrays.trained_share:.1f} %" + (f" ({arrays.test_domains})" if len(rows) > 1 else "")
        for arrays in rows
        if np.isfinite(arrays.trained_share)
    ]
    in_training = (
        f" In training it was {', '.join(trained)} over the steps before the last evaluation: on "
        "training batches, while the weights and the policy still changed."
    )
    return (
        f"{outlines} A mixed code is extrapolated if one of its weights is below 0. The share in a title is that of "
        f"the codes shown, mixed after training.{in_training if trained else ''}"
    )


def outline_classes(arrays: Embedding, panel: int) -> dict[str, Floats]:
    """Compute, by class, the convex hull of the central source codes of a panel as a closed outline (h + 1, 2)."""
    is_source = ~np.append(arrays.is_test, True)  # domain −1, a mixed code, is no source
    sources = (arrays.panel == panel) & is_source[arrays.domain]
    regions = {}
    for number, name in enumerate(map(str, arrays.classes)):
        own = arrays.points[sources & (arrays.label == number)]
        if len(own) >= 3:
            regions[name] = outline(keep_nearest(own))
    return {name: corners for name, corners in regions.items() if len(corners)}


def place_names(arrays: Embedding, panel: int) -> dict[str, Floats]:
    """Choose a position (2,) for the name of each region, where it covers the fewest codes; none for many regions.

    Panels of one t-SNE have the same regions, with names at the same positions.
    """
    regions = outline_classes(arrays, panel)
    if len(regions) > NAMED:
        return {}
    shared = bool((arrays.domain < 0).any())  # mixed codes: one t-SNE for all panels
    points = arrays.points if shared else arrays.points[arrays.panel == panel]
    places: dict[str, Floats] = {}
    for name, corners in regions.items():
        places[name] = _find_freest(name, corners, points, np.array([*places.values()]).reshape(-1, 2))
    return places


def _find_freest(name: str, corners: Floats, points: Floats, names: Floats) -> Floats:
    """Find, of eight positions around a region, the one whose box for the name has the fewest codes and other names."""
    extent = np.ptp(points, axis=0)
    size = extent * (0.012 + 0.009 * len(name), 0.028)  # half the width and height of the name
    low, high = corners.min(0) - 1.25 * size, corners.max(0) + 1.25 * size
    sides = [(0, 1), (0, -1), (-1, 0), (1, 0), (-1, 1), (1, 1), (-1, -1), (1, -1)]
    candidates = np.array([np.where(np.array(side) < 0, low, np.where(side, high, (low + high) / 2)) for side in sides])

    def count_covered(place: Floats) -> float:
        inside = (np.abs(points - place) < size).all(1).sum() + 100 * (np.abs(names - place) < 2 * size).all(1).sum()
        inside += 2 * (np.abs(names - place) < 4 * size).all(1).sum()  # adjacent names are ambiguous
        outside = (np.abs(place - (points.min(0) + points.max(0)) / 2) > 0.54 * extent).any()
        return float(inside + 1000 * outside)

    best: Floats = candidates[int(np.argmin([count_covered(place) for place in candidates]))]
    return best


def keep_nearest(points: Floats) -> Floats:
    """Keep the share `KEPT` of the points (n, 2) that is nearest to their median; at least three."""
    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return points[np.argsort(distance, kind="stable")[: max(3, round(KEPT * len(points)))]]


def outline(points: Floats) -> Floats:
    """Compute the convex hull of points (n, 2) as a closed outline; empty if they are on a line.

    >>> outline(np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]])).shape
    (5, 2)
    """
    from scipy.spatial import ConvexHull, QhullError

    try:
        corners = ConvexHull(points).vertices
    except QhullError:
        return np.zeros((0, 2))
    closed: Floats = points[np.append(corners, corners[0])]
    return closed


def join_pictures(thumbnails: Any) -> Pictures | None:
    """Join all thumbnails (n, s, s, 3) into one PNG; None for none."""
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
