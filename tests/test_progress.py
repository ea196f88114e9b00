"""Progress on standard error: a bar on a terminal, lines that become rarer and one at the end elsewhere."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from fgmix.progress import PLAIN_SECONDS, Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time in seconds, for a test to set."""
    now = [0.0]
    monkeypatch.setattr("fgmix.progress.time.monotonic", lambda: now[0])
    return now


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_several_pieces_of_work_share_one_bar(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with Progress("fit", 4, "steps") as whole:
        with Progress("art", 2, done=1, show=whole) as art:  # one step was done before an interruption
            clock[0] = PLAIN_SECONDS
            art.advance(note="loss 1")
            art.advance(0, "evaluating")  # too soon for a line of its own
        with Progress("photo", 2, show=whole) as photo:
            photo.advance(2)
    assert whole.done == 4
    assert lines(capsys) == ["fit: 2/4 steps · 1 min left · art: loss 1", "fit: 4/4 steps in 30 s"]


@pytest.mark.parametrize(("show", "count"), [(True, 1), (False, 0)])
def test_a_short_piece_of_work_is_one_line(capsys: pytest.CaptureFixture[str], show: bool, count: int) -> None:
    with Progress("art", 1, show=show) as bar:
        bar.advance(0, "evaluating")
        bar.advance()
    assert len(lines(capsys)) == count


def test_lines_come_after_a_second_and_every_thirty(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with Progress("fit", 100, "steps") as bar:
        for second in range(1, 100):
            clock[0] = second
            bar.advance()
        assert [line.split("/")[0] for line in lines(capsys)] == [f"fit: {n}" for n in (1, 31, 61, 91)]


def test_an_error_is_not_followed_by_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), Progress("art", 2):
        raise ValueError("broken")
    assert not lines(capsys)


def test_what_was_done_before_does_not_count_as_speed(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with Progress("fit", 1001, "steps") as bar:
        bar.skip(940)
        clock[0] = PLAIN_SECONDS
        bar.advance(60)
        assert lines(capsys) == ["fit: 1,000/1,001 steps · 2.0 steps/s · 0 s left"]


def test_work_in_progress_counts_for_the_time_left(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with Progress("sweep", 12, "runs") as bar:
        bar.ahead, clock[0] = 0.5, 6000.0  # after long preparations, which are no measure of the runs
        bar.advance(0, "erm photo step 1/4, coral photo step 1/4")
        bar.ahead, clock[0] = 1.5, 6045.0
        bar.advance(0, "erm photo step 3/4, coral photo step 3/4")
    assert lines(capsys)[:2] == [
        "sweep: 0/12 runs · erm photo step 1/4, coral photo step 1/4",
        "sweep: 0/12 runs · 8 min left · erm photo step 3/4, coral photo step 3/4",
    ]


def test_preparations_are_shown_and_not_counted(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with Progress("fit", 4, "steps") as whole:
        with Progress("warm-up", 300, "steps", show=whole, counts=False) as warm_up:
            clock[0] = PLAIN_SECONDS
            warm_up.advance(150)
        assert whole.done == 0
    assert lines(capsys)[0] == "fit: 0/4 steps · warm-up: 150/300 steps"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress("erm photo", 3, "steps") as bar:
        bar.advance(2, note="loss 0.5")
    assert "2/3 steps" in terminal.getvalue()
    assert "loss 0.5" in terminal.getvalue()
