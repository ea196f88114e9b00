"""Limits of axes that panels share, robust to outliers. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fgmix.analysis.arrays import Flatness, Floats

STRETCH = 4.0  # upper limit of an axis, times the median of the curves' maxima


def robust_top(tops: Sequence[float]) -> float:
    """The upper limit of an axis for curves with these maxima: the highest, at most `STRETCH` times the median.

    >>> robust_top([1.0, 2.0, 3.0]), robust_top([1.0, 2.0, 300.0])
    (3.0, 8.0)
    """
    finite = [top for top in tops if np.isfinite(top)]
    if not finite:
        return 1.0
    return float(min(max(finite), STRETCH * float(np.median(finite)))) or float(max(finite)) or 1.0


def flatness_top(arrays: Flatness) -> float:
    """Upper limit of the axis that all panels of a test domain share: robust over directions, then over methods."""
    return 1.05 * robust_top([robust_top(gaps.max(1).tolist()) for gaps in arrays.gaps])


def standard_error(gaps: Floats) -> Floats:
    """Standard error of the mean over directions, of gaps (directions, g); 0 for one direction."""
    error: Floats = gaps.std(0) / np.sqrt(max(1, len(gaps) - 1))
    return error


def flatness_note(rows: Sequence[Flatness]) -> str:
    """The caption: what is shown, and what is cut off."""
    tops = [flatness_top(arrays) for arrays in rows]
    cut = {
        str(method): None
        for arrays, top in zip(rows, tops)
        for method, gaps in zip(arrays.methods, arrays.gaps)
        if float(gaps.max()) > top
    }
    above = f" Directions above it are cut: {', '.join(cut)}." if cut else ""
    return (
        f"{rows[0].scope.capitalize()}; lower is flatter. Grey: {rows[0].gaps.shape[1]} random directions; colour: "
        "their mean; band: its standard error. Panels of a row share an axis, which an outlier does not "
        f"stretch.{above}"
    )


def same_span(value: Floats, spread: Floats) -> Floats:
    """A range for each column of numbers with their ± (c, 2), all of one length, so that differences can be compared.

    >>> same_span(np.array([[50.0, 60.0], [54.0, 61.0]]), np.zeros((2, 2))).tolist()
    [[49.6, 54.4], [58.1, 62.9]]
    """
    ends = [
        (np.nanmin(column - reach), np.nanmax(column + reach)) if np.isfinite(column).any() else (0.0, 0.0)
        for column, reach in zip(value.T, np.nan_to_num(spread).T)
    ]
    low, high = np.array(ends).T
    half = 0.6 * max(1.0, float((high - low).max()))
    middle = (low + high) / 2
    return np.stack([middle - half, middle + half], 1)


def common_range(values: Floats) -> tuple[float, float]:
    """One range for all panels, with a margin."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin
