"""Names as readers know them: of methods, of datasets and their domains, in the paper and in DomainBed."""

from __future__ import annotations

import re

# In the order of the paper's tables, which is the order of rows where the caller gives none.
METHODS = {
    "erm": "ERM",
    "mixup": "Mixup",
    "manifold_mixup": "Manifold Mixup",
    "mixstyle": "MixStyle",
    "metamixup": "MetaMixup",
    "pcgrad": "PCGrad",
    "andmask": "AND-Mask",
    "sandmask": "SAND-Mask",
    "fish": "Fish",
    "fishr": "Fishr",
    "l2a_ot": "L2A-OT",
    "cnsn": "CNSN",
    "ddg": "DDG",
    "selfreg": "SelfReg",
    "sagnet": "SagNet",
    "coral": "CORAL",
    "mmd": "MMD",
    "mldg": "MLDG",
    "irm": "IRM",
    "vrex": "VREx",
    "groupdro": "GroupDRO",
    "rsc": "RSC",
    **{f"fgmix_{variant}": f"FGMix-{variant.upper()}" for variant in "abcdef"},
    "fgmix": "FGMix",
}

# DomainBed's names of the methods it has, where they are not the label.
_DOMAINBED_METHODS = {"andmask": "ANDMask", "sandmask": "SANDMask"}

# Domains in the order that numbers them (folder names, sorted), each with the paper's short name.
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
}
_DOMAINBED_DATASETS = {"rotated_mnist": "RotatedMNIST", "colored_mnist": "ColoredMNIST"}


def method_label(algorithm: str, model: str = "raw") -> str:
    """The name of a row: a method, and whether its weights were averaged.

    >>> method_label("l2a_ot"), method_label("fgmix", "swa"), method_label("my_own")
    ('L2A-OT', 'FGMix + SWA', 'my_own')
    """
    name = METHODS.get(algorithm, algorithm)
    return name if model == "raw" else f"{name} + {model.upper()}"


def to_domainbed_method(algorithm: str) -> str:
    """DomainBed's name of a method; the label of one that it does not have.

    >>> to_domainbed_method("andmask"), to_domainbed_method("fgmix")
    ('ANDMask', 'FGMix')
    """
    return _DOMAINBED_METHODS.get(algorithm, method_label(algorithm))


def from_domainbed_method(name: str) -> str:
    """Our name of DomainBed's method; its own name where we do not have it."""
    return next((algorithm for algorithm in METHODS if to_domainbed_method(algorithm) == name), name)


def to_domainbed_dataset(dataset: str) -> str:
    """DomainBed's name of a dataset; ours where it does not have it."""
    return _DOMAINBED_DATASETS.get(dataset, dataset)


def from_domainbed_dataset(name: str) -> str:
    """Our name of DomainBed's dataset; its own name where we do not have it.

    >>> from_domainbed_dataset("RotatedMNIST"), from_domainbed_dataset("SVIRO")
    ('rotated_mnist', 'SVIRO')
    """
    return next((ours for ours, theirs in _DOMAINBED_DATASETS.items() if theirs == name), name)


def known_domains(dataset: str) -> tuple[str, ...]:
    """Domains of a dataset that is known by name, in the order that numbers them; empty if it is not known.

    >>> known_domains("PACS")
    ('art_painting', 'cartoon', 'photo', 'sketch')
    """
    return tuple(_DOMAINS.get(dataset, ()))


def paper_domain(dataset: str, domain: str) -> str | None:
    """The paper's short name of a domain; None if the paper does not have it. Spelling of spaces does not matter.

    >>> paper_domain("OfficeHome", "Real_World"), paper_domain("digits", "photo")
    ('R', None)
    """
    shorts = {_plain(name): short for name, short in _DOMAINS.get(dataset, {}).items()}
    return shorts.get(_plain(domain))


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()
