"""Durations, parsed from text and formatted as text."""

from __future__ import annotations

import re

from fgmix.errors import UserError

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_duration(text: str) -> float:
    """Seconds of a text such as "8h", "90m", "1.5d", "40s".

    >>> parse_duration("1h30m")
    5400.0
    """
    plain = re.sub(r"\s", "", text.lower())
    parts = re.findall(r"(\d+(?:\.\d+)?)([dhms])", plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain:
        raise UserError(f"Expected a duration such as 8h, 90m or 1h30m. Found {text!r}.")
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def readable_duration(seconds: float) -> str:
    """A duration as text.

    >>> readable_duration(5400), readable_duration(42)
    ('1 h 30 min', '42 s')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:.1f} days"
