"""What a person reads in a terminal: lines, notes, errors, and Markdown whose tables are aligned."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from fgmix.escape import escape_line

RED, YELLOW, CYAN = 31, 33, 36  # of ANSI


def print_lines(lines: Iterable[str], file: TextIO | None = None) -> None:
    """Print lines that contain names from outside; each stays one line."""
    print("\n".join(map(escape_line, lines)), file=file or sys.stdout, flush=True)


def print_notes(*notes: str) -> None:
    """Print notes on standard error: what a user may want to know, while the command goes on."""
    for note in notes:
        print(f"{_paint('note:', YELLOW)} {escape_line(note)}", file=sys.stderr, flush=True)


def print_phase(text: str) -> None:
    """Print on standard error, if it is a terminal, what a command does before its first progress bar."""
    if sys.stderr.isatty():
        print(_paint(f"{escape_line(text)} …", CYAN), file=sys.stderr, flush=True)


def print_error(sentence: str) -> None:
    """Print why a command ends, on standard error; later lines are parts of a list."""
    first, *rest = map(escape_line, sentence.split("\n"))
    print("\n".join([f"{_paint('fgmix:', RED)} {first}", *rest]), file=sys.stderr, flush=True)


def print_markdown(text: str) -> None:
    """Print Markdown: with aligned tables on a terminal, as it is elsewhere."""
    if not sys.stdout.isatty():
        print(text, end="" if text.endswith("\n") else "\n", flush=True)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _paint(text: str, colour: int) -> str:
    """Colour a text for standard error, if that is a terminal whose user has not asked for none (no-color.org)."""
    plain = not sys.stderr.isatty() or os.environ.get("NO_COLOR")
    return text if plain else f"\x1b[1;{colour}m{text}\x1b[0m"
