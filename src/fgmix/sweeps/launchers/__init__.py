"""Where the runs of a sweep are executed: this machine, a Ray cluster, a Slurm cluster.

A launcher is a function (runs, out, report) → outcomes that executes each run with `execute` and reports what became
of it. It need not be careful: what it loses, `run_sweeps` finds missing and gives it again.
"""

from __future__ import annotations

from importlib.util import find_spec

from fgmix.errors import UserError

NAMES = ("local", "ray", "slurm")


def require(module: str, extra: str) -> None:
    """Say how to get a launcher's library if it is not installed."""
    found = find_spec(module)
    if found is None or found.origin is None:  # without an origin it is a mere folder of that name
        raise UserError(
            f"Expected the library {module}, which the launcher {extra} runs on. It is not installed. "
            f"Run `pip install 'fgmix[{extra}]'`."
        )
