"""Find and load the benchmarks of `records.benchmarks`, and compare copies with what is published.

They are folders `domain/class/image` under a data root, named as by DomainBed's download script, or have their own
layout (`data.layouts`). If a copy differs from the expected domains, classes and numbers of images, the dataset gets a
note: results on different copies are not comparable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from fgmix.data.dataset import DomainDataset
from fgmix.data.folders import list_some
from fgmix.data.image_cache import cache_dir
from fgmix.data.image_dataset import load_images
from fgmix.data.layouts import LAYOUTS
from fgmix.data.registry import LoadOptions, register_dataset
from fgmix.errors import MachineError, UserError
from fgmix.records.benchmarks import BENCHMARKS, Benchmark


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
        raise UserError(
            f"Expected a data root with a folder {benchmark.folder} {holds}. Pass --data-root, or {get_it}."
        )
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
        if (said := _expectation(benchmark, expected.get(domain, 0), domain, counts.get(domain, 0)))
    ]
    if benchmark.total is not None and (n := sum(counts.values())) != benchmark.total:
        notes.append(f"{name}: expected {benchmark.total} images, found {n}.")
    if len(benchmark.editions) > 1:
        others = " or ".join(other for other in benchmark.editions if other != edition)
        notes.append(f"{name} is {'nearest to' if notes else 'as in'} {edition}, not {others}.")
    return notes + _class_differences(benchmark, set(classes))


def _expectation(benchmark: Benchmark, expected: int | None, domain: str, count: int) -> str:
    """Say what was expected of a domain, if the number of images found differs; else return an empty text."""
    if expected is not None:
        return f"{expected} images" if count != expected else ""
    if benchmark.whole:
        most = max(edition[domain] or 0 for edition in BENCHMARKS[benchmark.whole].editions.values())
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


def _register_all() -> None:
    for benchmark in BENCHMARKS.values():
        counted = f"{benchmark.n_images:,} images" if benchmark.n_images else f"a subset of {benchmark.whole}"
        summary = (
            f"{counted}, {benchmark.n_classes} classes, domains {', '.join(benchmark.domains)}; "
            f"needs a data root with {benchmark.folder}/"
        )
        register_dataset(benchmark.name, summary, depends_on_trial=False)(partial(load_benchmark, benchmark))


_register_all()
