"""One colour and one marker for one thing, in every figure and in the report.

Colours are Okabe and Ito's and Tol's, which people with any colour vision can tell apart. Where there are more things
than colours, markers tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fgmix.results.labels import METHODS
from fgmix.seeding import seed_hash

GREY = "#999999"
_OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_TOL_MUTED = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499")
_OWN = {
    "ERM": "#000000",
    "FGMix": "#D55E00",
    "FGMix-A": "#0072B2",
    "FGMix-B": "#56B4E9",
    "FGMix-C": "#009E73",
    "FGMix-D": "#CC79A7",
    "FGMix-E": "#E69F00",
    "FGMix-F": "#8C6D31",
}
_OTHERS = [label for label in METHODS.values() if label not in _OWN]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


class Look(NamedTuple):
    """Colour and marker of a thing."""

    colour: str
    marker: str


def domain_looks(domains: Sequence[str]) -> dict[str, Look]:
    """Looks of a dataset's domains, by their place in it; pass all of them, drawn or not.

    >>> domain_looks(["art", "photo"])["photo"]
    Look(colour='#E69F00', marker='s')
    """
    return {
        str(name): Look(_OKABE_ITO[i % len(_OKABE_ITO)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(domains)
    }


def method_look(label: str) -> Look:
    """The look of a method, by its name alone; averaged weights ("X + SWA") look like the method.

    >>> method_look("FGMix + SWA") == method_look("FGMix")
    True
    """
    name = label.split(" + ")[0].removesuffix(" (paper)")
    if name in _OWN:
        return Look(_OWN[name], MARKERS[list(_OWN).index(name)])
    place = _OTHERS.index(name) if name in _OTHERS else seed_hash("method", name)
    return Look(_TOL_MUTED[place % len(_TOL_MUTED)], MARKERS[place // len(_TOL_MUTED) % len(MARKERS)])


def line_style(model: str) -> str:
    """Averaged weights are dashed."""
    return "-" if model == "raw" else "--"


def p_text(p: float) -> str:
    """A p value in a figure's cell.

    >>> p_text(0.034), p_text(0.002)
    ('p = 0.03', 'p < 0.01')
    """
    return "p < 0.01" if p < 0.01 else f"p = {p:.2f}"
