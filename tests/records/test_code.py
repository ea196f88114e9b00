"""The digest of a method's source changes with what the method computes, and with nothing else."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fgmix.algorithms import Algorithm, _registry, describe_code, get
from fgmix.records import code

MINE = '''
from fgmix.algorithms import Algorithm
from fgmix.functional.domains import domain_risks

from .parts import weight


class Mine(Algorithm):
    """Penalise nothing."""

    def objective(self, batches):
        L = domain_risks(map(self.classifier, self.encode(batches)), batches)  # (k,)
        return {"loss": weight() * L.mean()}
'''
PARTS = "def weight():\n    return 2.0\n"
Load = Callable[..., str]


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_plug_in"]:
        del sys.modules[name]
    for cached in (code.keep_source, code._examine):
        cached.cache_clear()


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import a plug-in with these texts afresh, and return the digest of its method."""
    package = tmp_path / "my_plug_in"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(mine: str = MINE, parts: str = PARTS) -> str:
        (package / "mine.py").write_text(mine)
        (package / "parts.py").write_text(parts)
        forget()
        importlib.invalidate_caches()
        return code.digest_source(importlib.import_module("my_plug_in.mine").Mine, Algorithm)

    yield load
    forget()


def test_layout_comments_and_docstrings_do_not_count(load: Load) -> None:
    same = (
        MINE.replace("  # (k,)", "")
        .replace("nothing", "something")
        .replace("weight() * L.mean()", "(weight()\n * L.mean())")
    )
    assert same != MINE
    assert load(same, f"# why\n{PARTS}") == load()


def test_another_number_is_another_method(load: Load) -> None:
    other = MINE.replace("weight() *", "1000 * weight() *")
    assert len({load(), load(other), load(MINE, PARTS.replace("2.0", "3.0"))}) == 3  # in its file, and beside it


def test_a_file_that_is_edited_later_is_not_what_was_loaded(load: Load, tmp_path: Path) -> None:
    before = load()
    loaded = sys.modules["my_plug_in.mine"].Mine
    forgotten = dict(_registry._REGISTRY)
    code.keep_source.cache_clear()
    _registry.register("my_plug_in")(loaded)
    for name in ("mine", "parts"):
        (tmp_path / "my_plug_in" / f"{name}.py").write_text("broken = 1 +")
    code._examine.cache_clear()
    assert describe_code("my_plug_in") == before
    _registry._REGISTRY.clear()
    _registry._REGISTRY.update(forgotten)


@pytest.mark.parametrize(
    ("edited", "moved"),
    [
        ("fgmix.functional.moments", {"coral", "sam+coral"}),  # and not through a package that imports everything
        ("fgmix.algorithms.sam", {"sam+coral", "sam"}),
        ("fgmix.mixing.tuples", {"fgmix"}),
        ("fgmix.algorithms._base", {"coral", "sam+coral", "sam", "fgmix", "erm"}),
        ("fgmix.training.loop", set()),
    ],
)
def test_a_module_counts_for_the_methods_that_are_built_from_it(
    edited: str, moved: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("coral", "sam+coral", "sam", "fgmix", "erm")
    before = {name: describe_code(name) for name in names}
    keep = code.keep_source
    monkeypatch.setattr(code, "keep_source", lambda name: keep(name) + b"\nx = 1\n" * (name == edited))
    code._examine.cache_clear()
    after = {name: code.digest_source(get(name), Algorithm) for name in names}
    code._examine.cache_clear()
    assert {name for name in names if after[name] != before[name]} == moved


def define_in_a_cell(text: str, number: int, monkeypatch: pytest.MonkeyPatch) -> type:
    """Execute a cell as IPython does: its module has no file, and linecache keeps the text."""
    notebook = ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    cell = f"<ipython-input-{number}>"
    monkeypatch.setitem(linecache.cache, cell, (len(text), None, text.splitlines(keepends=True), cell))
    exec(compile(text, cell, "exec"), vars(notebook))
    return notebook.Mine


def test_a_method_in_a_notebook_has_a_digest_of_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = MINE.replace("from .parts import weight", PARTS)
    first, *others = (
        code.digest_source(define_in_a_cell(text, number, monkeypatch), Algorithm)
        for number, text in enumerate(
            [mine, mine.replace("# (k,)", "# by domain"), mine.replace("2.0", "3.0"), mine.replace("weight() *", "")]
        )
    )
    assert len(first) == 12
    assert [other == first for other in others] == [True, False, False]
    monkeypatch.setattr(linecache, "getlines", lambda *_: [])  # a shell, which keeps no text
    assert code.digest_source(define_in_a_cell(mine, 9, monkeypatch), Algorithm) == ""
