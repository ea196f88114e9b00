"""Facts about benchmarks: domains in DomainBed's order, numbers of images, classes, and names in the paper.

They are in `benchmarks.toml`; `fgmix.data.benchmarks` loads the images. Numbers of images are those of DomainBed's
paper, and of the papers of Spawrious and WILDS; for DomainNet, those of its cleaned version without the listed
duplicates. DomainBed-OOP is a subset of each of the first five.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


@dataclass(frozen=True)
class Benchmark:
    """Description of a benchmark of images in files."""

    name: str  # registered name, which is DomainBed's
    folder: str  # its folder under the data root, as named by DomainBed
    # For each edition in use, the domains in the order in which DomainBed numbers them, with their numbers of images; 0
    # for a number that is not published.
    editions: Mapping[str, Mapping[str, int]]
    n_classes: int  # number of classes
    classes: tuple[str, ...] | None = None  # sorted class names, if known
    total: int | None = None  # number of images, if it is published only for all domains together
    home: str = ""  # where to get it, if `fgmix data download` does not support it
    whole: str = ""  # name of the benchmark that it is a subset of; empty if there is none
    is_numbered: bool = True  # whether the order of domains is DomainBed's
    # The paper's names of the domains; empty if the paper does not have the benchmark.
    short_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains' folders, sorted: the order of their numbers in our datasets."""
        return tuple(sorted(next(iter(self.editions.values()))))

    @property
    def n_images(self) -> int | None:
        """Number of images of the first edition; None if it is not published."""
        return self.total or sum(next(iter(self.editions.values())).values()) or None

    @property
    def summary(self) -> str:
        """One line for `fgmix list datasets`."""
        counted = f"{self.n_images:,} images" if self.n_images else f"a subset of {self.whole}"
        return (
            f"{counted}, {self.n_classes} classes, {len(self.domains)} domains ({', '.join(self.domains)}); "
            f"needs a data root with {self.folder}/"
        )


with open(Path(__file__).with_suffix(".toml"), "rb") as _file:
    _ALL = msgspec.convert(tomllib.load(_file)["benchmark"], list[Benchmark])


def _spawrious(name: str) -> Benchmark:
    return Benchmark(
        f"Spawrious{name}",
        "spawrious224",
        {"official": {"Test": 8 * 3168, "SC_group_1": 4 * 3168, "SC_group_2": 4 * 3168}},
        4,
        ("bulldog", "corgi", "dachshund", "labrador"),
        home="https://github.com/aengusl/spawrious",
    )


def _out_of_pretraining(whole: Benchmark) -> Benchmark:
    """Describe the out-of-pretraining subset of a benchmark: images that CLIP does not align with their class names.

    Teterwak et al., "Is Large-scale Pretraining the Secret to Good Domain Generalization?", 2025,
    https://arxiv.org/abs/2412.02856. Some classes may have no image in it.
    """
    return Benchmark(
        f"{whole.name}-OOP",
        f"hard/{whole.folder}",
        {"official": dict.fromkeys(whole.domains, 0)},
        whole.n_classes,
        home="https://huggingface.co/datasets/PTeterwak/DomainBed_OOP",
        whole=whole.name,
        is_numbered=False,
    )


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        *_ALL,
        *map(_spawrious, ("O2O_easy", "O2O_medium", "O2O_hard", "M2M_easy", "M2M_medium", "M2M_hard")),
        *map(_out_of_pretraining, _ALL[:5]),
    )
}

# Datasets that are generated from MNIST: DomainBed's names, and the domains in its order.
_GENERATED = {
    "rotated_mnist": ("RotatedMNIST", ("0", "15", "30", "45", "60", "75")),
    "colored_mnist": ("ColoredMNIST", ("+90%", "+80%", "-90%")),
}


def known_domains(dataset: str) -> tuple[str, ...]:
    """List the domains of a dataset in the order in which DomainBed numbers them; none if the order is not known.

    >>> known_domains("PACS"), known_domains("some/folder")
    (('art_painting', 'cartoon', 'photo', 'sketch'), ())
    """
    if dataset in _GENERATED:
        return _GENERATED[dataset][1]
    benchmark = BENCHMARKS.get(dataset)
    return tuple(next(iter(benchmark.editions.values()))) if benchmark and benchmark.is_numbered else ()


def paper_domain(dataset: str, domain: str) -> str | None:
    """Return the paper's short name of a domain; None if it is not known. Case, spaces, "_" and "-" do not matter.

    Domains of known datasets that the paper does not have keep their own names.

    >>> paper_domain("OfficeHome", "Real_World"), paper_domain("digits", "photo")
    ('R', None)
    """
    shorts = BENCHMARKS[dataset].short_names if dataset in BENCHMARKS else {}
    return {plain_name(name): shorts.get(name, name) for name in known_domains(dataset)}.get(plain_name(domain))


def plain_name(name: str) -> str:
    """Drop case, spaces, "_" and "-" from a name, for comparisons."""
    return re.sub(r"[\s_-]", "", name).lower()


def to_domainbed_dataset(dataset: str) -> str:
    """Return DomainBed's name of a dataset; ours if DomainBed does not have it."""
    return _GENERATED[dataset][0] if dataset in _GENERATED else dataset


def from_domainbed_dataset(name: str) -> str:
    """Return our name of a dataset of DomainBed; DomainBed's if ours is the same, or if we do not have it.

    >>> from_domainbed_dataset("RotatedMNIST"), from_domainbed_dataset("SVIRO")
    ('rotated_mnist', 'SVIRO')
    """
    return next((ours for ours, (theirs, _) in _GENERATED.items() if theirs == name), name)
