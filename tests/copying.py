"""`copy.replace` of Python 3.13, for dataclasses and Structs alike."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import msgspec

T = TypeVar("T")


def replace(value: T, **changes: object) -> T:
    """Return a copy with some fields changed."""
    return (msgspec.structs if isinstance(value, msgspec.Struct) else dataclasses).replace(value, **changes)
