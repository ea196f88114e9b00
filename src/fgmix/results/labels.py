"""Labels of methods, from their records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fgmix.records.evaluations import Model
from fgmix.records.rows import printed
from fgmix.records.schema import RunRecord

Labels = Mapping[str, str]  # a method's key → its label


def labels_of(records: Iterable[RunRecord]) -> dict[str, str]:
    """The label of each method, from its records; its key if none of them has one."""
    labels: dict[str, str] = {}
    for record in records:
        arm, origin = record.spec.arm, record.origin
        own = f"{record.label} ({arm})" if arm else record.label
        for key, label in ((record.spec.method, own), (record.method, f"{own} ({origin})" if origin else own)):
            if labels.get(key, key) == key:
                labels[key] = label
    return labels


def algorithm_of(key: str) -> str:
    """The algorithm of a method's key, without arm and origin.

    >>> algorithm_of("fgmix (γ = 10)"), algorithm_of("fgmix @ DomainBed"), algorithm_of("fgmix")
    ('fgmix', 'fgmix', 'fgmix')
    """
    return split_origin(key)[0].partition(" (")[0]


def split_origin(key: str) -> tuple[str, str]:
    """A method's key without its origin, and the origin; "" for none.

    >>> split_origin("fgmix (γ = 10) @ runs"), split_origin("erm")
    (('fgmix (γ = 10)', 'runs'), ('erm', ''))
    """
    own, _, origin = key.partition(" @ ")
    return own, origin


def method_label(labels: Labels, algorithm: str, model: Model = "raw") -> str:
    """A method as printed: its label, or its key if it has none, and the kind of weight average, if any.

    >>> method_label({"l2a_ot": "L2A-OT"}, "l2a_ot", "swa"), method_label({}, "my_own")
    ('L2A-OT + SWA', 'my_own')
    """
    return printed(labels.get(algorithm, algorithm), model)


def from_domainbed_method(name: str) -> str:
    """Our key of a method in DomainBed's files: its name in lower case, with words joined by underscores.

    >>> from_domainbed_method("ANDMask"), from_domainbed_method("L2A-OT + SWA")
    ('andmask', 'l2a_ot + swa')
    """
    return re.sub(r"(?<=\w)[ -](?=\w)", "_", name.lower())
