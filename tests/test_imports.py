"""Two floors around the record: imports point one way, and what reads records never imports torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fgmix import doctor

SOURCE = Path(__file__).resolve().parent.parent / "src" / "fgmix"

LEAVES = {"errors", "escape", "seeding", "progress", "terminal"}
# What makes records, the lowest first: each may import from those before it, from the record and from the leaves.
LOWER = ["functional", "networks", "mixing", "algorithms", "data", "training", "logs", "sweeps"]
UPPER = ["results", "figures", "report"]  # what reads them, likewise
MEET = {  # where the floors meet, each with what it may import of both
    "figures/compute": {*LOWER, "results", "figures"},
    "deploy": {*LOWER, "results", "figures"},
    "testing": {*LOWER},
}
TOP = {"cli", "demo", "doctor", "__main__"}  # import anything but each other's insides
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return "/".join(parts[:2]) if "/".join(parts[:2]) in MEET else parts[0]


def allowed(room: str) -> set[str]:
    """Return the rooms that a room may import from, besides itself."""
    if room in LEAVES:
        return LEAVES
    if room == "records":
        return LEAVES
    below = LEAVES | {"records"}
    for floor in (LOWER, UPPER):
        if room in floor:
            return below | set(floor[: floor.index(room)])
    return below | MEET[room]


def imported(source: str) -> set[str]:
    """Return the rooms that a module imports: anywhere in it, inside functions and for type checkers, too."""
    tree = ast.parse(source)
    names = {name for node in ast.walk(tree) for name in _imports(node)}
    if "fgmix" in names:  # the package itself: what counts is what is taken from it
        names |= {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {name for name in names if name.startswith("fgmix.")} - {"fgmix.__version__"}
    meeting = {room for room in MEET for name in names if name.startswith(f"fgmix.{room.replace('/', '.')}")}
    return meeting | {name.split(".")[1] for name in names} - {room.split("/")[0] for room in meeting if "/" in room}


def _imports(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a statement imports."""
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
        ("from fgmix.figures.compute.surface import compute_surface", {"figures/compute"}),
        ("import torch\nfrom fgmixer.data import x", set()),
    ],
)
def test_every_kind_of_import_is_seen(source: str, rooms: set[str]) -> None:
    assert imported(source) == rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    room = room_of(path)
    if room not in TOP:
        above = imported(path.read_text()) - allowed(room) - {room}
        assert not above, f"{room} imports {above}"


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_the_upper_floor_leaves_torch_out() -> None:
    """Nor does it load the slow libraries before they are needed: a laptop rebuilds every table in seconds."""
    readers = [path for path in MODULES if room_of(path) in {*LEAVES, "records", *UPPER, "cli"}]
    names = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in readers]
    modules = loaded_after(f"import fgmix, {', '.join(name.removesuffix('.__init__') for name in names)}")
    assert {"fgmix.results.tables", "fgmix.figures.surface", "fgmix.report.page", "fgmix.cli.train"} <= modules
    assert not modules & {"torch", "timm", "sklearn", "pandas"}


def test_importing_the_command_line_is_quick() -> None:
    modules = loaded_after("import fgmix, fgmix.cli, fgmix.records.schema, fgmix.records.store")
    assert not modules & {"torch", "numpy", "timm", "sklearn", "matplotlib", "pandas", "scipy"}


@pytest.mark.parametrize("command", ["list algorithms", "list datasets", "doctor"])
def test_commands_that_read_declarations_leave_torch_out(command: str) -> None:
    if command == "doctor" and doctor._supports_gpus():
        pytest.skip("names the GPUs")
    call = f"from fgmix.cli import app; app({command.split()!r}, standalone_mode=False)"
    assert "torch._C" not in loaded_after(call)  # doctor prints the word torch


def test_algorithms_and_data_need_torch_and_numpy_alone() -> None:
    modules = loaded_after("import fgmix; fgmix.algorithms; fgmix.data; fgmix.train; fgmix.FGMix")
    assert "torch" in modules
    assert not modules & {"timm", "torchvision", "open_clip", "sklearn", "matplotlib", "mlxtend", "pandas", "scipy"}
