"""The demo, at a size that takes seconds: what it runs, what it writes, and that it goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from fgmix import demo
from fgmix.demo import ALGORITHMS, TRY_OUT, run_demo


@pytest.mark.long
def test_the_demo_compares_three_methods_on_four_domains_and_can_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "FAST", {"steps": 5, "averaging_start": 3})
    path = run_demo(tmp_path, fast=True)
    assert path == tmp_path / "report.html"
    page = path.read_text()
    for figure in ("tsne-photo", "flatness-photo"):
        assert f'id="figure-{figure}"' in page
        assert (tmp_path / "figures" / f"{figure}.pdf").exists()
    text = (tmp_path / "report.md").read_text()
    for label in ("ERM", "FGMix-A", "FGMix", "ERM + SWA", "FGMix-A + SWA", "FGMix + SWA"):
        assert f"| {label} |" in text
    assert "| Method | fonts | mnist | optdigits | photo | Avg |" in text
    assert TRY_OUT in text
    assert "Made by `fgmix demo --fast`" in text
    out = capsys.readouterr().out
    assert text in out
    assert f"Report: {path}" in out
    runs = sorted(p for p in (tmp_path / "runs").iterdir() if (p / "record.json").exists())
    assert len(runs) == 4 * len(ALGORITHMS)
    before = {p: (p / "record.json").stat().st_mtime_ns for p in runs}
    assert run_demo(tmp_path, fast=True).read_text() == page
    assert {p: (p / "record.json").stat().st_mtime_ns for p in runs} == before
