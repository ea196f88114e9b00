"""What pyproject.toml promises: dependencies are what the package imports, and their lowest versions are tested."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = (
    "ray",
    "slurm",
    "export",
    "tensorboard",
    "wandb",
    "mlflow",
    "hub",
    "dicom",
    "heatmaps",
    "clip",
    "peft",
)  # those whose packages the source imports
DISTRIBUTION = {
    "PIL": "pillow",
    "markdown_it": "markdown-it-py",
    "open_clip": "open_clip_torch",
    "mlflow": "mlflow-skinny",
    "sklearn": "scikit-learn",
}  # imported by another name
NOT_AT_LOWEST = {"torch", "torchvision"}  # constraints-lowest.txt says why


def bounds(requirements: list[str]) -> dict[str, str]:
    """Lower bound by package."""
    return dict(re.fullmatch(r"([\w-]+)(?:>=)?([\d.]*)", line).groups() for line in requirements)  # type: ignore[union-attr]


def pins(file: str) -> dict[str, str]:
    lines = (line.split("#")[0].strip() for line in (ROOT / file).read_text().splitlines())
    return {name.lower(): version for name, version in (line.split("==") for line in lines if line)}


def imported() -> set[str]:
    """Distributions that a module of the package imports, anywhere in it."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(str(node.module).split(".")[0])
    found -= {"pandas"}  # `to_frame` uses it where a user has it
    return {DISTRIBUTION.get(name, name) for name in found - {"fgmix", *sys.stdlib_module_names}}


def declared() -> dict[str, str]:
    extras = (PROJECT["optional-dependencies"][name] for name in EXTRAS)
    return bounds([*PROJECT["dependencies"], *(line for extra in extras for line in extra)])


def test_dependencies_are_what_the_package_imports() -> None:
    assert declared().keys() == imported()


def test_the_lowest_versions_are_the_bounds() -> None:
    lowest = pins("constraints-lowest.txt")
    for name, bound in declared().items():
        if name not in NOT_AT_LOWEST:
            assert re.fullmatch(rf"{re.escape(bound)}(\.\d+)*", lowest[name]), f"{name}>={bound}, but {lowest[name]}"


def test_every_package_that_make_installs_is_pinned() -> None:
    pinned = pins("constraints.txt")
    wanted = {**declared(), **bounds(PROJECT["optional-dependencies"]["dev"])}
    assert not wanted.keys() - pinned.keys()


def test_pre_commit_pins_what_make_installs() -> None:
    pinned = pins("constraints.txt")
    hooks = re.findall(r"([\w-]+)==([\d.]+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert ("ruff", pinned["ruff"]) in hooks
    assert all(pinned[name] == version for name, version in hooks)


def test_one_version_everywhere() -> None:
    import fgmix

    assert fgmix.__version__ == PROJECT["version"]
    assert f"\nversion: {fgmix.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {fgmix.__version__} " in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.long
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    """Its dependencies are those of this environment; its own files are the wheel's, and no checkout is near."""
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)

    def run(*words: object) -> str:
        done = subprocess.run([*map(str, words)], cwd=elsewhere, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # not its .pth files
    names = "import fgmix; print(fgmix.__file__, *(getattr(fgmix, name) for name in fgmix.__all__))"
    assert run(python, "-c", names).startswith(str(packages))
    assert "A quick test" in run(python.with_name("fgmix"), "demo", "--fast")
    assert (elsewhere / "demo-fast" / "report.html").exists()
    ensure = "from fgmix.networks._torchvision import ensure_torchvision; ensure_torchvision()"
    run(python, "-c", f"{ensure}; import torchvision, timm; torchvision.transforms.Resize(8)")
