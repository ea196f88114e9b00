"""fgmix data."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from cli.test_cli import call


def test_check_prints_counts_and_finds_a_broken_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for domain in ("ct", "mr"):
        for label in ("no", "yes"):
            folder = tmp_path / domain / label
            folder.mkdir(parents=True)
            for i in range(2):
                Image.new("RGB", (8, 8), (i, len(domain + label), 40)).save(folder / f"{domain}{label}{i}.png")
    (tmp_path / "ct" / "yes" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    assert call(monkeypatch, "data", "check", str(tmp_path)) == 1
    printed = capsys.readouterr().out
    assert "broken.jpg" in printed
    assert "ct" in printed


def test_check_refuses_what_is_not_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "data", "check", str(tmp_path / "none")) == 2
    assert capsys.readouterr().err.startswith("fgmix: ")
