"""Tables of selected accuracies: one per dataset, and one over all datasets.

With a_{t,r} the accuracy on test domain t in trial r, in percent, and R trials:

    a dataset's table:   mean_r a_{t,r} ± std_r(a_{t,r}) / √R for each t;   Avg = mean over t of these means
    the overall table:   the same of the trials' means, mean_t a_{t,r};     Avg = mean over datasets

std divides by R, as in DomainBed. On request ± is std itself; the caption says which.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from fgmix.errors import unknown
from fgmix.records.pretraining import warn_of_mixture
from fgmix.records.rows import Labels, Row, label_row, shorten_labels
from fgmix.records.schema import RunRecord
from fgmix.results.published import AVERAGE, order
from fgmix.results.rounding import DASH, accuracy_text
from fgmix.results.selection import RULES, Cell, Missing, Selected, Selection

OVERALL = "Overall"  # title of the table over all datasets
Spread = Literal["stderr", "std"]
SPREADS: dict[Spread, str] = {
    "stderr": "standard error (standard deviation over trials ÷ √trials)",
    "std": "standard deviation over trials",
}
Numbers = dict[int, float | Missing]  # by trial


@dataclass(frozen=True)
class Entry:
    """One entry of a table."""

    value: float | None = None  # the number; None if there is none
    spread: float | None = None  # what is printed after ±
    text: str = ""  # what to print instead of "value ± spread"
    note: str = ""  # a footnote: why there is no number, or which trials are missing
    trials: int | None = None  # number of trials of which it is the mean

    @property
    def shown(self) -> str:
        """The entry as printed: a dash if there is no number."""
        if self.text or self.value is None:
            return self.text or DASH
        return accuracy_text(self.value, self.spread)


@dataclass(frozen=True)
class TableRow:
    """The entries of a row, and what distinguishes it from others with the same key."""

    row: Row  # what the numbers belong to
    entries: tuple[Entry, ...]  # one for each column
    name: str = ""  # text of the first column instead of the label, such as the values of settings
    source: str = ""  # source of the numbers, such as "paper"; empty for our runs
    mark: str = ""  # a symbol after the label, which the caption explains


@dataclass(frozen=True)
class Table:
    """Rows and columns of numbers, with a title and a caption."""

    title: str  # a few words
    caption: str  # the selection rule, the meaning of ± and of the marks
    columns: tuple[str, ...]  # the header, without the first column
    rows: tuple[TableRow, ...]  # in the order of printing
    labels: Labels = field(default_factory=dict)  # of rows
    dataset: str | None = None  # the dataset whose domains the columns are; None for other columns
    best: bool = True  # whether the highest value of each column is printed in bold
    corner: str = "Method"  # the header of the first column

    def _repr_markdown_(self) -> str:
        from fgmix.results.formats import markdown

        return markdown(self)

    def _repr_html_(self) -> str:
        from fgmix.results.formats import html

        return html(self)

    def label(self, row: TableRow) -> str:
        """Print the first column of a row."""
        name = row.name or label_row(self.labels, row.row)
        return " ".join(part for part in (name, row.source and f"({row.source})", row.mark) if part)

    def is_best(self, row: TableRow, column: int) -> bool:
        """Say whether an entry of our runs is the highest of two or more in its column, as printed; ties included."""
        ours = [each.entries[column].value for each in self.rows if not each.source]
        values = [value for value in ours if value is not None]
        value = row.entries[column].value
        if not self.best or row.source or value is None or len(values) < 2:
            return False
        return accuracy_text(value) == accuracy_text(max(values))


@lru_cache(16)
def dataset_table(selection: Selection, dataset: str, *, spread: Spread = "stderr") -> Table:
    """Make the table of one dataset: rows × test domains, and the average over the domains."""
    if dataset not in selection.domains:
        raise unknown("dataset of these records", dataset, selection.domains)
    domains = selection.domains[dataset]
    rows = []
    for row in order_rows(selection, dataset):
        own = selection.trials(dataset, row.origin)
        entries = [
            average_trials({r: _number(selection, Cell(dataset, row, r, t)) for r in own}, spread) for t in domains
        ]
        rows.append(TableRow(row, (*entries, _average(entries, domains))))
    caption = write_caption(
        selection, spread, [dataset], f"{AVERAGE}: mean over the test domains{_list_held_out(selection, dataset)}."
    )
    labels = shorten_labels(selection.labels, [row.row for row in rows])
    return Table(dataset, caption, (*domains, AVERAGE), tuple(rows), labels, dataset)


def overall_table(selection: Selection, *, spread: Spread = "stderr", partial_trials: bool = False) -> Table:
    """Make the table over all datasets: rows × datasets, and the average over the datasets.

    With `partial_trials` a trial is averaged over the domains it has, as DomainBed does; else one that lacks a domain
    is left out: a mean without, say, the hardest domain would be misleading.
    """
    rows = []
    for row in order_rows(selection):
        entries = [average_dataset(selection, name, row, spread, partial_trials) for name in selection.domains]
        rows.append(TableRow(row, (*entries, _average(entries, tuple(selection.domains)))))
    caption = f"{overall_caption(selection, spread, partial_trials)} {AVERAGE}: mean over the datasets."
    return Table(OVERALL, caption, (*selection.domains, AVERAGE), tuple(rows), selection.labels)


def _list_held_out(selection: Selection, dataset: str) -> str:
    """Name the test domains if they are not all domains of the dataset; else empty."""
    domains, every = selection.domains[dataset], selection.all_domains[dataset]
    return f" {', '.join(domains)} ({len(domains)} of the {len(every)} domains)" if len(domains) < len(every) else ""


def overall_caption(selection: Selection, spread: Spread, partial_trials: bool = False) -> str:
    """Write the caption of numbers that are means over the test domains of a dataset."""
    partial = " A trial that lacks a domain is averaged over those it has, as in DomainBed." if partial_trials else ""
    return write_caption(selection, spread, selection.domains, f"A trial is the mean over its test domains.{partial}")


def drop_empty(table: Table) -> Table:
    """Drop rows and columns without a number."""
    rows = [row for row in table.rows if any(entry.value is not None for entry in row.entries)]
    kept = [c for c in range(len(table.columns)) if any(row.entries[c].value is not None for row in rows)]
    return replace(
        table,
        columns=tuple(table.columns[c] for c in kept),
        rows=tuple(replace(row, entries=tuple(row.entries[c] for c in kept)) for row in rows),
    )


def order_rows(selection: Selection, dataset: str | None = None) -> list[Row]:
    """Order the rows: raw models first; ERM, the paper's methods in its order, and others; arms by name."""
    places = {name: place for place, name in enumerate(order())}
    known = {cell.row for cell in selection.cells if dataset in (None, cell.dataset)}
    rows = [row for row in selection.rows() if row in known]
    return sorted(rows, key=lambda row: (row.model != "raw", places.get(row.algorithm, len(places)), *row[:2]))


def _number(selection: Selection, cell: Cell) -> float | Missing:
    outcome = selection.cells.get(cell, Missing("not run"))
    return outcome.accuracy if isinstance(outcome, Selected) else outcome


def average_dataset(
    selection: Selection, dataset: str, row: Row, spread: Spread, partial_trials: bool = False
) -> Entry:
    """Average a row over the test domains of a dataset, then over trials."""
    return average_trials(average_domains(selection, dataset, row, partial_trials), spread)


def average_domains(selection: Selection, dataset: str, row: Row, partial_trials: bool = False) -> Numbers:
    """Average each trial of a row over the test domains."""
    trials = selection.trials(dataset, row.origin)
    return {trial: _average_trial(selection, dataset, row, trial, partial_trials) for trial in trials}


def _average_trial(selection: Selection, dataset: str, row: Row, trial: int, partial_trials: bool) -> float | Missing:
    """Average a trial over the test domains; the reasons if one has no number, or, for partial trials, if none has."""
    numbers = [_number(selection, Cell(dataset, row, trial, domain)) for domain in selection.domains[dataset]]
    values = [each for each in numbers if not isinstance(each, Missing)]
    if not values or (len(values) < len(numbers) and not partial_trials):
        return Missing("; ".join(dict.fromkeys(each.reason for each in numbers if isinstance(each, Missing))))
    return sum(values) / len(values)


def average_trials(numbers: Numbers, spread: Spread) -> Entry:
    """Compute mean and spread over the trials that have a number; the note says why the others have none."""
    values = [each for each in numbers.values() if not isinstance(each, Missing)]
    note = _list_reasons({trial: each.reason for trial, each in numbers.items() if isinstance(each, Missing)})
    if not values:
        return Entry(note=note, trials=0)
    if note:
        note = f"{len(values)} of {len(numbers)} trials; {note}"
    # The mean first, then percent, as in DomainBed: the order affects how ties are rounded.
    return Entry(100 * (sum(values) / len(values)), _deviation(values, spread), note=note, trials=len(values))


def _deviation(values: list[float], spread: Spread) -> float | None:
    """Compute the spread over trials, in percentage points; None for a single trial."""
    if spread not in SPREADS:
        raise unknown("spread", spread, SPREADS)
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    std = 100 * math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return std / math.sqrt(len(values)) if spread == "stderr" else std


def _list_reasons(missing: dict[int, str]) -> str:
    """List each reason once, with its trials."""
    trials: dict[str, list[str]] = {}
    for trial, reason in missing.items():
        trials.setdefault(reason, []).append(str(trial))
    return "; ".join(
        f"trial{'s' if len(which) > 1 else ''} {', '.join(which)}: {reason}" for reason, which in trials.items()
    )


def _average(entries: Sequence[Entry], names: Sequence[str]) -> Entry:
    """Average a row's means, without ± as in DomainBed; no number if one of them is missing."""
    values = [entry.value for entry in entries if entry.value is not None]
    if len(values) == len(entries) > 0:
        return Entry(sum(values) / len(values))
    missing = [name for name, entry in zip(names, entries) if entry.value is None]
    return Entry(note=f"no number for {', '.join(missing)}")


def write_caption(selection: Selection, spread: Spread, datasets: Iterable[str], average: str) -> str:
    """Write what the numbers are, how runs are selected, what ± is, and what the average is of."""
    number = selection.metric[:1].upper() + selection.metric[1:]
    named = [*datasets]
    over = _describe_trials(selection, named, spread)
    found = [each for cell, each in selection.cells.items() if cell.dataset in named and isinstance(each, Selected)]
    mixture = warn_of_mixture({each.record.spec.pretraining for each in found})
    caption = f"{number} (%) on the test domain. Model selection: {RULES[selection.rule]}. {over}. {average}"
    return " ".join(filter(None, [caption, mixture, _name_adapted(each.record for each in found)]))


def _name_adapted(records: Iterable[RunRecord]) -> str:
    """Write the sentence for a table with methods that adapt to the test domain; empty without one."""
    labels = sorted({record.label for record in records if record.spec.adapts_at_test})
    verb = "adapt" if len(labels) > 1 else "adapts"
    return f"{', '.join(labels)} {verb} to the unlabelled samples of the test domain." if labels else ""


def _describe_trials(selection: Selection, datasets: Sequence[str], spread: Spread) -> str:
    """Count the trials behind the numbers of some datasets, by folder if they differ."""
    by_count: dict[int, list[str]] = {}
    for origin in dict.fromkeys(row.origin for row in selection.rows()):
        count = max((len(selection.trials(dataset, origin)) for dataset in datasets), default=0)
        if count:
            by_count.setdefault(count, []).append(origin)
    if [*by_count] in ([], [1]):
        return "One trial, hence no ±"
    counts = [f"{n} trial{'s' if n > 1 else ''}" for n in by_count]
    if len(counts) > 1:
        counts = [f"{text} ({', '.join(origins)})" for text, origins in zip(counts, by_count.values())]
    return f"{', '.join(counts)}; ± {SPREADS[spread]}"
