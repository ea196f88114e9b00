"""What a person reads in a terminal, and what a pipe gets."""

from __future__ import annotations

import io
import sys

import pytest

from fgmix.terminal import print_error, print_markdown, print_notes, print_phase

TABLE = "| Method | Avg |\n| --- | ---: |\n| ERM | **64.1** |\n| l2a_ot | 3.2 |\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard output and error within a test: pytest sets them anew after fixtures."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")  # rich then uses no colours, and 80 columns …
    monkeypatch.delenv("LINES", raising=False)  # … unless both sizes are given
    return screen


def test_tables_are_aligned_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    print_markdown(TABLE)
    head, _, *rows = [line.rstrip() for line in terminal.getvalue().splitlines() if line.strip()]
    assert "|" not in terminal.getvalue()
    assert "**" not in terminal.getvalue()
    assert {len(head), *map(len, rows)} == {len(head)}  # numbers end in one column
    assert rows[1].split() == ["l2a_ot", "3.2"]


def test_a_pipe_gets_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    print_markdown(TABLE)
    assert capsys.readouterr().out == TABLE


def test_notes_and_errors_have_their_own_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    print_notes("one")
    print_error("two")
    note, error = terminal.getvalue().splitlines()
    assert note.startswith("\x1b[1;33m")
    assert error.startswith("\x1b[1;31m")


def test_names_from_outside_are_escaped_and_pipes_have_no_colour(capsys: pytest.CaptureFixture[str]) -> None:
    print_notes("a\x1b[2Jb")
    print_error("c\nd")
    print_phase("loading")  # says nothing in a pipe
    assert capsys.readouterr().err == "note: a\\x1b[2Jb\nfgmix: c\nd\n"


def test_a_table_that_is_too_wide_goes_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is cut; every part begins with the first column."""
    terminal = open_terminal(monkeypatch)
    names = [f"a_long_name_of_{c}" for c in range(5)]
    lines = [["Method", *names], ["---"] * 6, ["ERM", *"12345"]]
    print_markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))
    shown = terminal.getvalue()
    assert all(name in shown for name in names)
    assert shown.count("Method") == shown.count("ERM") == 2
    assert max(map(len, shown.splitlines())) <= 80  # of a dumb terminal


def test_long_heads_are_broken_before_a_table_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    lines = [["Method", *["lowest recall of a class"] * 5], ["---"] * 6, ["ERM", *"12345"]]
    print_markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))
    assert terminal.getvalue().count("ERM") == 1
    assert max(map(len, terminal.getvalue().splitlines())) <= 80


def test_notes_end_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    print_notes("some words " * 6)
    assert [line.split()[-1] for line in terminal.getvalue().splitlines()] == ["words", "words"]
