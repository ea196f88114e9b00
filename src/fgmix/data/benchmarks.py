"""The image benchmarks of DomainBed: PACS, VLCS, OfficeHome, TerraIncognita, DomainNet, SVIRO, Spawrious and WILDS.

They are folders `domain/class/image` under a data root, named as by DomainBed's download script, or have their own
layout (`data.layouts`). If a copy differs from the expected domains, classes and numbers of images, the dataset gets a
note: results on different copies are not comparable. The numbers are those of DomainBed's paper, and of the papers of
Spawrious and WILDS; for DomainNet, those of its cleaned version without the listed duplicates. DomainBed-OOP is a
subset of each of the first five.

`BENCHMARKS` describes them without loading any data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fgmix.data.dataset import DomainDataset
from fgmix.data.folders import list_some
from fgmix.data.image_cache import cache_dir
from fgmix.data.image_dataset import load_images
from fgmix.data.layouts import (
    BREEDS,
    PER_FOLDER,
    WILDS_CAMELYON,
    WILDS_FMOW,
    Layout,
    spawrious_many_to_many,
    spawrious_one_to_one,
)
from fgmix.data.registry import LoadOptions, register_dataset
from fgmix.errors import MachineError, UserError


@dataclass(frozen=True)
class Benchmark:
    """Description of a benchmark.

    Args:
        name: registered name.
        folder: its folder under the data root, as named by DomainBed.
        editions: number of images of every domain, for each edition in use; None if it is not published.
        n_classes: number of classes.
        classes: sorted class names, if known.
        total: number of images, if it is published only for all domains together.
        layout: how its images are listed; None for folders domain/class/image.
        home: where to get it, if `fgmix data download` does not support it.
        whole: name of the benchmark that it is a subset of; empty if there is none.
    """

    name: str
    folder: str
    editions: Mapping[str, Mapping[str, int | None]]
    n_classes: int
    classes: tuple[str, ...] | None = None
    total: int | None = None
    layout: Layout | None = None
    home: str = ""
    whole: str = ""

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains' folders, in the order of their numbers."""
        return tuple(sorted(next(iter(self.editions.values()))))

    @property
    def marks(self) -> tuple[str, ...]:
        """Entries that its folder must contain: the domains' folders, or those of its layout."""
        return self.layout.marks if self.layout else self.domains

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
    ),
    Benchmark(
        "VLCS",
        "VLCS",
        {"official": {"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376}},
        5,
        ("bird", "car", "chair", "dog", "person"),
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
        layout=WILDS_CAMELYON,
        home="https://wilds.stanford.edu/downloads",
    ),
    Benchmark(
        "WILDSFMoW",
        "fmow_v1.1",
        {"official": dict.fromkeys(("Africa", "Americas", "Asia", "Europe", "Oceania", "Other"))},
        62,
        total=470_086,
        layout=WILDS_FMOW,
        home="https://wilds.stanford.edu/downloads",
    ),
)


def _spawrious(name: str, layout: Layout) -> Benchmark:
    return Benchmark(
        f"Spawrious{name}",
        "spawrious224",
        {"official": {"SC_group_1": 4 * PER_FOLDER, "SC_group_2": 4 * PER_FOLDER, "Test": 8 * PER_FOLDER}},
        4,
        tuple(sorted(BREEDS)),
        layout=layout,
        home="https://github.com/aengusl/spawrious",
    )


_SPAWRIOUS = (
    _spawrious(
        "O2O_easy",
        spawrious_one_to_one(("desert", "jungle", "dirt", "snow"), ("dirt", "snow", "desert", "jungle"), other="beach"),
    ),
    _spawrious(
        "O2O_medium",
        spawrious_one_to_one(
            ("mountain", "beach", "dirt", "jungle"), ("jungle", "dirt", "beach", "snow"), other="desert"
        ),
    ),
    _spawrious(
        "O2O_hard",
        spawrious_one_to_one(
            ("jungle", "mountain", "snow", "desert"), ("mountain", "snow", "desert", "jungle"), other="beach"
        ),
    ),
    _spawrious(
        "M2M_easy",
        spawrious_many_to_many(("desert", "mountain", "dirt", "jungle"), ("dirt", "jungle", "mountain", "desert")),
    ),
    _spawrious(
        "M2M_medium",
        spawrious_many_to_many(("beach", "snow", "mountain", "desert"), ("desert", "mountain", "beach", "snow")),
    ),
    _spawrious(
        "M2M_hard", spawrious_many_to_many(("dirt", "jungle", "snow", "beach"), ("snow", "beach", "dirt", "jungle"))
    ),
)


def _out_of_pretraining(whole: Benchmark) -> Benchmark:
    """The out-of-pretraining subset of a benchmark: images that CLIP does not align with their class names.

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
    )


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark for benchmark in (*_ALL, *_SPAWRIOUS, *map(_out_of_pretraining, _ALL[:5]))
}


def load_benchmark(benchmark: Benchmark, options: LoadOptions) -> DomainDataset:
    """Load a benchmark from `options.root`, with notes on differences from its description."""
    path = find_images(benchmark, options.root, options.cache)
    dataset = load_images(path, options, name=benchmark.name)
    counts = {domain.name: len(domain) for domain in dataset.domains}
    return replace(dataset, notes=(*dataset.notes, *differences(benchmark, counts, dataset.classes)))


def find_images(benchmark: Benchmark, root: Path | None, cache: Path | None = None) -> Path:
    """The benchmark's folder domain/class/image, or the manifest of its images if it has another layout.

    Args:
        benchmark: the benchmark.
        root: the data root.
        cache: folder for manifests; None for `cache_dir()`.
    """
    folder = find_folder(benchmark, root)
    if benchmark.layout is None:
        return folder
    return benchmark.layout.manifest(folder, benchmark.name, cache or cache_dir())


def find_folder(benchmark: Benchmark, root: Path | None) -> Path:
    """The folder of the benchmark: root/<DomainBed's name>, root/<our name>, or the root itself."""
    holds = f"that holds {', '.join(benchmark.marks)}"
    name, home = benchmark.name, benchmark.home
    get_it = f"get {name} from {home}" if home else f"download it: fgmix data download {name}"
    if root is None:
        raise UserError(
            f"Expected a data root with a folder {benchmark.folder} {holds}. Found no data root. "
            f"Pass --data-root FOLDER (`root` of LoadOptions), or {get_it}."
        )
    root = root.expanduser()
    for folder in dict.fromkeys((root / benchmark.folder, root / benchmark.name)):
        if os.path.isdir(folder):
            return folder
    if all(os.path.exists(root / mark) for mark in benchmark.marks):
        return root
    raise MachineError(
        f"Expected {benchmark.name} at {root / benchmark.folder}, a folder {holds}. Found nothing there. "
        f"Pass --data-root (or set FGMIX_DATA) with the folder that contains {benchmark.folder}, or {get_it}."
    )


def differences(benchmark: Benchmark, counts: Mapping[str, int], classes: Iterable[str]) -> list[str]:
    """Notes on how a copy differs from the nearest edition, and which edition that is if there are several.

    Args:
        benchmark: the expected benchmark.
        counts: number of images found in each domain.
        classes: class names found.

    Example:
        >>> found = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3000}
        >>> differences(BENCHMARKS["PACS"], found, BENCHMARKS["PACS"].classes)
        ["Domain 'sketch' of PACS: expected 3929 images, found 3000."]
    """
    name = benchmark.name
    edition, expected = max(
        benchmark.editions.items(), key=lambda item: sum(counts.get(domain) == n for domain, n in item[1].items())
    )
    notes = [
        f"Domain {domain!r} of {name}: expected {said}, found {counts.get(domain, 0)}."
        for domain in sorted({*expected, *counts})
        if (said := _unlike(benchmark, expected.get(domain, 0), domain, counts.get(domain, 0)))
    ]
    if benchmark.total is not None and (found := sum(counts.values())) != benchmark.total:
        notes.append(f"{name}: expected {benchmark.total} images, found {found}.")
    if len(benchmark.editions) > 1:
        others = " or ".join(other for other in benchmark.editions if other != edition)
        notes.append(f"{name} is {'nearest to' if notes else 'as in'} {edition}, not {others}.")
    return notes + _class_differences(benchmark, set(classes))


def _unlike(benchmark: Benchmark, expected: int | None, domain: str, found: int) -> str:
    """What was expected of a domain, if the number of images found differs; else an empty text."""
    if expected is not None:
        return f"{expected} images" if found != expected else ""
    if benchmark.whole:
        most = max(edition[domain] or 0 for edition in BENCHMARKS[benchmark.whole].editions.values())
        return f"fewer than the {most} images of {benchmark.whole}" if found >= most else ""
    return "images" if not found else ""


def _class_differences(benchmark: Benchmark, found: set[str]) -> list[str]:
    if benchmark.whole:
        whole = BENCHMARKS[benchmark.whole]
        extra = sorted(found - set(whole.classes or found))
        return [f"{benchmark.name}: classes that {whole.name} does not have: {list_some(extra)}."] if extra else []
    if benchmark.classes is None:
        if len(found) == benchmark.n_classes:
            return []
        return [f"{benchmark.name}: expected {benchmark.n_classes} classes, found {len(found)}."]
    known = set(benchmark.classes)
    missing, extra = sorted(known - found), sorted(found - known)
    return [
        f"{benchmark.name}: {what} classes {list_some(names)}."
        for what, names in (("missing", missing), ("unexpected", extra))
        if names
    ]


def _register_all() -> None:
    for benchmark in BENCHMARKS.values():
        counted = f"{benchmark.n_images:,} images" if benchmark.n_images else f"a subset of {benchmark.whole}"
        summary = (
            f"{counted}, {benchmark.n_classes} classes, domains {', '.join(benchmark.domains)}; "
            f"needs a data root with {benchmark.folder}/"
        )
        register_dataset(benchmark.name, summary, depends_on_trial=False)(partial(load_benchmark, benchmark))


_register_all()
