"""Spawrious and WILDS from synthetic copies in their published layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from data.pictures import picture
from fgmix.data import LoadOptions, load
from fgmix.data import benchmarks as module
from fgmix.data.benchmarks import find_images
from fgmix.data.download import download
from fgmix.data.folders import scan_images
from fgmix.errors import MachineError, UserError
from fgmix.records.benchmarks import BENCHMARKS

LOCATIONS = ("beach", "desert", "dirt", "jungle", "mountain", "snow")


def write_files(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.fixture(scope="module")
def spawrious_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 pictures of each breed and location in both halves."""
    root = tmp_path_factory.mktemp("root")
    folders = [f"{half}/{at}/{breed}" for half in "01" for at in LOCATIONS for breed in module.BREEDS]
    write_files(root / "spawrious224", [f"{folder}/{i:02}.png" for folder in folders for i in range(20)])
    return root


@pytest.fixture
def spawrious(spawrious_copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The copy, of which 18 and 15 are at the usual place."""
    monkeypatch.setattr(module, "PER_FOLDER", 20)
    monkeypatch.setattr(module, "SHARES", (18, 15))
    return spawrious_copy


def groups(name: str, root: Path) -> Mapping[tuple[str, str, str, str], int]:
    """Images by domain, class, half and location."""
    scan = scan_images(find_images(BENCHMARKS[name], root, root / "cache"))
    return Counter((file.domain, file.label, *file.path.parts[-4:-2]) for file in scan.files)


def test_one_to_one_shows_a_breed_mostly_at_its_usual_place(spawrious: Path) -> None:
    found = groups("SpawriousO2O_medium", spawrious)
    corgis = {key: n for key, n in found.items() if key[1] == "corgi"}
    assert corgis == {
        ("SC_group_1", "corgi", "0", "jungle"): 18,
        ("SC_group_1", "corgi", "0", "desert"): 2,
        ("SC_group_2", "corgi", "1", "jungle"): 15,
        ("SC_group_2", "corgi", "1", "desert"): 5,
        ("Test", "corgi", "0", "snow"): 20,
        ("Test", "corgi", "1", "snow"): 20,
    }
    assert sum(found.values()) == 320


def test_many_to_many_exchanges_the_places_of_two_breeds(spawrious: Path) -> None:
    found = groups("SpawriousM2M_hard", spawrious)
    pair = {key: n for key, n in found.items() if key[1] in ("labrador", "corgi")}
    assert pair == {
        ("SC_group_1", "labrador", "0", "snow"): 20,
        ("SC_group_2", "labrador", "0", "beach"): 20,
        ("SC_group_1", "corgi", "0", "beach"): 20,
        ("SC_group_2", "corgi", "0", "snow"): 20,
        **{("Test", breed, "0", at): 20 for breed in ("labrador", "corgi") for at in ("dirt", "jungle")},
    }


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name.startswith("Spawrious")])
def test_counts_of_all_six_are_the_official_ones_to_scale(spawrious: Path, name: str) -> None:
    counts = Counter(domain for domain, *_ in groups(name, spawrious).elements())
    assert {domain: 3168 * n // 20 for domain, n in counts.items()} == BENCHMARKS[name].editions["official"]


def test_the_official_shares_are_the_authors() -> None:
    assert (module.PER_FOLDER, module.SHARES) == (3168, (3072, 2756))


def test_a_missing_location_is_named(tmp_path: Path) -> None:
    write_files(tmp_path / "spawrious224", ["0/desert/bulldog/1.png", "0/beach/bulldog/1.png", "1/x"])
    with pytest.raises(UserError, match="0/dirt/bulldog"):
        groups("SpawriousO2O_easy", tmp_path)


CAMELYON = """,patient,node,x_coord,y_coord,tumor,slide,center,split
0,004,4,3328,21792,1,0,0,0
1,004,4,3200,22272,0,0,0,1
2,020,2,1,2,1,4,1,0
3,042,3,5,6,0,23,2,0
"""


def camelyon(root: Path) -> Path:
    """Four patches of three hospitals."""
    folder = root / "camelyon17_v1.0"
    slides = {"004_node_4": ("3328_y_21792", "3200_y_22272"), "020_node_2": ("1_y_2",), "042_node_3": ("5_y_6",)}
    for seed, (slide, patches) in enumerate(slides.items()):
        place = folder / "patches" / f"patient_{slide}"
        place.mkdir(parents=True)
        for number, patch in enumerate(patches):
            picture(10 * seed + number).save(place / f"patch_patient_{slide}_x_{patch}.png")
    (folder / "metadata.csv").write_text(CAMELYON)
    return folder


@pytest.mark.usefixtures("image_cache")
def test_camelyon_is_loaded_by_hospital(tmp_path: Path) -> None:
    folder = camelyon(tmp_path)
    dataset = load("WILDSCamelyon", LoadOptions(root=tmp_path, image_size=8, progress=False))
    assert (dataset.name, dataset.classes) == ("WILDSCamelyon", ("normal", "tumor"))
    assert {domain.name: domain.y.tolist() for domain in dataset.domains} == {
        "hospital_0": [0, 1],
        "hospital_1": [1],
        "hospital_2": [0],
    }
    assert "Domain 'hospital_3' of WILDSCamelyon: expected 129838 images, found 0." in dataset.notes
    assert (
        load("WILDSCamelyon", LoadOptions(root=folder, image_size=8, progress=False)).fingerprint == dataset.fingerprint
    )


def test_fmow_is_read_by_region_without_the_sequestered(tmp_path: Path) -> None:
    folder = tmp_path / "fmow_v1.1"
    write_files(folder, [f"images/rgb_img_{i}.png" for i in (0, 2, 3)])
    (folder / "country_code_mapping.csv").write_text("name,alpha-3,region\nFrance,FRA,Europe\nKenya,KEN,Africa\n")
    (folder / "rgb_metadata.csv").write_text(
        "split,img_filename,category,country_code,timestamp\n"
        "train,a,airport,FRA,2012\nseq,b,zoo,FRA,2013\nval,c,zoo,KEN,2014\ntest,d,dam,XKX,2017\n"
    )
    scan = scan_images(find_images(BENCHMARKS["WILDSFMoW"], tmp_path, tmp_path / "cache"))
    assert [(file.domain, file.label, file.path.name) for file in scan.files] == [
        ("Africa", "zoo", "rgb_img_2.png"),
        ("Europe", "airport", "rgb_img_0.png"),
        ("Other", "dam", "rgb_img_3.png"),
    ]


def test_a_damaged_metadata_file_is_named(tmp_path: Path) -> None:
    folder = camelyon(tmp_path)
    (folder / "metadata.csv").write_text("patient,node\n1,2\n")
    with pytest.raises(UserError, match="x_coord"):
        find_images(BENCHMARKS["WILDSCamelyon"], tmp_path, tmp_path / "cache")
    (folder / "metadata.csv").write_text(f"{CAMELYON}4,9\n")
    with pytest.raises(UserError, match=r"metadata\.csv\. It cannot be read"):
        find_images(BENCHMARKS["WILDSCamelyon"], tmp_path, tmp_path / "cache")


def test_patches_that_are_missing_are_named(tmp_path: Path) -> None:
    folder = camelyon(tmp_path)
    (folder / "patches/patient_020_node_2/patch_patient_020_node_2_x_1_y_2.png").unlink()
    with pytest.raises(UserError, match=r"Expected the 4 files.*patient_020_node_2_x_1_y_2"):
        scan_images(find_images(BENCHMARKS["WILDSCamelyon"], tmp_path, tmp_path / "cache"))


@pytest.mark.parametrize("name", ["WILDSFMoW", "SpawriousO2O_easy", "PACS-OOP"])
def test_what_we_do_not_download_says_where_to_get_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(MachineError, match=f"or get {name} from {BENCHMARKS[name].home}"):
        load(name, LoadOptions(root=tmp_path))
    with pytest.raises(UserError, match=f"Found {name}. Get it from {BENCHMARKS[name].home}"):
        download(name, tmp_path)
