"""Launchers, which execute the runs of a sweep: on this machine, a Ray cluster or a Slurm cluster.

A launcher is a function (runs, out, report) → outcomes that executes each run with `execute` and reports its outcome.
It need not be reliable: `run_sweeps` launches runs that it has lost again.
"""

from __future__ import annotations

from importlib.util import find_spec

from fgmix.errors import UserError

NAMES = ("local", "ray", "slurm")


def require(module: str, extra: str) -> None:
    """Raise an error that says how to install a launcher's library, if it is missing."""
    found = find_spec(module)
    if found is None or found.origin is None:  # without an origin it is only a folder of that name
        raise UserError(
            f"Expected the library {module}, which the launcher {extra} runs on. It is not installed. "
            f"Run `pip install 'fgmix[{extra}]'`."
        )
