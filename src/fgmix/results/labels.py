"""Labels of methods, from their records, and names of datasets and domains in the paper and in DomainBed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fgmix.records.schema import Model, RunRecord, printed

Labels = Mapping[str, str]  # a method's key → its label

_SPAWRIOUS = ("O2O_easy", "O2O_medium", "O2O_hard", "M2M_easy", "M2M_medium", "M2M_hard")
_VEHICLES = ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe")

# Domains in the order in which DomainBed numbers them, each with the paper's short name, or its own if the paper lacks
# the dataset. Without WILDSFMoW, whose regions DomainBed numbers as they first appear in a metadata file.
_DOMAINS = {
    "PACS": {"art_painting": "A", "cartoon": "C", "photo": "P", "sketch": "S"},
    "VLCS": {"Caltech101": "C", "LabelMe": "L", "SUN09": "S", "VOC2007": "V"},
    "OfficeHome": {"Art": "A", "Clipart": "C", "Product": "P", "Real World": "R"},
    "TerraIncognita": {"location_100": "L100", "location_38": "L38", "location_43": "L43", "location_46": "L46"},
    "DomainNet": {
        "clipart": "clip",
        "infograph": "info",
        "painting": "paint",
        "quickdraw": "quick",
        "real": "real",
        "sketch": "sketch",
    },
    "rotated_mnist": {angle: angle for angle in ("0", "15", "30", "45", "60", "75")},
    "colored_mnist": {name: name for name in ("+90%", "+80%", "-90%")},
    "SVIRO": {name: name for name in _VEHICLES},
    "WILDSCamelyon": {name: name for name in (f"hospital_{i}" for i in range(5))},
    **{f"Spawrious{kind}": {n: n for n in ("Test", "SC_group_1", "SC_group_2")} for kind in _SPAWRIOUS},
}
_DOMAINBED_DATASETS = {"rotated_mnist": "RotatedMNIST", "colored_mnist": "ColoredMNIST"}


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


def to_domainbed_dataset(dataset: str) -> str:
    """DomainBed's name of a dataset; ours if DomainBed does not have it."""
    return _DOMAINBED_DATASETS.get(dataset, dataset)


def from_domainbed_dataset(name: str) -> str:
    """Our key of a dataset of DomainBed; DomainBed's name if ours is the same, or if we do not have it.

    >>> from_domainbed_dataset("RotatedMNIST"), from_domainbed_dataset("SVIRO")
    ('rotated_mnist', 'SVIRO')
    """
    return next((ours for ours, theirs in _DOMAINBED_DATASETS.items() if theirs == name), name)


def known_domains(dataset: str) -> tuple[str, ...]:
    """Domains of a dataset in the order in which DomainBed numbers them; empty for datasets that are not listed here.

    >>> known_domains("PACS")
    ('art_painting', 'cartoon', 'photo', 'sketch')
    """
    return tuple(_DOMAINS.get(dataset, ()))


def paper_domain(dataset: str, domain: str) -> str | None:
    """The paper's short name of a domain; None if it is not listed here. Case, spaces, "_" and "-" do not matter.

    Domains of listed datasets that the paper does not have keep their own names.

    >>> paper_domain("OfficeHome", "Real_World"), paper_domain("digits", "photo")
    ('R', None)
    """
    shorts = {_plain(name): short for name, short in _DOMAINS.get(dataset, {}).items()}
    return shorts.get(_plain(domain))


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()
