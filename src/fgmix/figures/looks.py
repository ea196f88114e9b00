"""Colour and marker of every algorithm and domain, the same in every figure and in the report.

Colours are those of Okabe and Ito, and of Tol, which people with any colour vision can distinguish. If there are more
algorithms than colours, markers differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fgmix.figures.description import INK
from fgmix.seeding import seed_hash

GREY = "#999999"
_OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_TOL_MUTED = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499")
# The baseline and the variants of FGMix, which figures of the paper compare. Others get a colour by their key.
_OWN = {
    "erm": "#000000",
    "fgmix": "#D55E00",
    "fgmix_a": "#0072B2",
    "fgmix_b": "#56B4E9",
    "fgmix_c": "#009E73",
    "fgmix_d": "#CC79A7",
    "fgmix_e": "#E69F00",
    "fgmix_f": "#8C6D31",
    "fgmix_u": "#637939",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
OURS = "#0072B2"  # our measurements, beside the paper's
OPTIMUM = "#00E5FF"  # the best point of a surface: not in its colour map, not of a path
LOSS_COLOURS, ACCURACY_COLOURS = "magma", "cividis"  # colour maps that are easy to distinguish


class Look(NamedTuple):
    """A colour and a marker."""

    colour: str
    marker: str

    @property
    def ink(self) -> str:
        """The colour; instead of black that of the text, which is visible on a dark screen."""
        return INK if self.colour == "#000000" else self.colour


MIXED_LOOKS = {"interpolated": Look("#000000", "x"), "extrapolated": Look("#D00000", "+")}  # of mixed codes


def assign_domain_looks(domains: Sequence[str]) -> dict[str, Look]:
    """Assign looks to a dataset's domains, by their order in it; pass all of them, shown or not.

    >>> assign_domain_looks(["art", "photo"])["photo"]
    Look(colour='#E69F00', marker='s')
    """
    return {
        str(name): Look(_OKABE_ITO[i % len(_OKABE_ITO)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(domains)
    }


def choose_look(key: str) -> Look:
    """Choose the look of an algorithm, from its key alone: the same in every figure, for any model, arm and folder.

    >>> choose_look("erm")
    Look(colour='#000000', marker='o')
    """
    algorithm = key.partition(" ")[0]  # without an arm: names of algorithms have no blanks
    if algorithm in _OWN:
        return Look(_OWN[algorithm], MARKERS[list(_OWN).index(algorithm) % len(MARKERS)])
    place = seed_hash("method", algorithm)
    return Look(_TOL_MUTED[place % len(_TOL_MUTED)], MARKERS[place // len(_TOL_MUTED) % len(MARKERS)])


def assign_looks(algorithms: Iterable[str]) -> dict[str, Look]:
    """Assign looks to the algorithms of one figure, all different: if two coincide, the second gets another marker.

    An algorithm has the same look in all folders.
    """
    looks: dict[str, Look] = {}
    for name in sorted(set(algorithms)):
        own = choose_look(name)
        first = MARKERS.index(own.marker)
        markers = (*MARKERS[first:], *MARKERS[:first])
        free = [look for look in (Look(own.colour, marker) for marker in markers) if look not in looks.values()]
        looks[name] = free[0] if free else own
    return looks


def list_looks(algorithms: Iterable[str]) -> list[Look]:
    """List the look of each algorithm of a figure."""
    keys = list(map(str, algorithms))
    looks = assign_looks(keys)
    return [looks[key] for key in keys]
