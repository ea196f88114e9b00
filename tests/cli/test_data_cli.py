"""fgmix data."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from cli.test_cli import call
from data.pictures import two_domains


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
    for name, text in (("table.csv", "label,domain,x\n0,a,1\n"), ("arrays.npz", "")):
        (tmp_path / name).write_text(text)
        assert call(monkeypatch, "data", "check", str(tmp_path / name)) == 2
        assert "fgmix fit" in capsys.readouterr().err


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two domains of two classes, and an empty cache."""
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    return two_domains(tmp_path / "scans")


def test_prepare_says_what_it_did_and_where(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local = tmp_path / "local"
    arguments = ("data", "prepare", str(scans), "--image-size", "8", "--cache", str(local), "--quiet")
    assert call(monkeypatch, *arguments) == 0
    out, err = capsys.readouterr()
    assert "scans: 8 images in 2 classes (art 4, photo 4)." in out
    assert f"Runs find it with FGMIX_CACHE={local}." in out
    assert err == ""
    assert sorted(path.name for path in local.iterdir()) == ["decoded"]
    assert call(monkeypatch, *arguments, "--background", "black") == 2  # training would not use it
    assert "No such option: --background" in capsys.readouterr().err


def test_check_reports_what_decoding_changes(
    scans: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("LA", (8, 8)).save(scans / "art" / "cat" / "clear.png")
    Image.new("CMYK", (8, 8)).save(scans / "art" / "cat" / "print.jpg")
    (scans / "art" / "cat" / "x.gif").touch()
    assert call(monkeypatch, "data", "check", str(scans), "--quiet") == 0
    printed = capsys.readouterr().out
    for sentence in ("composited on white: 1.", "CMYK images, converted to RGB", "left out: 1 .gif."):
        assert sentence in printed


def test_a_benchmark_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_domains(tmp_path / "PACS")
    assert call(monkeypatch, "data", "check", "PACS", "--data-root", str(tmp_path), "--quiet") == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'PACS'}: 8 images")
    assert call(monkeypatch, "data", "check", "VLCS", "--data-root", str(tmp_path), "--quiet") == 2
    assert "fgmix data download VLCS" in capsys.readouterr().err
