"""Memory of this machine, to check the sizes that files declare."""

from __future__ import annotations

import os


def total_memory() -> int | None:
    """Bytes of physical memory; None if unknown."""
    return _pages("SC_PHYS_PAGES")


def free_memory() -> int | None:
    """Bytes that can be allocated without swapping; None if unknown."""
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return _pages("SC_AVPHYS_PAGES")


def _pages(name: str) -> int | None:
    try:
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
