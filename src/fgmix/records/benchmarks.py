"""Facts about benchmarks: domains in DomainBed's order, numbers of images, classes, and names in the paper.

`fgmix.data.benchmarks` loads them. Numbers of images are those of DomainBed's paper, and of the papers of Spawrious and
WILDS; for DomainNet, those of its cleaned version without the listed duplicates. DomainBed-OOP is a subset of each of
the first five.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Benchmark:
    """Description of a benchmark of images in files."""

    name: str  # registered name, which is DomainBed's
    folder: str  # its folder under the data root, as named by DomainBed
    # For each edition in use, the domains in the order in which DomainBed numbers them, with their numbers of images;
    # None for a number that is not published.
    editions: Mapping[str, Mapping[str, int | None]]
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
        counts = [n for n in next(iter(self.editions.values())).values() if n is not None]
        return self.total or sum(counts) or None


_ALL = (
    Benchmark(
        "PACS",
        "PACS",
        {"official": {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}},
        7,
        ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
        short_names={"art_painting": "A", "cartoon": "C", "photo": "P", "sketch": "S"},
    ),
    Benchmark(
        "VLCS",
        "VLCS",
        {"official": {"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376}},
        5,
        ("bird", "car", "chair", "dog", "person"),
        short_names={"Caltech101": "C", "LabelMe": "L", "SUN09": "S", "VOC2007": "V"},
    ),
    Benchmark(
        "OfficeHome",
        "office_home",
        {"official": {"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357}},
        65,
        tuple(
            (  # noqa: SIM905 (65 names)
                "Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards "
                "Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder "
                "Fork Glasses Hammer Helmet Kettle Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug "
                "Notebook Oven Pan Paper_Clip Pen Pencil Postit_Notes Printer Push_Pin Radio Refrigerator Ruler "
                "Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon TV Table Telephone ToothBrush Toys "
                "Trash_Can Webcam"
            ).split()
        ),
        short_names={"Art": "A", "Clipart": "C", "Product": "P", "Real World": "R"},
    ),
    Benchmark(
        "TerraIncognita",
        "terra_incognita",
        {
            "DomainBed's paper (24,788 images)": {
                "location_100": 4879,
                "location_38": 9767,
                "location_43": 4020,
                "location_46": 6122,
            },
            # from caltech_camera_traps.json.zip; eccv_18_annotations.tar.gz reportedly gives the paper's numbers
            "the labels revised in 2021 (24,330 images)": {
                "location_100": 4741,
                "location_38": 9736,
                "location_43": 3970,
                "location_46": 5883,
            },
        },
        10,
        ("bird", "bobcat", "cat", "coyote", "dog", "empty", "opossum", "rabbit", "raccoon", "squirrel"),
        short_names={"location_100": "L100", "location_38": "L38", "location_43": "L43", "location_46": "L46"},
    ),
    Benchmark(
        "DomainNet",
        "domain_net",
        {
            "official": {
                "clipart": 48129,
                "infograph": 51605,
                "painting": 72266,
                "quickdraw": 172500,
                "real": 172947,
                "sketch": 69128,
            }
        },
        345,
        short_names={
            "clipart": "clip",
            "infograph": "info",
            "painting": "paint",
            "quickdraw": "quick",
            "real": "real",
            "sketch": "sketch",
        },
    ),
    Benchmark(
        "SVIRO",
        "sviro",
        {
            "official": dict.fromkeys(
                ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe")
            )
        },
        7,
        total=56_000,
    ),
    Benchmark(
        "WILDSCamelyon",
        "camelyon17_v1.0",
        {
            "official": {
                "hospital_0": 59_436,
                "hospital_1": 34_904,
                "hospital_2": 85_054,
                "hospital_3": 129_838,
                "hospital_4": 146_722,
            }
        },
        2,
        ("normal", "tumor"),
        home="https://wilds.stanford.edu/downloads",
    ),
    Benchmark(
        "WILDSFMoW",
        "fmow_v1.1",
        {"official": dict.fromkeys(("Africa", "Americas", "Asia", "Europe", "Oceania", "Other"))},
        62,
        total=470_086,
        home="https://wilds.stanford.edu/downloads",
        is_numbered=False,  # DomainBed numbers regions as they first appear in a metadata file
    ),
)


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
        {"official": dict.fromkeys(whole.domains)},
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
