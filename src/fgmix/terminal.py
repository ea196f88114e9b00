"""What a person reads in a terminal: lines, notes, errors, and Markdown whose tables are aligned."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TextIO

RED, YELLOW, CYAN = 31, 33, 36  # of ANSI
_BAR = re.compile(r"(?<!\\)\|")  # between cells, not escaped


def print_lines(lines: Iterable[str], file: TextIO | None = None) -> None:
    """Print lines that contain names from outside; each stays one line."""
    print("\n".join(map(escape_line, lines)), file=file or sys.stdout, flush=True)


def print_notes(*notes: str) -> None:
    """Print notes on standard error: what a user may want to know, while the command goes on."""
    for note in notes:
        _print_wrapped("note:", YELLOW, note)


def print_phase(text: str, *, quiet: bool = False) -> None:
    """Print on standard error, if it is a terminal, what a command does before its first progress bar.

    In a pipe an error is the only line.
    """
    if sys.stderr.isatty() and not quiet:
        print(_paint(f"{escape_line(text)} …", CYAN), file=sys.stderr, flush=True)


def print_error(sentence: str) -> None:
    """Print why a command ends, on standard error; later lines are parts of a list."""
    first, *rest = sentence.split("\n")
    _print_wrapped("fgmix:", RED, first)
    if rest:
        print_lines(rest, sys.stderr)


def print_markdown(text: str) -> None:
    """Print Markdown: with aligned tables on a terminal, as it is elsewhere."""
    if not sys.stdout.isatty():
        print(text, end="" if text.endswith("\n") else "\n", flush=True)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    for is_table, lines in groupby(text.splitlines(), lambda line: line.startswith("| ")):
        if is_table:
            console.print()
            for block in _split_table([*lines], console.width):
                console.print(block, "")
        else:
            console.print(Markdown("\n".join(lines)))


def _split_table(lines: Sequence[str], width: int) -> Iterator[Any]:
    """Split a Markdown table into tables of rich that fit the width, each with the first column; break long heads."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    def read(cell: str) -> Text:
        bold = cell.startswith("**")
        return Text(re.sub(r"\\(.)", r"\1", cell.strip("*") if bold else cell), "bold" if bold else "")

    head, _, *body = ([read(cell.strip()) for cell in _BAR.split(line)[1:-1]] for line in lines)
    words = [max(map(len, each.plain.split()), default=0) for each in head]
    widths = [max([words[c], *(row[c].cell_len for row in body)]) for c in range(len(head))]
    if sum(3 + max(widths[c], head[c].cell_len) for c in range(len(head))) - 3 <= width:
        widths = [max(widths[c], head[c].cell_len) for c in range(len(head))]
    blocks: list[list[int]] = []
    for c in range(1, len(head)):
        if not blocks or widths[0] + sum(3 + widths[other] for other in [*blocks[-1], c]) > width:
            blocks.append([])
        blocks[-1].append(c)
    for block in blocks:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        for c in (0, *block):
            table.add_column(head[c], justify="right" if c else "left", width=widths[c], vertical="bottom")
        for row in body:
            table.add_row(*(row[c] for c in (0, *block)))
        yield table


def _print_wrapped(head: str, colour: int, text: str) -> None:
    """Print a sentence on standard error, whose lines end between words on a terminal."""
    line = f"{head} {escape_line(text)}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    print(line.replace(head, _paint(head, colour), 1), file=sys.stderr, flush=True)


def escape_line(text: str) -> str:
    r"""Escape what a terminal would obey, and line breaks: all characters that are not printed.

    >>> print(escape_line("a\x1b[2Jb\nc"))
    a\x1b[2Jb\nc
    """
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if _is_control(c) else c for c in text)


def _is_control(character: str) -> bool:
    """Say whether a character is a control or format character, half of a pair, or a line separator."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _paint(text: str, colour: int) -> str:
    """Colour a text for standard error, if that is a terminal whose user has not asked for none (no-color.org)."""
    plain = not sys.stderr.isatty() or os.environ.get("NO_COLOR")
    return text if plain else f"\x1b[1;{colour}m{text}\x1b[0m"
