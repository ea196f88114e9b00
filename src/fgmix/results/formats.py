"""Tables as text: Markdown, LaTeX (booktabs), CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from itertools import count

from fgmix.errors import unknown
from fgmix.escape import escape_csv, escape_latex, escape_markdown
from fgmix.results.tables import Entry, Table


def render(tables: Sequence[Table], format: str) -> str:
    """Write tables as "md", "latex" or "csv"."""
    if format not in FORMATS:
        raise unknown("table format", format, FORMATS)
    return FORMATS[format](tables)


def markdown(table: Table) -> str:
    """Write a Markdown table, the best of each column in bold, with footnotes below."""
    notes = footnotes(table)
    head = [escape_markdown(name) for name in (table.corner, *table.columns)]
    lines = [f"### {escape_markdown(table.title)}", "", _line(head), _line(["---", *["---:"] * len(table.columns)])]
    for row in table.rows:
        cells = [
            ("**{}**" if table.is_best(row, i) else "{}").format(escape_markdown(entry.shown))
            + _mark(entry, notes, " [{}]")
            for i, entry in enumerate(row.entries)
        ]
        lines.append(_line([escape_markdown(table.label(row)), *cells]))
    lines += ["", escape_markdown(table.caption)]
    for text, number in notes.items():
        lines += ["", f"[{number}] {escape_markdown(text)}"]
    return "\n".join(lines) + "\n"


def latex(table: Table, label: str = "") -> str:
    r"""Write a LaTeX `table`, the best of each column in bold, with footnotes below, after the name of its package.

    Args:
        table: the table.
        label: for `\ref`; by default made from the title.
    """
    notes = footnotes(table)
    head = [table.corner, *table.columns]
    body = []
    for row in table.rows:
        cells = [
            (r"\textbf{{{}}}" if table.is_best(row, i) else "{}").format(escape_latex(entry.shown))
            + _mark(entry, notes, r"\textsuperscript{{{}}}")
            for i, entry in enumerate(row.entries)
        ]
        body.append(" & ".join([escape_latex(table.label(row)), *cells]) + r" \\")
    below = [rf"\par\footnotesize\textsuperscript{{{number}}} {escape_latex(text)}" for text, number in notes.items()]
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}. {escape_latex(table.caption)}}}",
        rf"\label{{{label or name_label(table.title)}}}",
        rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(map(escape_latex, head)) + r" \\",
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
            names = [escape_csv(n) for n in (table.title, row.name or row.row.key, row.row.model, row.source)]
            for column, entry in zip(table.columns, row.entries):
                numbers = ["" if x is None else repr(x) for x in (entry.value, entry.spread, entry.trials)]
                writer.writerow([*names, escape_csv(column), *numbers, *map(escape_csv, (entry.shown, entry.note))])
    return out.getvalue()


def name_label(title: str) -> str:
    """Make a label for LaTeX from the title of a table.

    >>> name_label("PACS: FGMix (γ = 10) by λ₀")
    'tab:pacs-fgmix-10-by'
    """
    return "tab:" + ("-".join(re.findall("[a-z0-9]+", title.lower())) or "table")


def name_labels(tables: Sequence[Table]) -> list[str]:
    """Make a label for each table; of equal ones, all but the first are numbered."""
    labels: list[str] = []
    for name in (name_label(table.title) for table in tables):
        numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
        labels.append(next(each for each in numbered if each not in labels))
    return labels


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "md": lambda tables: "\n".join(map(markdown, tables)),
    "latex": lambda tables: "\n".join(map(latex, tables, name_labels(tables))),
    "csv": comma_separated,
}


def footnotes(table: Table) -> dict[str, int]:
    """Number every distinct note, in reading order."""
    notes = dict.fromkeys(entry.note for row in table.rows for entry in row.entries if entry.note)
    return {note: number for number, note in enumerate(notes, start=1)}


def _mark(entry: Entry, notes: dict[str, int], template: str) -> str:
    return template.format(notes[entry.note]) if entry.note else ""


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
