"""The docs name only what exists: files, sections, settings. Pages of methods have one structure.

Commands and code are tested in test_code_blocks.py.
"""

from __future__ import annotations

import re
import runpy
from fractions import Fraction
from pathlib import Path

import pytest

from fgmix import algorithms
from fgmix.algorithms import BaseConfig

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
METHOD_PAGES = [page for page in sorted((ROOT / "docs" / "algorithms").glob("*.md")) if page.name != "README.md"]
SECTIONS = ["Method", "Settings", "Differences from the paper", "Cost", "Reference"]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_of_the_repository_exist(page: Path) -> None:
    for path in re.findall(r"`((?:src|tests|examples|docs|benchmarks)/[\w./-]+)`", page.read_text()):
        assert "mine" in path or (ROOT / path).exists(), f"no {path}"  # CONTRIBUTING's example is `mine`


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_to_sections_lead_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        linked = (page.parent / target) if target else page
        assert anchor in map(_anchor, _headings(linked)), f"no section {anchor} in {linked.name}"


@pytest.mark.parametrize("page", METHOD_PAGES, ids=page_id)
def test_pages_of_methods_have_one_structure(page: Path) -> None:
    assert re.findall(r"^## (.*)", page.read_text(), re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("page", METHOD_PAGES, ids=page_id)
def test_pages_of_methods_list_their_settings_and_defaults(page: Path) -> None:
    """A method's own settings, all of them and no other."""
    methods = [cls for name in algorithms.names() if (cls := algorithms.get(name)).__module__.endswith(f".{page.stem}")]
    defaults = {name: default for cls in methods for name, (default, _) in cls.Config.help().items()}
    for name in BaseConfig.names():  # on ERM's page, where they depend on the dataset
        del defaults[name]
    if page.stem != "erm":
        assert _settings_table(page) == {name: _cell(default) for name, default in defaults.items()}


def _headings(page: Path) -> list[str]:
    """Those of the page, or of the page that it includes; a comment in a block of code is no heading."""
    text = page.read_text()
    if included := re.search(r"^```\{include\} (.*)", text, re.MULTILINE):
        return _headings(page.parent / included[1])
    return re.findall(r"^#+ (.*)", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)


def _anchor(heading: str) -> str:
    """The anchor that a heading gets where the pages are shown: "Cost of a step" → cost-of-a-step."""
    return re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-")


def _settings_table(page: Path) -> dict[str, str | Fraction]:
    """Default by name; a row may hold several: | `width`, `downs` | 16, 2 | … |."""
    section = page.read_text().split("\n## Settings\n")[1].split("\n## ")[0]
    table: dict[str, str | Fraction] = {}
    for names, defaults in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section, re.MULTILINE):
        table |= dict(zip(re.findall(r"\w+", names), map(_cell, defaults.split(", ")), strict=True))
    return table


def _cell(value: object) -> str | Fraction:
    """A default as a page writes it: 0.001, 1e-3 and 1/1000 are one number."""
    text = str(value).lower()
    try:
        return Fraction(text).limit_denominator(10**9)
    except ValueError:
        return text


def test_gpu_hours_follow_from_the_presets_and_the_published_times() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "gpu_hours.py"))
    assert "\n".join(script["table"]()) in (ROOT / "docs" / "guides" / "reproduce.md").read_text()


def test_diagrams_are_those_of_their_script() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "pictures" / "diagrams.py"))
    for name, draw in script["DIAGRAMS"].items():
        for end, colours in script["SCHEMES"].items():
            assert (ROOT / "docs" / "pictures" / f"{name}{end}.svg").read_text() == draw(colours)
