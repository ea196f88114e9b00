"""Everything that works on records imports neither torch nor scipy: a laptop rebuilds every table at once."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "domainbed",
    "durations",
    "formats",
    "grids",
    "hparams",
    "labels",
    "published",
    "reporting",
    "selection",
    "statistics",
    "status",
    "sweep_folder",
    "tables",
)


def test_no_torch() -> None:
    code = (
        "import sys\n"
        + "\n".join(f"import fgmix.results.{name}" for name in MODULES)
        + "\nprint(sorted({'torch', 'scipy', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
