"""CSV cells that a spreadsheet does not evaluate as formulas: names in our tables come from other people's files."""

from __future__ import annotations

import re

_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def cell(text: str) -> str:
    """The text as a cell; one that a spreadsheet would evaluate as a formula gets an apostrophe, which makes it text.

    >>> cell("=HYPERLINK(A1)"), cell("-0.5"), cell("mr")
    ("'=HYPERLINK(A1)", '-0.5', 'mr')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
