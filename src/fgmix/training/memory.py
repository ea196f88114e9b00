"""Memory of freed tensors, kept for the next ones."""

from __future__ import annotations

import ctypes
import os
import sys

KEPT = 1 << 30  # bytes of freed memory that a process keeps


def keep_freed_memory() -> None:
    """Let this process and its workers use freed memory for the next tensors, and huge pages for large ones.

    By default large tensors are freed to the kernel, which clears every page of a new one: a third of the time of an
    evaluation on a CPU. glibc reads the variables when a process starts, so that here it is told by a call.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    tell = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None  # glibc alone has it
    for name, parameter in (("MALLOC_MMAP_THRESHOLD_", -3), ("MALLOC_TRIM_THRESHOLD_", -1)):
        if tell and name not in os.environ:
            os.environ[name] = str(KEPT)
            tell(parameter, KEPT)
