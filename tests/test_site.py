"""The documentation site builds without a warning."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_site_builds_without_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `make docs` does, with the plainest theme, in this process: torch is loaded already."""
    from sphinx.cmd.build import build_main

    plain = ["-D", "html_theme=basic"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Sphinx about its extensions; those about pages are no Python warnings
        code = build_main(["-W", "--keep-going", "-q", *plain, str(ROOT / "docs"), str(tmp_path / "site")])
    assert code == 0, capsys.readouterr().err
    assert (tmp_path / "site" / "algorithms" / "fgmix.html").exists()
