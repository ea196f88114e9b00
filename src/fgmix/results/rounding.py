"""How numbers and settings are printed: the same in all tables, pages and figures.

Numbers are rounded once, from the full value, to the nearest decimal; ties are rounded to the even digit, as in Python
and in DomainBed's tables. Nothing else in the package or in the report's script may round an accuracy: a second
rounding (62.249 → 62.25 → 62.3) or another rule for ties (JavaScript rounds 62.25 up) would print another number.
"""

from __future__ import annotations

import re
from typing import Any

from fgmix.records.digests import digest_of

DASH = "–"  # for a missing number
SYMBOLS = {"alpha": "α", "lam": "λ₀"}  # the paper's symbols of settings
_NEGATIVE = re.compile(r"(?<![^\s(\[=])-(?=\d)")


def typeset(text: str) -> str:
    """Replace hyphens before numbers by minus signs, where a person reads them: on the page and in figures.

    >>> typeset("-0.1 [-0.4, +0.2], ResNet-50")
    '−0.1 [−0.4, +0.2], ResNet-50'
    """
    return _NEGATIVE.sub("−", text)


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


def two_decimals(number: float) -> str:
    """Write a ratio of two times, an average rank or a difference of ranks.

    >>> two_decimals(1.098), two_decimals(1.375)
    ('1.10', '1.38')
    """
    return f"{number:.2f}"


def format_setting(name: str, value: Any) -> str:
    """Print a setting with its value.

    >>> format_setting("alpha", 0.1)
    'α = 0.1'
    """
    return f"{SYMBOLS.get(name, name)} = {format_value(value)}"


def format_value(value: Any) -> str:
    """Print the value of a setting.

    >>> format_value(("alarm clock", "dog")), format_value("")
    ('alarm clock, dog', 'default')
    """
    if value in ("", ()):
        return "default"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        text = ", ".join(map(str, value))
        # hundreds of class names that differ in a few of them: a digest tells them apart
        return text if len(text) <= 40 else f"{text[:30]}… ({digest_of(text.encode())[:6]})"
    return f"{value:g}" if isinstance(value, float) else str(value)
