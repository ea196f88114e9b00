"""Whatever works on records imports neither torch nor scipy: a laptop rebuilds every table at once."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import fgmix.results

HEAVY = {"torch", "scipy", "pandas", "matplotlib", "sklearn", "timm"}
MODULES = [module.name for module in pkgutil.walk_packages(fgmix.results.__path__, "fgmix.results.")]


def test_no_module_of_results_imports_a_heavy_library() -> None:
    assert {"fgmix.results.selection", "fgmix.results.statistics", "fgmix.results.report"} <= set(MODULES)
    code = f"import sys, {', '.join(MODULES)}; print(sorted({HEAVY} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
