"""The registered image benchmarks: where they are looked for, what they should hold."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from data.pictures import make_folder
from fgmix.data import LoadOptions, describe_code, load, names, summaries
from fgmix.data.benchmarks import LAYOUTS, differences, find_folder
from fgmix.data.folders import scan_folder
from fgmix.errors import UserError
from fgmix.records.benchmarks import BENCHMARKS, Benchmark
from fgmix.records.declarations import read_summaries

PACS = BENCHMARKS["PACS"]
TERRA = BENCHMARKS["TerraIncognita"]
ALL = list(BENCHMARKS.values())
FOLDERS = [benchmark for benchmark in ALL if benchmark.name not in LAYOUTS]


def copy_of(benchmark: Benchmark, folder: Path) -> Path:
    """A copy with one image of two classes in each domain."""
    classes = (benchmark.classes or ("a", "b"))[:2]
    return make_folder(folder, {domain: {label: ["1.png"] for label in classes} for domain in benchmark.domains})


@pytest.mark.parametrize(
    ("name", "domains", "classes", "images"),
    [
        ("PACS", 4, 7, 9_991),
        ("VLCS", 4, 5, 10_729),
        ("OfficeHome", 4, 65, 15_588),
        ("TerraIncognita", 4, 10, 24_788),
        ("DomainNet", 6, 345, 586_575),
        ("SVIRO", 10, 7, 56_000),
        ("SpawriousO2O_easy", 3, 4, 50_688),
        ("SpawriousM2M_hard", 3, 4, 50_688),
        ("WILDSCamelyon", 5, 2, 455_954),
        ("WILDSFMoW", 6, 62, 470_086),
    ],
)
def test_totals_are_those_of_the_papers(name: str, domains: int, classes: int, images: int) -> None:
    benchmark = BENCHMARKS[name]
    assert (len(benchmark.domains), benchmark.n_classes, benchmark.n_images) == (domains, classes, images)
    assert name in names()
    assert f"{images:,} images" in summaries()[name]


def test_the_summaries_read_from_the_source_are_those_registered() -> None:
    ours = {name: text for name, text in summaries().items() if not describe_code(name)}
    assert read_summaries() == ours


@pytest.mark.parametrize("benchmark", ALL, ids=lambda b: b.name)
def test_tables_are_consistent(benchmark: Benchmark) -> None:
    assert all(tuple(sorted(edition)) == benchmark.domains for edition in benchmark.editions.values())
    if benchmark.classes is not None:
        assert len(set(benchmark.classes)) == benchmark.n_classes
        assert list(benchmark.classes) == sorted(benchmark.classes)


@pytest.mark.parametrize("benchmark", FOLDERS, ids=lambda b: b.name)
def test_folder_is_found_under_either_name_or_as_the_root(tmp_path: Path, benchmark: Benchmark) -> None:
    copy = copy_of(benchmark, tmp_path / benchmark.folder)
    assert find_folder(benchmark, tmp_path) == copy
    assert find_folder(benchmark, copy) == copy
    renamed = copy.rename(tmp_path / benchmark.name)
    assert find_folder(benchmark, tmp_path) == renamed


def test_a_missing_root_says_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"office_home.*--data-root"):
        load("OfficeHome")
    with pytest.raises(UserError, match=r"--data-root.*or get WILDSFMoW from https://wilds\.stanford\.edu/downloads\."):
        load("WILDSFMoW")
    with pytest.raises(UserError, match=rf"OfficeHome at {tmp_path}/office_home.*--data-root"):
        load("OfficeHome", LoadOptions(root=tmp_path))
    with pytest.raises(UserError, match=r"absent/PACS"):
        load("PACS", LoadOptions(root=tmp_path / "absent"))


def test_the_official_copy_gives_no_note() -> None:
    for benchmark in ALL:
        counts = dict(next(iter(benchmark.editions.values())))
        if 0 in counts.values():  # only the total is published, or nothing
            counts = dict.fromkeys(counts, 1)
            counts[benchmark.domains[0]] = (benchmark.total or len(counts)) - len(counts) + 1
        known = BENCHMARKS[benchmark.whole or benchmark.name].classes
        notes = differences(benchmark, counts, known or [str(i) for i in range(benchmark.n_classes)])
        assert notes == [] or (benchmark is TERRA and len(notes) == 1)


def test_differences_name_domain_and_numbers() -> None:
    counts = {"art_painting": 2048, "cartoon": 2340, "photo": 1670, "extra": 3}
    assert differences(PACS, counts, [*PACS.classes[1:], "car"]) == [
        "Domain 'cartoon' of PACS: expected 2344 images, found 2340.",
        "Domain 'extra' of PACS: expected 0 images, found 3.",
        "Domain 'sketch' of PACS: expected 3929 images, found 0.",
        "PACS: missing classes dog.",
        "PACS: unexpected classes car.",
    ]
    assert differences(BENCHMARKS["DomainNet"], BENCHMARKS["DomainNet"].editions["official"], ["a"]) == [
        "DomainNet: expected 345 classes, found 1."
    ]


def test_terra_incognita_says_which_edition_it_is() -> None:
    paper, today = TERRA.editions.values()
    assert differences(TERRA, paper, TERRA.classes) == [
        "TerraIncognita is as in DomainBed's paper (24,788 images), not the labels revised in 2021 (24,330 images)."
    ]
    assert differences(TERRA, today, TERRA.classes) == [
        "TerraIncognita is as in the labels revised in 2021 (24,330 images), not DomainBed's paper (24,788 images)."
    ]
    assert differences(TERRA, {**today, "location_38": 1}, TERRA.classes) == [
        "Domain 'location_38' of TerraIncognita: expected 9736 images, found 1.",
        "TerraIncognita is nearest to the labels revised in 2021 (24,330 images), "
        "not DomainBed's paper (24,788 images).",
    ]


def test_a_benchmark_without_counts_of_its_domains_is_checked_by_its_total() -> None:
    sviro = BENCHMARKS["SVIRO"]
    classes = [str(i) for i in range(7)]
    counts = dict.fromkeys(sviro.domains, 5600)
    assert differences(sviro, counts, classes) == []
    assert differences(sviro, {**counts, "zoe": 0}, classes) == [
        "Domain 'zoe' of SVIRO: expected images, found 0.",
        "SVIRO: expected 56000 images, found 50400.",
    ]


def test_a_part_is_smaller_than_the_whole() -> None:
    part = BENCHMARKS["PACS-OOP"]
    counts = {"art_painting": 20, "cartoon": 30, "photo": 1, "sketch": 0}
    assert differences(part, counts, ["dog", "horse"]) == []
    assert differences(part, {**counts, "photo": 1670}, ["dog", "car"]) == [
        "Domain 'photo' of PACS-OOP: expected fewer than the 1670 images of PACS, found 1670.",
        "PACS-OOP: classes that PACS does not have: car.",
    ]


@pytest.mark.usefixtures("image_cache")
def test_load_reports_the_differences(tmp_path: Path) -> None:
    copy_of(BENCHMARKS["VLCS"], tmp_path / "VLCS")
    dataset = load("VLCS", LoadOptions(root=tmp_path, image_size=8, progress=False))
    assert (dataset.name, dataset.domain_names) == ("VLCS", ("Caltech101", "LabelMe", "SUN09", "VOC2007"))
    assert dataset.notes[0] == "Domain 'Caltech101' of VLCS: expected 1415 images, found 2."
    assert dataset.notes[-1] == "VLCS: missing classes chair, dog, person."


@pytest.mark.shared
def test_shared_pacs_is_the_official_one(shared_data: Path) -> None:
    scan = scan_folder(find_folder(PACS, shared_data))
    assert differences(PACS, scan.counts(), {file.label for file in scan.files}) == []


@pytest.mark.shared
@pytest.mark.usefixtures("image_cache")
def test_a_part_of_pacs_loads(shared_data: Path, tmp_path: Path) -> None:
    """Real JPEGs and grey PNGs, two of each class and domain."""
    for folder in sorted((shared_data / "PACS").glob("*/*")):
        part = tmp_path / "PACS" / folder.parent.name / folder.name
        part.mkdir(parents=True)
        for path in sorted(folder.iterdir())[:2]:
            shutil.copy(path, part)
    dataset = load("PACS", LoadOptions(root=tmp_path, image_size=64, progress=False))
    assert dataset.classes == PACS.classes
    assert [len(domain) for domain in dataset.domains] == [14] * 4
    sketch = dataset.domains[3].inputs
    assert sketch.images.heights[sketch.rows].tolist() == [77] * 14  # 227 reduced to ⌈64/√0.7⌉
    x = sketch.clean(np.arange(14))
    r, g, b = (x * torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)).unbind(1)
    torch.testing.assert_close(r + 0.485, g + 0.456, atol=1e-5, rtol=0)  # grey stays grey
    torch.testing.assert_close(g + 0.456, b + 0.406, atol=1e-5, rtol=0)
