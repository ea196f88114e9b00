"""Tables as text: Markdown, LaTeX (booktabs), CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from fgmix.errors import unknown
from fgmix.records.files import escape_cell
from fgmix.results.tables import Entry, Table


def render(tables: Sequence[Table], format: str) -> str:
    """Write tables as "md", "latex" or "csv"."""
    if format not in FORMATS:
        raise unknown("table format", format, FORMATS)
    return FORMATS[format](tables)


def markdown(table: Table) -> str:
    """Write a Markdown table, the best of each column in bold, with footnotes below."""
    notes = footnotes(table)
    head = [table.corner, *table.columns]
    lines = [f"### {table.title}", "", _line(head), _line(["---", *["---:"] * len(table.columns)])]
    for row in table.rows:
        cells = [
            ("**{}**" if table.is_best(row, i) else "{}").format(entry.shown) + _mark(entry, notes, " [{}]")
            for i, entry in enumerate(row.entries)
        ]
        lines.append(_line([table.label(row), *cells]))
    lines += ["", table.caption]
    for text, number in notes.items():
        lines += ["", f"[{number}] {text}"]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    r"""Write a LaTeX `table`, the best of each column in bold, with footnotes below, after the name of its package."""
    notes = footnotes(table)
    head = [table.corner, *table.columns]
    body = []
    for row in table.rows:
        cells = [
            (r"\textbf{{{}}}" if table.is_best(row, i) else "{}").format(escape(entry.shown))
            + _mark(entry, notes, r"\textsuperscript{{{}}}")
            for i, entry in enumerate(row.entries)
        ]
        body.append(" & ".join([escape(table.label(row)), *cells]) + r" \\")
    below = [rf"\par\footnotesize\textsuperscript{{{number}}} {escape(text)}" for text, number in notes.items()]
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(table.title)}. {escape(table.caption)}}}",
        rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(map(escape, head)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *below,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def comma_separated(tables: Sequence[Table]) -> str:
    """Write one line per entry of all tables: names are keys, without marks, and values are not rounded.

    Columns: table, row (the method's key, or the values of settings), model ("raw", "swa", "swad"), source (empty for
    our runs), column, value, spread, trials, shown (the entry as other formats print it), note.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", "row", "model", "source", "column", "value", "spread", "trials", "shown", "note"])
    for table in tables:
        for row in table.rows:
            names = [escape_cell(n) for n in (table.title, row.name or row.row.key, row.row.model, row.source)]
            for column, entry in zip(table.columns, row.entries):
                numbers = ["" if x is None else repr(x) for x in (entry.value, entry.spread, entry.trials)]
                writer.writerow([*names, escape_cell(column), *numbers, entry.shown, escape_cell(entry.note)])
    return out.getvalue()


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "md": lambda tables: "\n".join(map(markdown, tables)),
    "latex": lambda tables: "\n".join(map(latex, tables)),
    "csv": comma_separated,
}

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "–": "--",
    "÷": r"$\div$",
    "√": r"$\surd$",
    "≈": r"$\approx$",
    "λ": r"$\lambda$",
    "α": r"$\alpha$",
    "₀": r"$_0$",
    "χ": r"$\chi$",
    "²": r"$^2$",
    "−": "$-$",
    "≤": r"$\leq$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "--": "-{}-",  # an option of a command, which LaTeX would print as a dash
}
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def escape(text: str) -> str:
    r"""Escape special characters and the symbols of our captions for LaTeX.

    >>> print(escape("+90% of l2a_ot"))
    +90\% of l2a\_ot
    """
    return _SPECIAL.sub(lambda match: _LATEX[match[0]], text)


def footnotes(table: Table) -> dict[str, int]:
    """Number every distinct note, in reading order."""
    notes = dict.fromkeys(entry.note for row in table.rows for entry in row.entries if entry.note)
    return {note: number for number, note in enumerate(notes, start=1)}


def _mark(entry: Entry, notes: dict[str, int], template: str) -> str:
    return template.format(notes[entry.note]) if entry.note else ""


def _line(cells: list[str]) -> str:
    # A vertical bar would end the cell.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
