"""Tables of results as HTML, which the script of the page sorts and filters."""

from __future__ import annotations

from fgmix.report.html import Html, element
from fgmix.results.formats import footnotes
from fgmix.results.published import AVERAGE
from fgmix.results.tables import Entry, Row, Table

LONG = 16  # characters; longer row names are wrapped on a phone


def table_html(table: Table) -> Html:
    """A table with its caption and footnotes; our numbers link to the runs behind them.

    Args:
        table: rows and columns.
    """
    notes = footnotes(table)
    head = element("tr", *(_head(name, number=i > 0) for i, name in enumerate((table.corner, *table.columns))))
    body = [
        element(
            "tr",
            element("th", table.label(row), scope="row", class_="long" if len(table.label(row)) > LONG else None),
            [_cell(table, row, i, notes) for i in range(len(row.entries))],
        )
        for row in table.rows
    ]
    return element(
        "section",
        element("h3", table.title),
        element(
            "div",
            element("table", element("thead", head), element("tbody", body), class_="sortable"),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label=table.title,
        ),
        element("p", table.caption, class_="caption"),
        element("ol", [element("li", note) for note in notes], class_="notes") if notes else "",
    )


def _head(name: str, *, number: bool) -> Html:
    return element("th", element("button", name, type="button"), scope="col", class_="number" if number else None)


def _cell(table: Table, row: Row, column: int, notes: dict[str, int]) -> Html:
    entry = row.entries[column]
    shown = element("strong", entry.shown) if table.is_best(row, column) else entry.shown
    mark = element("sup", str(notes[entry.note]), title=entry.note) if entry.note else ""
    kind = "words" if entry.value is None and entry.text else "number"
    return element("td", _traced(table, row, column, shown), mark, class_=kind, data_value=_sort_value(entry))


def _traced(table: Table, row: Row, column: int, shown: str) -> str:
    """A link to the runs behind one of our numbers, in the table of a dataset."""
    name = table.columns[column]
    if table.dataset is None or row.source or row.entries[column].value is None:
        return shown
    domain = None if name == AVERAGE else name
    return element(
        "a", shown, href="#runs", data_dataset=table.dataset, data_algorithm=row.method.algorithm, data_domain=domain
    )


def _sort_value(entry: Entry) -> str | None:
    """Sort key of an entry: its number, or None for its text; entries without either come last."""
    if entry.value is not None:
        return repr(float(entry.value))
    return None if entry.text else ""
