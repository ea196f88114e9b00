"""Regions of the source domains in a plane, class by class. No torch."""

from __future__ import annotations

import numpy as np

from fgmix.analysis.arrays import Embedding, Floats

NAMED = 20  # classes that are named in a figure; more names would cover the codes
KEPT = 0.9  # of a class's codes: those nearest to its middle. t-SNE puts a few far away, across other classes


def source_regions(arrays: Embedding, panel: int) -> dict[str, Floats]:
    """By class, the convex hull of most of its source codes as a closed outline (h + 1, 2).

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


def name_place(corners: Floats, points: Floats) -> tuple[float, float]:
    """Where the name of a region stands: above it, at a distance that fits the extent of all points."""
    return float(corners[:, 0].mean()), float(corners[:, 1].max() + 0.035 * np.ptp(points[:, 1]))


def nearest(points: Floats) -> Floats:
    """The share `KEPT` of the points (n, 2) that is nearest to their median; at least three."""
    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return points[np.argsort(distance, kind="stable")[: max(3, round(KEPT * len(points)))]]


def outline(points: Floats) -> Floats:
    """The convex hull of points (n, 2) as a closed outline; nothing where they lie on a line.

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


def codes_note(arrays: Embedding) -> str:
    """What a reader must know, of what is there."""
    outlines = (
        f"Outlines: each class of the source domains (convex hull of the central {100 * KEPT:.0f} % of its codes)."
    )
    if not (arrays.domain < 0).any():
        return outlines
    return (
        f"{outlines} A mixed code is extrapolated if one of its weights is below 0; the share is that of the codes "
        "shown. `fgmix plot curves` shows the share of each training batch, a mean over the steps between evaluations."
    )
