"""What the README shows is what runs."""

from __future__ import annotations

import re
from pathlib import Path

from fgmix import algorithms

ROOT = Path(__file__).resolve().parent.parent


def test_every_example_is_run() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    examples = [path.stem for path in (ROOT / "examples").glob("*.py")]
    assert examples
    assert not [name for name in examples if f'"{name}.py"' not in tests and f'"{name}"' not in tests]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_the_readme_names_every_method() -> None:
    readme = (ROOT / "README.md").read_text()
    ours = [name for name in algorithms.names() if algorithms.get(name).__module__.startswith("fgmix.")]
    rows = [row for row in algorithms.overview(ours) if not row.name.startswith("fgmix_")]
    families = readme.partition("## Methods")[2].partition("The [table of methods]")[0]
    assert not [row.label for row in rows if not re.search(rf"(?<![\w-]){re.escape(row.label)}(?![\w-])", families)]
    assert f"| methods for generalization | {len(rows)} |" in readme


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_algorithm_has_its_page() -> None:
    files = [p.stem for p in (ROOT / "src" / "fgmix" / "algorithms").glob("[a-z]*.py")]
    assert files
    missing = [name for name in files if not (ROOT / "docs" / "algorithms" / f"{name}.md").exists()]
    assert not missing


def test_no_package_registry_is_named() -> None:
    """Mirrors differ from site to site: the clients' own configuration says where packages come from."""
    hosts = re.compile("|".join(["pypi" + r"\.org", "python" + r"hosted\.org", "npm" + r"js\.(org|com)"]))
    pages = [
        path for pattern in ("*.md", "*.toml", "*.txt", ".*.yaml", ".github/**/*.yml") for path in ROOT.glob(pattern)
    ]
    assert len({page.suffix for page in pages}) == 5
    for page in [*pages, ROOT / "Makefile"]:
        assert not hosts.search(page.read_text()), page.name
