"""CSV manifests: the same dataset as the folder they list; faults are found with their line."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from data.pictures import make_folder, picture, two_domains
from fgmix.data import LoadOptions, load
from fgmix.data.checks import check_images
from fgmix.data.folders import scan_folder
from fgmix.data.image_dataset import load_images, prepare_images
from fgmix.data.splits import split_dataset
from fgmix.errors import UserError

pytestmark = pytest.mark.usefixtures("image_cache")
QUIET = LoadOptions(image_size=8, progress=False)


def listing(root: Path, *, shuffle: int | None = None, absolute: bool = False) -> list[str]:
    """The lines of a manifest beside `root` that lists it."""
    lines = [
        f'"{file.path if absolute else file.path.relative_to(root.parent)}","{file.label}",{file.domain}'
        for file in scan_folder(root).files
    ]
    if shuffle is not None:
        random.Random(shuffle).shuffle(lines)
    return lines


def write(path: Path, lines: list[str], header: str = "path,label,domain") -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_a_group_column_keeps_its_images_together(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "images")
    patients = [f"p{number % 2}" for number in range(len(listing(root)))]
    rows = [f"{row},{patient}" for row, patient in zip(listing(root), patients)]
    path = write(tmp_path / "list.csv", rows, "path,label,domain,group")
    dataset = load_images(path, QUIET)
    assert dataset.fingerprint != load_images(write(tmp_path / "plain.csv", listing(root)), QUIET).fingerprint
    for domain, split in zip(dataset.domains, split_dataset(dataset, 0.2, trial_seed=0).values()):
        assert not set(domain.groups[split.train]) & set(domain.groups[split.holdout])
    report = check_images(path, progress=False)
    assert report.groups == {"art": 2, "photo": 2}
    assert any(line.startswith("Groups: art 2, photo 2") for line in report.lines())
    assert any("p0, p1" in note for note in report.notes), "in both domains"


def test_a_given_split_must_not_divide_a_group(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "images")
    parts = ["train", "holdout"] * len(listing(root))
    rows = [f"{row},{part},p" for row, part in zip(listing(root), parts)]
    path = write(tmp_path / "list.csv", rows, "path,label,domain,split,group")
    with pytest.raises(UserError, match="one part of the given split"):
        split_dataset(load_images(path, QUIET), 0.2, trial_seed=0)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_manifest_of_a_folder_is_the_folder(tmp_path: Path, absolute: bool) -> None:
    names = ["b.png", "a.PNG", "10.jpeg", "9.webp", "ä, b.bmp"]
    layout = {"Zwei": {"Ant": names, "ant eater": names[:3]}, "eins": {"Ant": names, "bär": names[2:]}}
    root = make_folder(tmp_path / "zoo", layout)
    for nested in ("sub", "Sub", "sub-2/deep"):
        (root / "Zwei" / "Ant" / nested).mkdir(parents=True)
        picture(7).save(root / "Zwei" / "Ant" / nested / "n.png")
    folder = load_images(root, QUIET)
    csv = write(tmp_path / "list.csv", listing(root, shuffle=0, absolute=absolute))
    dataset = load(str(csv), QUIET)
    assert (dataset.name, dataset.domain_names, dataset.classes) == ("list", folder.domain_names, folder.classes)
    assert dataset.fingerprint == folder.fingerprint
    assert dataset.notes == folder.notes


def test_columns_in_any_order_a_mark_at_the_start_blank_lines_and_windows_ends(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    rows = [line.replace('"', "").split(",") for line in listing(root)]
    text = "domain, path ,label\r\n" + "\r\n\r\n".join(f" {d} ,{p}, {c}" for p, c, d in rows)
    (tmp_path / "list.CSV").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load(str(tmp_path / "list.CSV"), QUIET).fingerprint == load_images(root, QUIET).fingerprint


def test_files_of_other_endings_count_where_they_are_listed(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    picture(0).save(root / "one.gif")
    csv = write(tmp_path / "list.csv", [*listing(root), "pets/one.gif,cat,art"])
    assert [len(domain) for domain in load(str(csv), QUIET).domains] == [5, 4]


def test_a_split_column_replaces_the_drawn_split(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    parts = ["train", "val", "train", "train", "train", "train", "holdout", "validation"]
    csv = write(
        tmp_path / "list.csv", [f"{row},{part}" for row, part in zip(listing(root), parts)], "path,label,domain,split"
    )
    dataset = load(str(csv), QUIET)
    for seed in (0, 1):
        splits = split_dataset(dataset, 0.2, trial_seed=seed)
        assert (splits["art"].train.tolist(), splits["art"].holdout.tolist()) == ([0, 2, 3], [1])
        assert (splits["photo"].train.tolist(), splits["photo"].holdout.tolist()) == ([0, 1], [2, 3])
    assert dataset.fingerprint != load_images(root, QUIET).fingerprint
    other = write(
        tmp_path / "other.csv",
        [f"{row},{part}" for row, part in zip(listing(root), parts[::-1])],
        "path,label,domain,split",
    )
    assert load(str(other), QUIET).fingerprint != dataset.fingerprint


def test_a_manifest_can_be_checked_and_prepared(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    parts = ["train", "holdout"] * 4
    csv = write(
        tmp_path / "list.csv", [f"{row},{part}" for row, part in zip(listing(root), parts)], "path,label,domain,split"
    )
    assert check_images(csv, progress=False).lines()[0] == f"{csv}: 8 images, 2 domains, 2 classes, 12×10 pixels"
    prepare_images(csv, QUIET)
    assert load_images(csv, QUIET).domains[0].holdout is not None
    write(csv, listing(root)[1:])
    assert [len(domain) for domain in load_images(csv, QUIET).domains] == [3, 4]


def test_files_elsewhere_can_be_checked_and_prepared(tmp_path: Path) -> None:
    """Absolute paths, and a folder of the manifest that is a link."""
    root = two_domains(tmp_path / "there" / "pets")
    shutil.copy(root / "art" / "cat" / "1.png", root / "photo" / "cat" / "2.png")
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "here").symlink_to(tmp_path / "real" / "deep")
    csv = write(tmp_path / "here" / "list.csv", listing(root, absolute=True))
    (duplicates,) = (line for line in check_images(csv, progress=False).lines() if line.startswith("The same image"))
    assert duplicates.endswith(f"{root}/art/cat/1.png, {root}/photo/cat/2.png")
    prepare_images(csv, QUIET)
    assert load_images(csv, QUIET).notes == ()


@pytest.mark.parametrize(("art", "photo"), [(["train"] * 4, ["train", "val"] * 2), (["val"] * 4, ["train", "val"] * 2)])
def test_a_split_needs_both_parts_in_every_domain(tmp_path: Path, art: list[str], photo: list[str]) -> None:
    root = two_domains(tmp_path / "pets")
    lines = [f"{row},{part}" for row, part in zip(listing(root), art + photo)]
    dataset = load(str(write(tmp_path / "list.csv", lines, "path,label,domain,split")), QUIET)
    with pytest.raises(UserError, match="domain 'art'"):
        split_dataset(dataset, 0.2, trial_seed=0)
