"""The FGMix paper's own numbers, to stand beside ours: accuracies, ablation, sensitivity, time per step.

They are read from the tables in `published/`. Accuracies are in percent; ± is a standard error in rows that the paper
cites and a standard deviation over five trials in rows that it ran itself (it does not say so in its captions).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from fgmix.results.labels import METHODS, method_label, paper_domain
from fgmix.results.selection import Method
from fgmix.results.tables import AVERAGE, Entry, Row, Table
from fgmix.runs.record import Model

ABOUT = (
    "Rows marked (paper) are the paper's; their ± is a standard error where the paper cites another, else a standard "
    "deviation over its five trials."
)


def beside(table: Table) -> Table:
    """A table of `dataset_table` or `overall_table` with the paper's row under each of ours that it has."""
    rows: list[Row] = []
    for row in table.rows:
        rows.append(row)
        theirs = _entries(table, row.label)
        if any(entry.value is not None for entry in theirs):
            rows.append(Row(f"{row.label} (paper)", theirs))
    if len(rows) == len(table.rows):
        return table
    return replace(table, rows=tuple(rows), caption=f"{table.caption} {ABOUT}")


def _entries(table: Table, label: str) -> tuple[Entry, ...]:
    if table.dataset is None:
        return _overall_entries(label, table.columns)
    columns = [AVERAGE if name == AVERAGE else paper_domain(table.dataset, name) for name in table.columns]
    found = accuracies()
    complete = None not in columns  # else the paper's average is over other domains than ours
    return tuple(
        found.get((table.dataset, label, name), Entry()) if name and (complete or name != AVERAGE) else Entry()
        for name in columns
    )


def _overall_entries(label: str, columns: tuple[str, ...]) -> tuple[Entry, ...]:
    """The paper's average is over its five datasets; over fewer, it is the mean of those shown."""
    theirs = overall().get(label, {})
    datasets = [name for name in columns if name != AVERAGE]
    values = [theirs[name] for name in datasets if name in theirs]
    if len(values) < len(datasets) or not values:
        average = Entry()
    else:
        average = Entry(theirs[AVERAGE] if len(values) == len(theirs) - 1 else sum(values) / len(values))
    return tuple(average if name == AVERAGE else Entry(theirs.get(name)) for name in columns)


@cache
def accuracies() -> Mapping[tuple[str, str, str], Entry]:
    """By dataset, label of the row, and the paper's name of the test domain (or "Avg"); the ablation's rows included.

    >>> accuracies()["PACS", "FGMix + SWA", "S"].shown
    '83.0 ± 0.8'
    >>> accuracies()["TerraIncognita", "FGMix-E", "Avg"].value
    49.2
    """
    found = {}
    for line in _lines("ablation_by_domain"):
        variant = line["variant"]
        label = variant if variant == "FGMix" else f"FGMix-{variant}"
        found[line["dataset"], label, line["test_domain"]] = _entry(line["accuracy"], line["std"])
    for line in _lines("accuracy_by_domain"):
        found[line["dataset"], line["algorithm"], line["test_domain"]] = _entry(line["accuracy"], line["stderr_or_std"])
    return found


@cache
def overall() -> Mapping[str, Mapping[str, float]]:
    """By label of the row, then by dataset or "Avg".

    >>> overall()["FGMix"]["Avg"]
    65.0
    """
    table = {}
    for line in _lines("overall"):
        numbers = {name: float(text) for name, text in line.items() if name not in ("algorithm", "ms_per_iteration")}
        table[line["algorithm"]] = {AVERAGE: numbers.pop("average"), **numbers}
    return table


@cache
def sensitivity() -> Mapping[tuple[str, float, float], float]:
    """Accuracy by dataset, initial λ and α.

    >>> sensitivity()["TerraIncognita", 3, 0.1]
    49.2
    """
    return {
        (line["dataset"], float(line["initial_lambda"]), float(line["alpha"])): float(line["accuracy"])
        for line in _lines("sensitivity")
    }


@cache
def step_milliseconds() -> Mapping[Method, float]:
    """The paper's time per step of each method, raw and averaged."""
    published = {line["algorithm"]: float(line["ms_per_iteration"]) for line in _lines("overall")}
    models: tuple[Model, ...] = ("raw", "swa")
    methods = [Method(algorithm, model) for algorithm in METHODS for model in models]
    return {method: published[method_label(*method)] for method in methods if method_label(*method) in published}


def step_time_ratios() -> dict[str, float]:
    """The paper's time per step over ERM's, by algorithm.

    >>> round(step_time_ratios()["fgmix"], 3)
    1.098
    """
    times = step_milliseconds()
    return {method.algorithm: time / times[Method("erm")] for method, time in times.items() if method.model == "raw"}


def cost_table(milliseconds: Mapping[Method, float]) -> Table:
    """Our time per step and its ratio to ERM's, beside the paper's.

    Args:
        milliseconds: measured time per step by method.
    """
    theirs = step_milliseconds()
    rows = [
        Row(method_label(*method), (*_cost(milliseconds, method), *_cost(theirs, method)), method)
        for method in milliseconds
    ]
    caption = "Time of a training step. Ratios compare; milliseconds depend on machine, backbone and batch."
    columns = ("ms", "÷ ERM", "paper: ms", "paper: ÷ ERM")
    return Table("Cost of a step", caption, columns, tuple(rows), best=False)


def _cost(milliseconds: Mapping[Method, float], method: Method) -> tuple[Entry, Entry]:
    time, erm = milliseconds.get(method), milliseconds.get(Method("erm"))
    if time is None or erm is None:
        return Entry(time), Entry(note="" if time is None else "ERM was not measured")
    return Entry(time), Entry(time / erm, text=f"{time / erm:.2f}")


def _entry(accuracy: str, spread: str) -> Entry:
    """Some of the rows it cites were never published by domain: their entries are empty."""
    return Entry(float(accuracy) if accuracy else None, float(spread) if spread else None)


def _lines(name: str) -> list[dict[str, str]]:
    text = (files("fgmix.results") / "published_tables" / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
