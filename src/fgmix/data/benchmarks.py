"""The image benchmarks of DomainBed: PACS, VLCS, OfficeHome, TerraIncognita, DomainNet.

They are folders `domain/class/image` under a data root, named as DomainBed's download script names them. What a copy
should hold is known, and a difference becomes a note of the dataset: a result on another copy is not comparable.
Counts are those of DomainBed's paper; DomainNet's are its cleaned version without the listed duplicates.

`BENCHMARKS` can be read without loading anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fgmix.data._dataset import DomainDataset
from fgmix.data._registry import LoadOptions, register_dataset
from fgmix.data.folders import listed
from fgmix.data.image_dataset import load_images
from fgmix.errors import MachineError, UserError


@dataclass(frozen=True)
class Benchmark:
    """What is known about a benchmark.

    Args:
        name: under which it is registered.
        folder: of it under the data root, as DomainBed calls it.
        editions: for each edition that is in use, the number of images of every domain.
        n_classes: how many classes it has.
        classes: their names, sorted, where we know them.
    """

    name: str
    folder: str
    editions: Mapping[str, Mapping[str, int]]
    n_classes: int
    classes: tuple[str, ...] | None = None

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains' folders, in the order that numbers them."""
        return tuple(sorted(next(iter(self.editions.values()))))

    @property
    def n_images(self) -> int:
        """Number of images of the first edition."""
        return sum(next(iter(self.editions.values())).values())


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
            # from caltech_camera_traps.json.zip; eccv_18_annotations.tar.gz is reported to give the paper's
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
)

BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}


def load_benchmark(benchmark: Benchmark, options: LoadOptions) -> DomainDataset:
    """Load a benchmark from under `options.root`; differences from what it should hold are notes."""
    dataset = load_images(find_folder(benchmark, options.root), options, name=benchmark.name)
    counts = {domain.name: len(domain) for domain in dataset.domains}
    return replace(dataset, notes=(*dataset.notes, *differences(benchmark, counts, dataset.classes)))


def find_folder(benchmark: Benchmark, root: Path | None) -> Path:
    """Where the benchmark is: root/<DomainBed's name>, root/<our name>, or the root itself."""
    holds = f"that holds {', '.join(benchmark.domains)}"
    if root is None:
        raise UserError(
            f"Expected a data root with a folder {benchmark.folder} {holds}. Found no data root. "
            "Pass --data-root FOLDER (`root` of LoadOptions)."
        )
    root = root.expanduser()
    for folder in dict.fromkeys((root / benchmark.folder, root / benchmark.name)):
        if os.path.isdir(folder):
            return folder
    if all(os.path.isdir(root / domain) for domain in benchmark.domains):
        return root
    raise MachineError(
        f"Expected {benchmark.name} at {root / benchmark.folder}, a folder {holds}. Found nothing there. "
        f"Pass --data-root (or set FGMIX_DATA) with the folder that contains {benchmark.folder}, or download it: "
        f"fgmix data download {benchmark.name}."
    )


def differences(benchmark: Benchmark, counts: Mapping[str, int], classes: Iterable[str]) -> list[str]:
    """Notes on how a copy differs from the edition nearest to it; which edition it is, where there are several.

    Args:
        benchmark: what the copy should be.
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
        f"Domain {domain!r} of {name}: expected {expected.get(domain, 0)} images, found {counts.get(domain, 0)}."
        for domain in sorted({*expected, *counts})
        if expected.get(domain, 0) != counts.get(domain, 0)
    ]
    if len(benchmark.editions) > 1:
        others = " or ".join(other for other in benchmark.editions if other != edition)
        notes.append(f"{name} is {'nearest to' if notes else 'as in'} {edition}, not {others}.")
    return notes + _class_differences(benchmark, set(classes))


def _class_differences(benchmark: Benchmark, found: set[str]) -> list[str]:
    if benchmark.classes is None:
        if len(found) == benchmark.n_classes:
            return []
        return [f"{benchmark.name}: expected {benchmark.n_classes} classes, found {len(found)}."]
    known = set(benchmark.classes)
    missing, extra = sorted(known - found), sorted(found - known)
    return [
        f"{benchmark.name}: {what} classes {listed(names)}."
        for what, names in (("missing", missing), ("unexpected", extra))
        if names
    ]


def _register_all() -> None:
    for benchmark in BENCHMARKS.values():
        summary = (
            f"{benchmark.n_images:,} images, {benchmark.n_classes} classes, domains {', '.join(benchmark.domains)}; "
            f"needs a data root with {benchmark.folder}/"
        )
        register_dataset(benchmark.name, summary, depends_on_trial=False)(partial(load_benchmark, benchmark))


_register_all()
