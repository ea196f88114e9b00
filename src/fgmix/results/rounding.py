"""Rounding of printed numbers: all tables, pages and figures use it, so that a number is printed the same everywhere.

Numbers are rounded once, from the full value, to the nearest decimal; ties are rounded to the even digit, as in Python
and in DomainBed's tables. Nothing else in the package or in the report's script may round an accuracy: a second
rounding (62.249 → 62.25 → 62.3) or another rule for ties (JavaScript rounds 62.25 up) would print another number.
"""

from __future__ import annotations

DASH = "–"  # for a missing number


def accuracy_text(percent: float, spread: float | None = None) -> str:
    """Write an accuracy in percent with one decimal, and its spread if it has one; a rounded zero has no sign.

    >>> accuracy_text(62.25), accuracy_text(62.35), accuracy_text(62.249, 0.75), accuracy_text(-0.04)
    ('62.2', '62.4', '62.2 ± 0.8', '0.0')
    """
    return f"{percent:z.1f}" if spread is None else f"{percent:z.1f} ± {spread:.1f}"


def difference_text(points: float, interval: tuple[float, float] | None = None) -> str:
    """Write a difference of accuracies in percentage points, and its interval; a rounded zero has no sign.

    >>> difference_text(1.25, (-0.04, 3.0))
    '+1.2 [0.0, +3.0]'
    """
    if interval is None:
        return f"{points:+.1f}" if round(points, 1) else "0.0"
    return f"{difference_text(points)} {interval_text(interval)}"


def interval_text(interval: tuple[float, float]) -> str:
    """Write the interval of a difference.

    >>> interval_text((-0.04, 3.0))
    '[0.0, +3.0]'
    """
    low, high = map(difference_text, interval)
    return f"[{low}, {high}]"


def points_text(points: float) -> str:
    """Write percentage points without a sign, such as a detectable difference: two digits where one would be 0.

    >>> points_text(1.83), points_text(0.5), points_text(0.04)
    ('1.8', '0.5', '0.04')
    """
    return f"{points:.1f}" if points >= 0.1 or not points else f"{points:.2g}"


def p_text(p: float) -> str:
    """Write a p-value with three decimals.

    >>> p_text(0.0342), p_text(0.0002)
    ('0.034', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_equation(p: float) -> str:
    """Write a p-value in a sentence.

    >>> p_equation(0.0342), p_equation(0.0002)
    ('p = 0.034', 'p < 0.001')
    """
    return f"p {'' if p < 0.001 else '= '}{p_text(p)}"


def rank_text(rank: float) -> str:
    """Write an average rank, or a difference of two.

    >>> rank_text(1.375)
    '1.38'
    """
    return f"{rank:.2f}"


def ratio_text(ratio: float) -> str:
    """Write a ratio of two times.

    >>> ratio_text(1.098)
    '1.10'
    """
    return f"{ratio:.2f}"
