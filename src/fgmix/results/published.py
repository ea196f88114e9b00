"""The numbers of the FGMix paper (https://arxiv.org/abs/2209.14742): accuracies, ablation, sensitivity, time per step.

They are read from the tables in `published_tables/`. Accuracies are in percent; ± is a standard error in rows that the
paper cites and a standard deviation over five trials in rows of its own runs (its captions do not say so).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple, get_args

from fgmix.records.evaluations import Model
from fgmix.records.rows import Row

AVERAGE = "Avg"  # the column of averages, in our tables too


class Accuracy(NamedTuple):
    """A published accuracy; None if the paper has none: not all rows that it cites were published by domain."""

    value: float | None = None
    spread: float | None = None


@cache
def order() -> tuple[str, ...]:
    """List the keys of the paper's algorithms in the order of its tables; its own is last, after the variants.

    >>> order()[0], order()[-2:]
    ('erm', ('fgmix_f', 'fgmix'))
    """
    ablation = [line["key"] for line in _read_lines("ablation_by_domain")]
    others = [line["key"] for line in _read_lines("overall") if line["key"] not in ablation]
    return tuple(dict.fromkeys([*others, *ablation]))


@cache
def algorithm_names() -> Mapping[str, str]:
    """Map the keys of the paper's algorithms to its names.

    >>> algorithm_names()["l2a_ot"], algorithm_names()["fgmix_a"]
    ('L2A-OT', 'FGMix-A')
    """
    variants = {line["key"]: f"FGMix-{line['variant']}" for line in _read_lines("ablation_by_domain")}
    return variants | {line["key"]: line["algorithm"] for line in _read_lines("overall") if line["model"] == "raw"}


@cache
def accuracies() -> Mapping[tuple[str, Row, str], Accuracy]:
    """Read the accuracies by dataset, row, and the paper's name of the test domain (or "Avg"), the ablation's too.

    >>> accuracies()["PACS", Row("fgmix", model="swa"), "S"]
    Accuracy(value=83.0, spread=0.8)
    >>> accuracies()["TerraIncognita", Row("fgmix_e"), "Avg"].value
    49.2
    """
    table = {}
    for line in _read_lines("ablation_by_domain"):
        table[line["dataset"], Row(line["key"]), line["test_domain"]] = _accuracy(line["accuracy"], line["std"])
    for line in _read_lines("accuracy_by_domain"):
        table[line["dataset"], _to_row(line), line["test_domain"]] = _accuracy(line["accuracy"], line["stderr_or_std"])
    return table


@cache
def overall() -> Mapping[Row, Mapping[str, float]]:
    """Read the accuracies by row, then by dataset or "Avg".

    >>> overall()[Row("fgmix")]["Avg"]
    65.0
    """
    no_dataset = ("key", "model", "algorithm", "ms_per_iteration")
    table = {}
    for line in _read_lines("overall"):
        numbers = {name: float(text) for name, text in line.items() if name not in no_dataset}
        table[_to_row(line)] = {AVERAGE: numbers.pop("average"), **numbers}
    return table


@cache
def sensitivity() -> Mapping[tuple[str, float, float], float]:
    """Read the accuracy by dataset, initial λ and α.

    >>> sensitivity()["TerraIncognita", 3, 0.1]
    49.2
    """
    return {
        (line["dataset"], float(line["initial_lambda"]), float(line["alpha"])): float(line["accuracy"])
        for line in _read_lines("sensitivity")
    }


@cache
def step_milliseconds() -> Mapping[Row, float]:
    """Read the time per step of each row, raw and averaged.

    >>> step_milliseconds()[Row("erm")]
    284.8
    """
    return {_to_row(line): float(line["ms_per_iteration"]) for line in _read_lines("overall")}


def _to_row(line: Mapping[str, str]) -> Row:
    models: dict[str, Model] = {model: model for model in get_args(Model)}
    return Row(line["key"], model=models[line["model"]])


def _accuracy(value: str, spread: str) -> Accuracy:
    return Accuracy(float(value) if value else None, float(spread) if spread else None)


def _read_lines(name: str) -> list[dict[str, str]]:
    text = (files("fgmix.results") / "published_tables" / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
