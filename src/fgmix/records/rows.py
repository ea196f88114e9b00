"""Rows of tables: what a number belongs to, as a value.

A text such as "FGMix (γ = 10) (runs) + SWA" is made from a row when it is printed, and never parsed: an arm may have
any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fgmix.records.evaluations import Model
from fgmix.records.schema import RunRecord, RunSpec

_SIGN = re.compile(r"[\\()@]")  # those of a key, which a backslash marks in names


class Row(NamedTuple):
    """What the runs of a row have in common."""

    algorithm: str  # registered name
    arm: str = ""  # label of its settings, or those in which its runs differ from others; empty without one
    model: Model = "raw"  # raw weights, or a kind of weight average
    origin: str = ""  # the folder that the runs were read from, or options, in a report of several; else empty

    @property
    def runs(self) -> Row:
        """The row of the runs' raw models: one run has a row for each of its models."""
        return self._replace(model="raw")

    @property
    def anywhere(self) -> Row:
        """The row without its origin."""
        return self._replace(origin="")

    @property
    def key(self) -> str:
        """A text for files and links, equal for the models of a run and different for all others.

        >>> Row("fgmix", "γ = 10", "swa", "runs").key
        'fgmix (γ = 10) @ runs'
        """
        algorithm, arm, origin = (_SIGN.sub(r"\\\g<0>", part) for part in (self.algorithm, self.arm, self.origin))
        return algorithm + (f" ({arm})" if arm else "") + (f" @ {origin}" if origin else "")


Labels = Mapping[Row, str]  # of the runs of a row → how they are printed, with arm and origin


def spec_row(spec: RunSpec) -> Row:
    """Return the row of a run before it is trained."""
    return Row(spec.algorithm, spec.arm)


def record_row(record: RunRecord, model: Model = "raw") -> Row:
    """Return the row of a finished run."""
    arm = ", ".join(filter(None, (record.spec.arm, record.variant)))
    return Row(record.spec.algorithm, arm, model, record.origin)


def collect_labels(records: Iterable[RunRecord]) -> dict[Row, str]:
    """Collect how the rows of some runs are printed, from the labels in their records, with and without origin."""
    labels: dict[Row, str] = {}
    for record in records:
        row = record_row(record)
        own = label_arm(record.label, row.arm)
        for each, label in ((row.anywhere, own), (row, f"{own} ({row.origin})" if row.origin else own)):
            if labels.get(each, each.key) == each.key:  # else a record before had a label of its own
                labels[each] = label
    return labels


def shorten_labels(labels: Labels, rows: Iterable[Row]) -> Labels:
    """Leave the origin out of labels for a table or figure whose rows all have the same one.

    >>> row = Row("erm", origin="laptop")
    >>> shorten_labels({row: "ERM (laptop)", row.anywhere: "ERM"}, [row])[row]
    'ERM'
    """
    if len({row.origin for row in rows}) > 1:
        return labels
    return {row: labels.get(row.anywhere, label) for row, label in labels.items()}


def label_row(labels: Labels, row: Row) -> str:
    """Print a row: its label, or its key if it has none, and the kind of weight average, if any.

    >>> label_row({Row("l2a_ot"): "L2A-OT"}, Row("l2a_ot", model="swa")), label_row({}, Row("my_own"))
    ('L2A-OT + SWA', 'my_own')
    """
    return label_model(labels.get(row.runs, row.runs.key), row.model)


def label_arm(label: str, arm: str) -> str:
    """Print an algorithm with its arm, if it has one."""
    return f"{label} ({arm})" if arm else label


def label_model(label: str, model: Model) -> str:
    """Print a label with the kind of weight average, if any.

    >>> label_model("CORAL", "raw"), label_model("CORAL", "swa")
    ('CORAL', 'CORAL + SWA')
    """
    return label if model == "raw" else f"{label} + {model.upper()}"
