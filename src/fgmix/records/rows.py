"""Rows of tables."""

from __future__ import annotations

from fgmix.records.evaluations import Model


def printed(label: str, model: Model) -> str:
    """A method's label in tables, with the kind of weight average, if any.

    >>> printed("CORAL", "raw"), printed("CORAL", "swa")
    ('CORAL', 'CORAL + SWA')
    """
    return label if model == "raw" else f"{label} + {model.upper()}"
