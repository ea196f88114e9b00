"""`check_images`: what it finds in a folder with every fault."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from data.pictures import make_folder, picture, truncate, two_domains
from fgmix.data.checks import check_images
from fgmix.errors import UserError


def five(*suffixes: str) -> list[str]:
    return [f"{i}{suffix}" for suffix in suffixes for i in range(5)]


def test_a_sound_folder_has_nothing_to_complain_about(tmp_path: Path) -> None:
    root = make_folder(tmp_path, {d: {"cat": five(".png"), "dog": five(".png", ".jpg")} for d in ("art", "photo")})
    report = check_images(root, progress=False)
    assert report.clean
    assert report.counts == {"art": {"cat": 5, "dog": 10}, "photo": {"cat": 5, "dog": 10}}
    assert report.lines() == [
        f"{root}: 30 images, 2 domains, 2 classes, 12×10 pixels",
        "     art  photo",
        "cat    5      5",
        "dog   10     10",
        "all   15     15",
    ]


def test_every_fault_is_found(tmp_path: Path) -> None:
    layout = {"art": {"cat": five(".png"), "dog": five(".png"), "eel": []}, "photo": {"cat": [*five(".png"), "5.png"]}}
    root = make_folder(tmp_path, layout)
    picture(40, 30, 20).save(root / "photo" / "cat" / "5.png")
    broken = [truncate(root / "art" / "dog" / "3.png"), root / "photo" / "cat" / "text.jpg"]
    broken[1].write_text("no image")
    shutil.copy(root / "art" / "cat" / "0.png", root / "photo" / "cat" / "1.png")
    shutil.copy(root / "photo" / "cat" / "2.png", root / "photo" / "cat" / "3.png")  # within a domain: not reported
    shutil.copy(root / "art" / "cat" / "1.png", root / "art" / "dog" / "1.png")

    report = check_images(root, progress=False)
    assert not report.clean
    assert report.counts == {"art": {"cat": 5, "dog": 4}, "photo": {"cat": 6, "dog": 0}}
    assert [path for path, _ in report.unreadable] == broken
    assert report.duplicates == ((root / "art" / "cat" / "0.png", root / "photo" / "cat" / "1.png"),)
    assert report.mislabelled == ((root / "art" / "cat" / "1.png", root / "art" / "dog" / "1.png"),)
    assert report.tiny == (("art", "dog", 4),)
    assert (report.sizes[0], report.sizes[-1]) == ((12, 10), (30, 20))
    assert report.notes == (
        "Classes without an image in any domain are dropped: eel.",
        "Domain 'photo' has no image of dog.",
    )
    lines = report.lines()
    assert lines[1:5] == ["     art  photo", "cat    5      6", "dog    4      0", "all    9      6"]
    assert sum(line.startswith("Cannot be decoded: ") for line in lines) == 2
    assert "The same image in several domains: art/cat/0.png, photo/cat/1.png" in lines
    assert "The same image with different labels: art/cat/1.png, art/dog/1.png" in lines
    assert lines[-1] == "Few images of class 'dog' in domain 'art': 4"


def test_equal_broken_files_are_no_duplicates(tmp_path: Path) -> None:
    root = two_domains(tmp_path)
    for domain in ("art", "photo"):
        (root / domain / "cat" / "empty.png").touch()
    report = check_images(root, progress=False)
    assert len(report.unreadable) == 2
    assert report.duplicates == ()


def test_no_readable_image_at_all(tmp_path: Path) -> None:
    root = two_domains(tmp_path)
    for path in root.rglob("*.png"):
        path.write_text("no image")
    report = check_images(root, progress=False)
    assert len(report.unreadable) == 8
    assert report.sizes == ()
    assert report.lines()[0] == f"{root}: 0 images, 2 domains, 2 classes"


def test_a_folder_without_domains_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Expected images domain/class/image"):
        check_images(tmp_path, progress=False)
