"""Tables as text: Markdown, HTML, LaTeX (booktabs), CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from html import escape
from itertools import count
from os import PathLike
from pathlib import Path

from fgmix.errors import unknown
from fgmix.escape import escape_csv, escape_latex, escape_markdown
from fgmix.records.files import write_bytes
from fgmix.results.tables import Table


class Tables(tuple[Table, ...]):
    """Tables, which a notebook shows."""

    __slots__ = ()

    def to_text(self, format: str = "md") -> str:
        """Write all tables as "md", "latex" or "csv"."""
        if format not in FORMATS:
            raise unknown("table format", format, FORMATS)
        return FORMATS[format](self)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write all tables to a file, by its ending .md, .tex or .csv."""
        endings = {".md": "md", ".tex": "latex", ".csv": "csv"}
        if (ending := Path(path).suffix) not in endings:
            raise unknown("ending of a file of tables", ending, endings)
        write_bytes(Path(path), self.to_text(endings[ending]).encode(errors="backslashreplace"))
        return Path(path)

    def _repr_markdown_(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return "\n".join(map(html, self))


def markdown(table: Table) -> str:
    """Write a Markdown table, the best of each column in bold, with footnotes below."""
    notes = footnotes(table)
    head = [escape_markdown(name) for name in (table.corner, *table.columns)]
    lines = [f"### {escape_markdown(table.title)}", "", _line(head), _line(["---", *["---:"] * len(table.columns)])]
    lines += [_line(cells) for cells in _write_cells(table, escape_markdown, "**{}**", " [{}]")]
    lines += ["", escape_markdown(table.caption)]
    for text, number in notes.items():
        lines += ["", f"[{number}] {escape_markdown(text)}"]
    return "\n".join(lines) + "\n"


def html(table: Table) -> str:
    """Write an HTML table, the best of each column in bold, with footnotes below."""
    notes = footnotes(table)
    lines = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in (table.corner, *table.columns))}</tr>"]
    for head, *cells in _write_cells(table, escape, "<b>{}</b>", "<sup>{}</sup>"):
        lines.append(f"<tr><th>{head}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    below = [f"<p>{escape(table.caption)}</p>", *(f"<p><sup>{n}</sup> {escape(text)}</p>" for text, n in notes.items())]
    return "\n".join([f"<h3>{escape(table.title)}</h3>", "<table>", *lines, "</table>", *below])


def latex(table: Table, label: str = "") -> str:
    r"""Write a LaTeX `table`, the best of each column in bold, with footnotes below, after the name of its package.

    Args:
        table: the table.
        label: for `\ref`; by default made from the title.
    """
    body = _write_cells(table, escape_latex, r"\textbf{{{}}}", r"\textsuperscript{{{}}}")
    below = [rf"\par\footnotesize\textsuperscript{{{n}}} {escape_latex(text)}" for text, n in footnotes(table).items()]
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}. {escape_latex(table.caption)}}}",
        rf"\label{{{label or name_label(table.title)}}}",
        rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(map(escape_latex, (table.corner, *table.columns))) + r" \\",
        r"\midrule",
        *(" & ".join(cells) + r" \\" for cells in body),
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


def _write_cells(table: Table, escape: Callable[[str], str], bold: str, mark: str) -> list[list[str]]:
    """Write the cells of each row: its label, and its entries with the numbers of their footnotes, the best in bold."""
    notes = footnotes(table)
    return [
        [
            escape(table.label(row)),
            *(
                (bold if table.is_best(row, i) else "{}").format(escape(entry.shown))
                + (mark.format(notes[entry.note]) if entry.note else "")
                for i, entry in enumerate(row.entries)
            ),
        ]
        for row in table.rows
    ]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
