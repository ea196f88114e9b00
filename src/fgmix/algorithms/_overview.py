"""The methods as a table: what each declares about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fgmix.algorithms._base import FAMILIES
from fgmix.algorithms._registry import get, names
from fgmix.errors import unknown


@dataclass(frozen=True)
class Overview:
    """A row of the table of methods; texts are empty if a method does not declare them.

    `cost` is that of a step relative to ERM in floating-point operations, such as "1.3"; `needs` names several domains,
    feature maps, further networks, …
    """

    name: str
    label: str
    year: str
    family: str
    cost: str
    needs: str
    paper: str


def overview(chosen: Sequence[str] | None = None, family: str | None = None) -> list[Overview]:
    """Return the rows of the named methods, of all by default, and of one family if it is given.

    >>> [row] = overview(["mixup"])
    >>> row.year, row.family, row.needs
    ('2018', 'mixup', '2 domains')
    """
    if family is not None and family not in FAMILIES:
        raise unknown("family", family, FAMILIES)
    rows = [_row(name) for name in (names() if chosen is None else chosen)]
    return [row for row in rows if family in (None, row.family)]


def _row(name: str) -> Overview:
    algorithm = get(name)
    needs = [
        f"{algorithm.min_domains} domains" if algorithm.min_domains > 1 else "",
        "feature maps" if algorithm.needs_stages else "",
        algorithm.keeps or "",
    ]
    return Overview(
        name=name,
        label=algorithm.label,
        year=str(algorithm.year or ""),
        family=algorithm.family or "",
        cost="" if algorithm.cost is None else f"{algorithm.cost:g}",
        needs=", ".join(filter(None, needs)),
        paper=algorithm.paper or "",
    )
