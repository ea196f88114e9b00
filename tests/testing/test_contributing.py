"""The method that CONTRIBUTING shows keeps the contract."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from fgmix.algorithms import _registry, get
from fgmix.testing import check_algorithm

PAGE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def _shown_method(tmp_path: Path) -> Iterator[None]:
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "@register" in b]
    (tmp_path / "mine.py").write_text(textwrap.dedent("   " + block.lstrip()))
    spec = importlib.util.spec_from_file_location("mine", tmp_path / "mine.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield
    del _registry._REGISTRY["mine"]


@pytest.mark.usefixtures("_shown_method")
def test_the_method_shown_passes_every_check() -> None:
    passed = check_algorithm("mine")
    assert "mine-resume-at_work" in passed
    assert get("mine").label == "MINE"
