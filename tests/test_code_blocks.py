"""Every block of the README and the docs is code that runs, commands that the parser accepts, or marked as output.

Commands within a sentence may be parts of one: their names and flags exist.
"""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from copying import replace
from fgmix import RunRecord, RunSpec, data, networks, train
from fgmix.cli import app
from fgmix.deploy import estimator, recipes
from fgmix.networks._torchvision import ensure_torchvision
from fgmix.sweeps import launchers
from sweeps.toys import Here

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EXTRAS = {"docs/guides/fine-tune-transformers.md": "peft"}  # packages that pages need
LANGUAGES = {"math", "python", "sh", "text", "toml"}  # text: output, or a format


def blocks(page: Path, language: str) -> list[str]:
    return [code for name, code in _fences(page) if name == language]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _fences(page: Path) -> list[tuple[str, str]]:
    found = re.findall(r"^( *)```([^\n]*)\n(.*?)^\1```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [(name, textwrap.dedent(code)) for _, name, code in found]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_block_says_what_it_is(page: Path) -> None:
    unmarked = [code for name, code in _fences(page) if not name.startswith("{") and name not in LANGUAGES]
    assert not unmarked


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_parser_accepts_every_command(page: Path) -> None:
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for words in _commands(shlex.split(line, comments=True)):
                command, rest = _find_command(words)
                command.make_context(command.name, rest)  # raises on an unknown option, a wrong value, a missing one


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_within_a_sentence_exist_with_their_flags(page: Path) -> None:
    text = re.sub(r"^ *```.*?```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for line in re.findall(r"(?<!`)`(fgmix [^`]+)`", text):
        for words in _commands(line.split()):
            command, rest = _find_command(words)
            known = {"--help", *(flag for param in command.params for flag in (*param.opts, *param.secondary_opts))}
            used = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", " ".join(rest)))
            assert used <= known, f"`{line}`: no {', '.join(used - known)}"


# CONTRIBUTING's method is tested in testing/test_contributing.py.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CONTRIBUTING.md" and blocks(page, "python")], ids=page_id
)
@pytest.mark.usefixtures("few_digits")
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, in one namespace, with what the page assumes to exist."""
    if package := EXTRAS.get(page_id(page)):
        ensure_torchvision()  # which peft's imports need
        pytest.importorskip(package)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for registry in (data.registry, networks.registry):  # what a page registers is forgotten
        monkeypatch.setattr(registry, "_REGISTRY", {**registry._REGISTRY})
    monkeypatch.setattr(recipes, "_TABLE", {**recipes._TABLE})
    shorter = estimator.scale_steps
    monkeypatch.setattr(estimator, "scale_steps", lambda spec, data: replace(shorter(spec, data), steps=2))
    module = ModuleType("example")  # dataclasses look up theirs
    monkeypatch.setitem(sys.modules, "example", module)
    vars(module).update(_assumed(page_id(page), tmp_path))
    (folder / "docs").symlink_to(ROOT / "docs")  # packed records
    monkeypatch.setattr(launchers, "make_launch", lambda *_, **__: Here())
    examples = [path.read_text() for path in (ROOT / "examples").glob("*.py")]  # run by test_examples.py
    for block in blocks(page, "python"):
        if not any(block in example for example in examples):
            exec(compile(block, page_id(page), "exec"), vars(module))


def _commands(words: list[str]) -> Iterator[list[str]]:
    """Split `fgmix a && fgmix b > file` into the words of each command of fgmix, without the redirection."""
    rest = [*words, "&&"]
    while rest:
        end = rest.index("&&")
        command, rest = rest[:end], rest[end + 1 :]
        if command[:1] == ["fgmix"]:
            yield command[1 : command.index(">") if ">" in command else None]


@cache
def _tree() -> TyperCommand | TyperGroup:
    return get_command(app)  # type: ignore[return-value]


def _find_command(words: list[str]) -> tuple[TyperCommand | TyperGroup, list[str]]:
    """Return the command that the first words name, and the other words."""
    command = _tree()
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]  # type: ignore[assignment]
    return command, words


def _assumed(page: str, folder: Path) -> dict[str, Any]:
    """What the code of a page takes as given."""
    match page:
        case "docs/averaging.md":
            return {"named_tensors": {"weight": torch.ones(2)}, "val_loss": 0.5}
        case "docs/estimator.md":
            return _arrays(folder)
        case "docs/figures.md":
            return {"ERM": _run(folder, "erm").folder, "FGMIX": _run(folder, "fgmix").folder}
        case "docs/selection.md":
            return {"RUN": _run(folder, "fgmix").folder}
    return {}


def _arrays(folder: Path) -> dict[str, Any]:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    y, scanner = np.arange(60) % 3, np.arange(60) // 20
    X = np.eye(3)[y] + rng.normal(size=(60, 3))
    names = {"classes": np.array(["a", "b", "c"]), "domains": np.array(["A", "B", "C"])}
    np.savez(folder / "project" / "pacs_resnet50_features.npz", X=X, y=y, domain=scanner, **names)
    pipeline = make_pipeline(StandardScaler(), estimator.DomainGeneralizer("erm"))
    return {"X": X, "y": y, "scanner": scanner, "X_new": X[:5], "y_new": y[:5], "pipeline": pipeline}


def _run(folder: Path, algorithm: str, trial_seed: int = 0) -> RunRecord:
    """A run on something small that is called PACS, with `sketch` held out."""
    y, domain = np.arange(90) % 3, np.array(["art_painting", "photo", "sketch"])[np.arange(90) // 30]
    np.savez(folder / "PACS.npz", X=np.random.default_rng(0).normal(size=(90, 4)), y=y, domain=domain)
    length = {"steps": 4, "eval_every": 2, "averaging_start": 1, "trial_seed": trial_seed}
    spec = RunSpec(dataset=str(folder / "PACS.npz"), algorithm=algorithm, test_domains="sketch", **length)
    return train(spec, folder / "runs", progress=False)
