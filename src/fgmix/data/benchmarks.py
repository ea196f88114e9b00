"""Find and load the benchmarks of `records.benchmarks`, and compare copies with what is published.

They are folders `domain/class/image` under a data root, named as by DomainBed's download script. If a copy differs from
the expected domains, classes and numbers of images, the dataset gets a note: results on different copies are not
comparable.

Spawrious and two of WILDS are published in other layouts. A layout lists the images of a copy, each with its class and
domain, from the published folders and metadata files. The list is written as a CSV manifest to the cache; then the
dataset is loaded, checked and prepared like any manifest.

Lynch et al., "Spawrious", 2023, https://arxiv.org/abs/2303.05470: `spawrious224/{0,1}/location/class/*.png`, of which
each benchmark uses certain locations, as in the authors' package and DomainBed.
Koh et al., "WILDS", 2021, https://arxiv.org/abs/2012.07421: `camelyon17_v1.0/metadata.csv` and `patches/`,
`fmow_v1.1/rgb_metadata.csv`, `country_code_mapping.csv` and `images/`; domains are DomainBed's, hospitals and regions.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fgmix.data.dataset import DomainDataset, fingerprint_of
from fgmix.data.files import open_file
from fgmix.data.folders import REQUIRED, is_image, list_some
from fgmix.data.image_dataset import load_images
from fgmix.data.registry import LoadOptions, register_dataset
from fgmix.errors import MachineError, UserError
from fgmix.records.benchmarks import BENCHMARKS, Benchmark
from fgmix.records.files import cache_dir, make_folder, write_bytes

ManifestLine = tuple[str, str, str]  # path within the folder, class, domain


def load_benchmark(benchmark: Benchmark, options: LoadOptions) -> DomainDataset:
    """Load a benchmark from `options.root`, with notes on differences from its description."""
    path = find_images(benchmark, options.root, options.cache)
    dataset = load_images(path, options, name=benchmark.name)
    counts = {domain.name: len(domain) for domain in dataset.domains}
    return replace(dataset, notes=(*dataset.notes, *differences(benchmark, counts, dataset.classes)))


def find_images(benchmark: Benchmark, root: Path | None, cache: Path | None = None) -> Path:
    """Find the benchmark's folder domain/class/image, or write the manifest of its images if it has another layout."""
    folder = find_folder(benchmark, root)
    layout = LAYOUTS.get(benchmark.name)
    return folder if layout is None else layout.write_manifest(folder, benchmark.name, cache or cache_dir())


def find_folder(benchmark: Benchmark, root: Path | None) -> Path:
    """Find the folder of the benchmark: root/<DomainBed's name>, root/<our name>, or the root itself."""
    marks = LAYOUTS[benchmark.name].marks if benchmark.name in LAYOUTS else benchmark.domains
    holds = f"that holds {', '.join(marks)}"
    name, home = benchmark.name, benchmark.home
    get_it = f"get {name} from {home}" if home else f"download it: fgmix data download {name}"
    if root is None:
        raise UserError(f"Expected a data root with {benchmark.folder}. Found none. Pass --data-root, or {get_it}.")
    root = root.expanduser()
    for folder in dict.fromkeys((root / benchmark.folder, root / benchmark.name)):
        if os.path.isdir(folder):
            return folder
    if all(os.path.exists(root / mark) for mark in marks):
        return root
    raise MachineError(
        f"Expected {benchmark.name} at {root / benchmark.folder}, a folder {holds}. Found nothing there. "
        f"Pass --data-root (or set FGMIX_DATA) with the folder that contains {benchmark.folder}, or {get_it}."
    )


def differences(benchmark: Benchmark, counts: Mapping[str, int], classes: Iterable[str]) -> list[str]:
    """Note how a copy differs from the nearest edition, and which edition that is if there are several.

    >>> counts = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3000}
    >>> differences(BENCHMARKS["PACS"], counts, BENCHMARKS["PACS"].classes)
    ["Domain 'sketch' of PACS: expected 3929 images, found 3000."]
    """
    name = benchmark.name
    edition, expected = max(
        benchmark.editions.items(), key=lambda item: sum(counts.get(domain) == n for domain, n in item[1].items())
    )
    notes = [
        f"Domain {domain!r} of {name}: expected {said}, found {counts.get(domain, 0)}."
        for domain in sorted({*expected, *counts})
        if (said := _expectation(benchmark, expected.get(domain), domain, counts.get(domain, 0)))
    ]
    if benchmark.total is not None and (n := sum(counts.values())) != benchmark.total:
        notes.append(f"{name}: expected {benchmark.total} images, found {n}.")
    if len(benchmark.editions) > 1:
        others = " or ".join(other for other in benchmark.editions if other != edition)
        notes.append(f"{name} is {'nearest to' if notes else 'as in'} {edition}, not {others}.")
    return notes + _class_differences(benchmark, set(classes))


def _expectation(benchmark: Benchmark, expected: int | None, domain: str, count: int) -> str:
    """Say what was expected of a domain, if the number of images found differs; else return an empty text.

    `expected` is 0 for a number that is not published, and None for a domain that the benchmark does not have.
    """
    if expected != 0:
        return f"{expected or 0} images" if count != expected else ""
    if benchmark.whole:
        most = max(edition[domain] for edition in BENCHMARKS[benchmark.whole].editions.values())
        return f"fewer than the {most} images of {benchmark.whole}" if count >= most else ""
    return "images" if not count else ""


def _class_differences(benchmark: Benchmark, present: set[str]) -> list[str]:
    if benchmark.whole:
        whole = BENCHMARKS[benchmark.whole]
        extra = sorted(present - set(whole.classes or present))
        return [f"{benchmark.name}: classes that {whole.name} does not have: {list_some(extra)}."] if extra else []
    if benchmark.classes is None:
        if len(present) == benchmark.n_classes:
            return []
        return [f"{benchmark.name}: expected {benchmark.n_classes} classes, found {len(present)}."]
    known = set(benchmark.classes)
    missing, extra = sorted(known - present), sorted(present - known)
    return [
        f"{benchmark.name}: {what} classes {list_some(names)}."
        for what, names in (("missing", missing), ("unexpected", extra))
        if names
    ]


@dataclass(frozen=True)
class Layout:
    """How the images in a copy of a benchmark are listed."""

    marks: tuple[str, ...]  # files and folders that identify a copy
    lines: Callable[[Path], Iterator[ManifestLine]]  # lists the images of the copy in a folder

    def write_manifest(self, folder: Path, name: str, cache: Path) -> Path:
        """Write the manifest of the copy in `folder` to the cache; return the file, named by the benchmark."""
        folder = Path(os.path.realpath(folder))
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(REQUIRED)
        writer.writerows((str(folder / path), label, domain) for path, label, domain in self.lines(folder))
        data = text.getvalue().encode(errors="surrogateescape")
        place = make_folder(cache / "manifests", option="--cache") / f"{name}-{fingerprint_of([str(folder)])[:8]}.csv"
        if not (place.is_file() and place.read_bytes() == data):
            write_bytes(place, data)
        return place


# Spawrious

BREEDS = ("bulldog", "dachshund", "labrador", "corgi")  # in the order of the authors' groups
PER_FOLDER = 3168  # images of a breed at a location in each of the two halves
SHARES = (int(0.97 * PER_FOLDER), int(0.87 * PER_FOLDER))  # images of a breed at its usual location, by training group


def spawrious_one_to_one(usual: Sequence[str], test: Sequence[str], other: str) -> Layout:
    """Lay out O2O: each of `BREEDS` is mostly at its usual location in training, else at `other`."""

    def lines(folder: Path) -> Iterator[ManifestLine]:
        for half, share in enumerate(SHARES):
            for breed, at, tested_at in zip(BREEDS, usual, test, strict=True):
                group = f"SC_group_{half + 1}"
                yield from _pictures(folder, half, at, breed, group, share)
                yield from _pictures(folder, half, other, breed, group, PER_FOLDER - share)
                yield from _pictures(folder, half, tested_at, breed, "Test")

    return Layout(("0", "1"), lines)


def spawrious_many_to_many(usual: Sequence[str], test: Sequence[str]) -> Layout:
    """Lay out M2M: two breeds share two locations, swapped between the training groups, and two others in the test."""

    def lines(folder: Path) -> Iterator[ManifestLine]:
        for i, breed in enumerate(BREEDS):
            exchanged = i ^ 1  # the other of the pair
            yield from _pictures(folder, 0, usual[i], breed, "SC_group_1", PER_FOLDER)
            yield from _pictures(folder, 0, usual[exchanged], breed, "SC_group_2", PER_FOLDER)
            for location in (test[i], test[exchanged]):
                yield from _pictures(folder, 0, location, breed, "Test")

    return Layout(("0",), lines)


def _pictures(
    folder: Path, half: int, location: str, breed: str, domain: str, most: int | None = None
) -> Iterator[ManifestLine]:
    """List the first `most` images of a breed at a location, sorted by name; by default all."""
    within = f"{half}/{location}/{breed}"
    try:
        names = sorted(name for name in os.listdir(folder / within) if is_image(name))
    except OSError as error:
        # the many-to-many benchmarks need the entire dataset
        raise UserError(f"Expected images at {folder / within}. Found none. Download all of Spawrious.") from error
    yield from ((f"{within}/{name}", breed, domain) for name in names[:most])


# WILDS


def camelyon17(folder: Path) -> Iterator[ManifestLine]:
    """List patches of lymph nodes, with or without tumour; domains are the five hospitals."""
    columns = ("patient", "node", "x_coord", "y_coord", "tumor", "center")
    for patient, node, x, y, tumor, center in _cells(folder / "metadata.csv", columns):
        slide = f"patient_{patient}_node_{node}"
        label = {"0": "normal", "1": "tumor"}.get(tumor, tumor)
        yield f"patches/{slide}/patch_{slide}_x_{x}_y_{y}.png", label, f"hospital_{center}"


def fmow(folder: Path) -> Iterator[ManifestLine]:
    """List satellite images of 62 land-use classes, without the sequestered ones; domains are regions of the world.

    The number of an image is that of its line in the metadata, counting sequestered ones.
    """
    region = dict(_cells(folder / "country_code_mapping.csv", ("alpha-3", "region")))
    lines = _cells(folder / "rgb_metadata.csv", ("split", "category", "country_code"))
    for number, (split, category, country) in enumerate(lines):
        if split != "seq":
            yield f"images/rgb_img_{number}.png", category, region.get(country) or "Other"


def _cells(path: Path, columns: Sequence[str]) -> Iterator[list[str]]:
    """Read the named columns of a CSV file, line by line."""
    try:
        with open_file(path) as file:
            reader = csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline=""))
            header = next(reader, [])
            places = [header.index(name) for name in columns]
            for line in reader:
                yield [line[place] for place in places]
    except (OSError, ValueError, csv.Error, IndexError) as error:  # ValueError: no such column, or no UTF-8
        raise UserError(
            f"Expected the columns {', '.join(columns)} in {path}. It cannot be read ({error}). Download it again."
        ) from error


LAYOUTS: dict[str, Layout] = {
    "WILDSCamelyon": Layout(("metadata.csv", "patches"), camelyon17),
    "WILDSFMoW": Layout(("rgb_metadata.csv", "country_code_mapping.csv", "images"), fmow),
    "SpawriousO2O_easy": spawrious_one_to_one(
        ("desert", "jungle", "dirt", "snow"), ("dirt", "snow", "desert", "jungle"), other="beach"
    ),
    "SpawriousO2O_medium": spawrious_one_to_one(
        ("mountain", "beach", "dirt", "jungle"), ("jungle", "dirt", "beach", "snow"), other="desert"
    ),
    "SpawriousO2O_hard": spawrious_one_to_one(
        ("jungle", "mountain", "snow", "desert"), ("mountain", "snow", "desert", "jungle"), other="beach"
    ),
    "SpawriousM2M_easy": spawrious_many_to_many(
        ("desert", "mountain", "dirt", "jungle"), ("dirt", "jungle", "mountain", "desert")
    ),
    "SpawriousM2M_medium": spawrious_many_to_many(
        ("beach", "snow", "mountain", "desert"), ("desert", "mountain", "beach", "snow")
    ),
    "SpawriousM2M_hard": spawrious_many_to_many(
        ("dirt", "jungle", "snow", "beach"), ("snow", "beach", "dirt", "jungle")
    ),
}


def _register_all() -> None:
    for benchmark in BENCHMARKS.values():
        register_dataset(benchmark.name, benchmark.summary, depends_on_trial=False)(partial(load_benchmark, benchmark))


_register_all()
