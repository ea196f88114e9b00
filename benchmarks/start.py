"""CPU time of commands that do little, beside that of importing torch: each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.runs import count_cpu

COMMANDS = {
    "import torch": ("-c", "import torch"),
    "fgmix --help": ("-m", "fgmix", "--help"),
    "fgmix list algorithms": ("-m", "fgmix", "list", "algorithms"),
    "fgmix list datasets": ("-m", "fgmix", "list", "datasets"),
    "fgmix doctor": ("-m", "fgmix", "doctor"),
}


def measure_start(*, rounds: int = 5) -> Iterator[tuple[str, list[float]]]:
    """Time each command `rounds` times, in turns; a first round writes bytecode and is not counted."""
    seconds: dict[str, list[float]] = {what: [] for what in COMMANDS}
    for counted in [False] + rounds * [True]:
        for what, arguments in COMMANDS.items():
            before = count_cpu()
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
            if counted:
                seconds[what].append(count_cpu() - before)
    yield from seconds.items()
