"""Progress on standard error: plain lines where there is no terminal."""

from __future__ import annotations

import pytest

from fgmix.progress import Progress


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed, without rates, which depend on the machine."""
    return [line.split("/s,")[0] for line in capsys.readouterr().err.splitlines()]


def test_several_pieces_of_work_share_one_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("fit", 4) as whole:
        with Progress("art", 2, done=1, show=whole) as art:  # one step was done before an interruption
            art.advance(note="loss 1")
            art.say("evaluating")
        with Progress("photo", 2, show=whole) as photo:
            photo.advance(2)
    assert whole.done == 4
    half, evaluating, end = lines(capsys)
    assert half.startswith("fit: 2/4")
    assert evaluating == "fit: art: evaluating"
    assert end.startswith("fit: 4/4")


def test_alone_it_has_its_own_bar_or_none(capsys: pytest.CaptureFixture[str]) -> None:
    for show in (True, False):
        with Progress("art", 1, show=show) as bar:
            bar.say("evaluating")
            bar.advance()
    said, count = lines(capsys)
    assert said == "art: evaluating"
    assert count.startswith("art: 1/1")


def test_what_was_done_before_does_not_count_as_speed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((0.0, 0.5))
    monkeypatch.setattr("fgmix.progress.time.monotonic", lambda: next(clock))
    with Progress("fit", 1000) as bar:
        bar.skip(999)
        bar.advance()
    assert capsys.readouterr().err.startswith("fit: 1000/1000 2.0/s, 0 s left")
