"""The demo, at a size that takes seconds: what it runs, what it writes, and that it goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from fgmix.demo import ALGORITHMS, run_demo


@pytest.mark.long
def test_the_demo_compares_three_methods_on_four_domains_and_can_be_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_demo(tmp_path, steps=5)
    text = path.read_text()
    for label in ("ERM", "FGMix-A", "FGMix", "ERM + SWA", "FGMix-A + SWA", "FGMix + SWA"):
        assert f"| {label} |" in text
    assert "| Method | fonts | mnist | optdigits | photo | Avg |" in text
    assert text in capsys.readouterr().out
    runs = sorted(p for p in (tmp_path / "runs").iterdir() if (p / "record.json").exists())
    assert len(runs) == 4 * len(ALGORITHMS)
    before = {p: (p / "record.json").stat().st_mtime_ns for p in runs}
    assert run_demo(tmp_path, steps=5).read_text() == text
    assert {p: (p / "record.json").stat().st_mtime_ns for p in runs} == before
