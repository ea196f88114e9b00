"""Regions of the classes of the source domains in a plane. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fgmix.analysis.arrays import Embedding, Floats

NAMED = 20  # classes that are named in a figure; more names would cover the codes
KEPT = 0.9  # share of a class's codes, nearest to their median: t-SNE places a few far away, across other classes


def source_regions(arrays: Embedding, panel: int) -> dict[str, Floats]:
    """By class, the convex hull of the central source codes as a closed outline (h + 1, 2).

    Args:
        arrays: codes in the plane.
        panel: which panel.
    """
    is_source = ~np.append(arrays.is_test, True)  # domain −1, a mixed code, is no source
    sources = (arrays.panel == panel) & is_source[arrays.domain]
    regions = {}
    for number, name in enumerate(map(str, arrays.classes)):
        own = arrays.points[sources & (arrays.label == number)]
        if len(own) >= 3:
            regions[name] = outline(nearest(own))
    return {name: found for name, found in regions.items() if len(found)}


def name_places(arrays: Embedding, panel: int) -> dict[str, Floats]:
    """Positions (2,) of the names of a panel's regions, where they cover the fewest codes; none for many regions.

    Panels of one t-SNE have the same regions, with names at the same positions.

    Args:
        arrays: codes in the plane.
        panel: which panel.
    """
    regions = source_regions(arrays, panel)
    if len(regions) > NAMED:
        return {}
    shared = bool((arrays.domain < 0).any())  # mixed codes: one t-SNE for all panels
    points = arrays.points if shared else arrays.points[arrays.panel == panel]
    places: dict[str, Floats] = {}
    for name, corners in regions.items():
        places[name] = _freest(name, corners, points, np.array([*places.values()]).reshape(-1, 2))
    return places


def _freest(name: str, corners: Floats, points: Floats, names: Floats) -> Floats:
    """Of eight positions around a region, the one whose box for the name contains the fewest codes and other names."""
    extent = np.ptp(points, axis=0)
    size = extent * (0.012 + 0.009 * len(name), 0.028)  # half the width and height of the name
    low, high = corners.min(0) - 1.25 * size, corners.max(0) + 1.25 * size
    sides = [(0, 1), (0, -1), (-1, 0), (1, 0), (-1, 1), (1, 1), (-1, -1), (1, -1)]
    candidates = np.array([np.where(np.array(side) < 0, low, np.where(side, high, (low + high) / 2)) for side in sides])

    def covered(place: Floats) -> float:
        inside = (np.abs(points - place) < size).all(1).sum() + 100 * (np.abs(names - place) < 2 * size).all(1).sum()
        inside += 2 * (np.abs(names - place) < 4 * size).all(1).sum()  # adjacent names are ambiguous
        outside = (np.abs(place - (points.min(0) + points.max(0)) / 2) > 0.54 * extent).any()
        return float(inside + 1000 * outside)

    best: Floats = candidates[int(np.argmin([covered(place) for place in candidates]))]
    return best


def nearest(points: Floats) -> Floats:
    """The share `KEPT` of the points (n, 2) that is nearest to their median; at least three."""
    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return points[np.argsort(distance, kind="stable")[: max(3, round(KEPT * len(points)))]]


def outline(points: Floats) -> Floats:
    """The convex hull of points (n, 2) as a closed outline; empty if they are on a line.

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


def codes_note(rows: Sequence[Embedding]) -> str:
    """The caption: outlines and, if there are mixed codes, extrapolation."""
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
        f" In training it was {', '.join(trained)} over the steps before the last evaluation (`fgmix plot curves`): on "
        "training batches, while the weights and the policy still changed."
    )
    return (
        f"{outlines} A mixed code is extrapolated if one of its weights is below 0. The share in a title is that of "
        f"the codes shown, mixed after training.{in_training if trained else ''}"
    )
