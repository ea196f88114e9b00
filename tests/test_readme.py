"""What the README shows is what runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_run(path: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_readme_shows_the_loop_that_runs() -> None:
    loop = (ROOT / "examples" / "plain_loop.py").read_text().split("\n", 2)[2].strip()
    assert f"```python\n{loop}\n```" in (ROOT / "README.md").read_text()


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
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
    for page in [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.txt"), ROOT / "Makefile"]:
        assert not hosts.search(page.read_text()), page.name
