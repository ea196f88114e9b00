"""Imports are quick and point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "fgmix"

# The rooms, lowest first: each may import from itself and from those above it in this list.
ROOMS = [
    {"errors", "durations", "progress", "seeding", "fields"},
    {"records"},
    {"functional"},
    {"networks"},
    {"mixing"},
    {"algorithms"},
    {"data"},
    {"training"},
    {"logs"},
    {"sweeps"},
    {"results"},
    {"figures"},
    {"report"},
    {"deploy"},
    {"testing"},
    {"demo", "doctor"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(ROOMS) for name in names}
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(source: str) -> set[str]:
    """The rooms that a module imports: anywhere in it, inside functions and for type checkers, too."""
    tree = ast.parse(source)
    names = {name for node in ast.walk(tree) for name in _imports(node)}
    if "fgmix" in names:  # the package itself: what counts is what is taken from it
        names |= {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {name.split(".")[1] for name in names if name.startswith("fgmix.")} - {"__version__"}


def _imports(node: ast.AST) -> Iterator[str]:
    """The dotted names that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import; write the whole name"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("from fgmix.data.splits import split", {"data"}),
        ("from fgmix import training as t, data", {"training", "data"}),
        ("import fgmix.cli.train as t", {"cli"}),
        ("def f():\n    if x:\n        import fgmix.demo", {"demo"}),
        ("if TYPE_CHECKING:\n    from fgmix.report.page import Page", {"report"}),
        ("import fgmix\nprint(fgmix.__version__, fgmix.fit)", {"fit"}),
        ("import torch\nfrom fgmixer.data import x", set()),
    ],
)
def test_every_kind_of_import_is_seen(source: str, rooms: set[str]) -> None:
    assert imported(source) == rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    own = room_of(path)
    assert own in RANK, f"{own} has no place among the rooms: add it to ROOMS"
    rooms = imported(path.read_text())
    assert rooms <= RANK.keys(), f"{rooms - RANK.keys()}: import a public name from the module that defines it"
    above = {room for room in rooms if RANK[room] > RANK[own]}
    assert not above, f"{own} imports {above}, which come later in ROOMS"


def test_no_two_rooms_import_each_other() -> None:
    """Nor two leaves, which have one rank."""
    edges = {(room_of(path), room) for path in MODULES for room in imported(path.read_text())}
    assert edges
    assert not {(a, b) for a, b in edges if a < b and (b, a) in edges}


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_is_light() -> None:
    """Half a second beyond torch: none of the slow libraries is touched until it is needed."""
    modules = loaded_after("import fgmix, fgmix.cli, fgmix.records.schema, fgmix.records.schema")
    assert not modules & {"torch", "timm", "sklearn", "matplotlib", "pandas", "scipy"}


def test_algorithms_and_data_need_torch_and_numpy_alone() -> None:
    modules = loaded_after("import fgmix; fgmix.algorithms; fgmix.data; fgmix.train; fgmix.FGMix")
    assert "torch" in modules
    assert not modules & {"timm", "torchvision", "sklearn", "matplotlib", "mlxtend", "pandas", "scipy"}
