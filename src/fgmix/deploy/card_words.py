"""Names chosen by the user, as a model card prints them."""

from __future__ import annotations

from collections.abc import Sequence


def plain(text: str) -> str:
    """Escape a name, so that it cannot break a table, become markup or control a terminal."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


def listed(classes: Sequence[str], most: int = 12) -> str:
    """Class names for a sentence."""
    more = f" and {len(classes) - most} more" if len(classes) > most else ""
    return ", ".join(classes[:most]) + more
