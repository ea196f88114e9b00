"""Imports are quick and point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "fgmix"

# Lower layers never import higher ones. A module not named here belongs to the layer of its package or file.
LAYERS = [
    {"errors", "files", "progress", "seeding"},
    {"functional", "networks", "mixing"},
    {"drop_in"},
    {"algorithms", "data"},
    {"spec"},
    {"records"},
    {"swad"},
    {"averaging", "evaluation"},
    {"checkpoint", "run_folder"},
    {"training"},
    {"benchmark", "analysis", "bench"},
    {"deploy"},
    {"estimator"},
    {"plots"},
    {"report"},
    {"demo"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imported(tree: ast.Module) -> set[str]:
    """Top-level parts of fgmix that a module imports when it is imported (not inside functions)."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fgmix"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found & RANK.keys()


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert own in RANK, f"{own} has no layer: add it to LAYERS"
    above = {name for name in imported(ast.parse(path.read_text())) if RANK[name] > RANK[own]}
    assert not above


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_is_light() -> None:
    """Half a second beyond torch: none of the slow libraries is touched until it is needed."""
    modules = loaded_after("import fgmix, fgmix.cli, fgmix.runs.record, fgmix.runs.spec")
    assert not modules & {"torch", "timm", "sklearn", "matplotlib", "pandas", "scipy"}


def test_algorithms_and_data_need_torch_and_numpy_alone() -> None:
    modules = loaded_after("import fgmix; fgmix.algorithms; fgmix.data; fgmix.fit; fgmix.FGMix")
    assert "torch" in modules
    assert not modules & {"timm", "torchvision", "sklearn", "matplotlib", "mlxtend", "pandas", "scipy"}
