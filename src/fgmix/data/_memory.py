"""How much memory this machine has, for sizes that files announce."""

from __future__ import annotations

import os


def total_memory() -> int | None:
    """Bytes of physical memory; None where the system does not tell."""
    return _pages("SC_PHYS_PAGES")


def free_memory() -> int | None:
    """Bytes that could be taken without swapping; None where the system does not tell."""
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
