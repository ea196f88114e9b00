"""Folders domain/class/image: order, labels, notes, errors."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data.pictures import make_folder, picture, truncate, two_domains
from fgmix.data import LoadOptions, load
from fgmix.data.folders import scan_folder
from fgmix.data.image_dataset import load_images
from fgmix.data.splits import split_dataset
from fgmix.errors import UserError
from fgmix.networks._torchvision import ensure_torchvision

pytestmark = pytest.mark.usefixtures("image_cache")
QUIET = LoadOptions(image_size=8, progress=False)


def image_folder_order(domain: Path) -> list[tuple[str, int]]:
    ensure_torchvision()
    from torchvision.datasets import ImageFolder

    return ImageFolder(domain).samples


def test_a_folder_becomes_a_dataset(tmp_path: Path) -> None:
    dataset = load(str(two_domains(tmp_path / "pets")), QUIET)
    assert (dataset.name, dataset.kind, dataset.input_shape) == ("pets", "images", (3, 8, 8))
    assert dataset.domain_names == ("art", "photo")
    assert dataset.classes == ("cat", "dog")
    assert [d.y.tolist() for d in dataset.domains] == [[0, 0, 1, 1]] * 2
    assert dataset.notes == ()
    assert dataset.domains[1].inputs.clean(np.array([3, 0])).shape == (2, 3, 8, 8)


def test_rows_are_the_files_in_order(tmp_path: Path) -> None:
    """Row i of a domain holds the pixels of its i-th file."""
    root = two_domains(tmp_path / "pets")
    dataset = load_images(root, QUIET)
    files = scan_folder(root).files
    for d, domain in enumerate(dataset.domains):
        for i in range(4):
            pixels = domain.inputs.images[domain.inputs.rows[i]]
            assert files[4 * d + i].domain == domain.name
            np.testing.assert_array_equal(pixels, np.asarray(picture(4 * d + i)))


def test_image_size_defaults_to_224(tmp_path: Path) -> None:
    assert load_images(two_domains(tmp_path), LoadOptions(progress=False)).input_shape == (3, 224, 224)


def test_order_is_image_folders(tmp_path: Path) -> None:
    names = ["b.png", "a.PNG", "B.jpg", "10.jpeg", "9.webp", "ä.bmp", "a b.tiff", "z.ppm"]
    layout = {"Zwei": {"Ant": names, "ant eater": names[:3], "bär": names[2:]}, "eins": {"Ant": names}}
    root = make_folder(tmp_path / "data", layout)
    for nested in ("sub", "Sub", "sub2/deep"):
        folder = root / "Zwei" / "Ant" / nested
        folder.mkdir(parents=True)
        picture(7).save(folder / "n.png")
    (root / "Zwei" / "Ant" / "notes.txt").write_text("not an image")

    scan = scan_folder(root)
    for domain in ("Zwei", "eins"):
        ours = [(str(file.path), file.label) for file in scan.files if file.domain == domain]
        classes = sorted({label for _, label in ours})
        assert [(path, classes.index(label)) for path, label in ours] == image_folder_order(root / domain)
    assert list(scan.counts()) == ["Zwei", "eins"]


def test_unicode_and_spaces_load(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "mes données", {d: {"chien méchant": ["été 1.png"]} for d in ("Réel", "日本 画")})
    dataset = load_images(root, QUIET)
    assert dataset.domain_names == ("Réel", "日本 画")
    assert dataset.classes == ("chien méchant",)


def test_hidden_folders_are_ignored(tmp_path: Path) -> None:
    root = two_domains(tmp_path)
    for hidden in (".git/objects", "art/.thumbnails", "art/cat/.ipynb_checkpoints"):
        (root / hidden).mkdir(parents=True)
        picture(0).save(root / hidden / "x.png")
    assert len(scan_folder(root).files) == 8


def test_a_domain_may_lack_a_class(tmp_path: Path) -> None:
    """Labels number the union: `dog` is 1 in photo too, though photo has no cat."""
    root = make_folder(tmp_path, {"art": {"cat": ["1.png"], "dog": ["1.png"]}, "photo": {"dog": ["1.png"]}})
    dataset = load_images(root, QUIET)
    assert dataset.classes == ("cat", "dog")
    assert dataset.domains[1].y.tolist() == [1]
    assert dataset.notes == ("Domain 'photo' has no image of cat.",)


def test_an_empty_class_folder_is_noted_and_dropped_where_it_is_empty_everywhere(tmp_path: Path) -> None:
    root = two_domains(tmp_path)
    (root / "art" / "bird").mkdir()
    (root / "photo" / "fish").mkdir()
    picture(0).save(root / "photo" / "fish" / "1.png")
    (root / "art" / "fish").mkdir()
    dataset = load_images(root, QUIET)
    assert dataset.classes == ("cat", "dog", "fish")
    assert dataset.notes == (
        "Classes without an image in any domain are dropped: bird.",
        "Domain 'art' has no image of fish.",
    )


def test_folders_that_are_no_domain_are_noted(tmp_path: Path) -> None:
    root = two_domains(tmp_path)
    (root / "splits" / "train").mkdir(parents=True)
    picture(0).save(root / "art" / "cover.png")
    assert load_images(root, QUIET).notes == (
        "Images directly in 'art' belong to no class and are left out: 1.",
        "Folder 'splits' holds no class/image and is left out.",
    )


def test_files_with_other_endings_are_counted_and_named(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    for i in range(3):
        picture(i).save(root / "art" / "cat" / f"{i}.GIF")
    (root / "photo" / "dog" / "notes.txt").touch()
    (root / "photo" / "list").touch()
    (root / "photo" / ".DS_Store").touch()  # hidden: nobody's data
    (root / "README.md").touch()  # beside the domains
    picture(0).save(root / "cover.png")
    assert load_images(root, QUIET).notes == (
        "Images directly in the folder belong to no domain and are left out: 1.",
        "Files that are no images by their ending are left out: 3 .gif, 1 without an ending, 1 .txt.",
    )


def test_what_decoding_changes_is_noted(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(0, 20, 10).save(root / "art" / "cat" / "turned.jpg", exif=exif)
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(root / "art" / "cat" / "clear.png")
    dataset = load_images(root, QUIET)
    assert dataset.notes == (
        "Images turned as their EXIF orientation says: 1.",
        "Images with transparent pixels, composited on white: 1.",
    )
    on_black = load_images(root, LoadOptions(image_size=8, progress=False, background="black"))
    assert on_black.notes[1] == "Images with transparent pixels, composited on #000000: 1."
    assert on_black.fingerprint != dataset.fingerprint
    clear = [file.path.name for file in scan_folder(root).files].index("clear.png")
    assert dataset.domains[0].inputs.images[clear].min() == 255
    assert on_black.domains[0].inputs.images[clear].max() == 0


def test_decoded_images_beyond_the_limit_are_kept_as_jpegs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = two_domains(tmp_path / "pets")
    pixels = load_images(root, QUIET)
    monkeypatch.setenv("FGMIX_DECODED_GB", "1e-7")  # 100 bytes
    jpegs = load_images(root, QUIET)
    assert jpegs.notes == ("Images are kept as JPEGs of quality 95: their pixels would not fit into memory.",)
    assert jpegs.fingerprint != pixels.fingerprint
    for row in range(8):
        ours, exact = jpegs.domains[0].inputs.images[row], pixels.domains[0].inputs.images[row]
        assert ours.shape == exact.shape
        assert np.abs(ours.astype(float) - exact).mean() < 3
    monkeypatch.delenv("FGMIX_DECODED_GB")
    assert load_images(root, QUIET).fingerprint == pixels.fingerprint  # both are there: pixels
    monkeypatch.setenv("FGMIX_DECODED_GB", "much")
    with pytest.raises(UserError, match="`FGMIX_DECODED_GB` should be a number of gigabytes"):
        load_images(root, QUIET)


def test_pixels_that_exceed_the_machine_are_kept_as_jpegs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FGMIX_DECODED_GB", raising=False)
    monkeypatch.setattr(os, "sysconf", lambda _: 30)
    root = two_domains(tmp_path / "pets")
    assert "JPEGs" in load_images(root, QUIET).notes[0]
    monkeypatch.setattr(os, "sysconf", lambda _: 10**6)
    assert "JPEGs" in load_images(root, QUIET).notes[0]  # on a larger machine, what is there is used


# links


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    (root / "drawing").symlink_to(root / "art")  # a domain by another name
    (root / "photo" / "cat" / "more").symlink_to(root / "art" / "cat")
    (root / "photo" / "cat" / "again").symlink_to(root / "art" / "cat")
    scan = scan_folder(root)
    assert scan.counts() == {"art": 4, "drawing": 4, "photo": 6}
    assert scan.notes == ("Links to a folder that is read already are left out: photo/cat/more.",)


def test_link_loops_end(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    expected = scan_folder(root).files
    (root / "art" / "self").symlink_to("self")
    (root / "art" / "up").symlink_to(root / "art")
    (root / "photo" / "cat" / "top").symlink_to(root)
    (root / "photo" / "cat" / "here").symlink_to(".")
    (root / "whole").symlink_to(".")
    scan = scan_folder(root)
    assert scan.files == expected
    assert scan.notes == (
        "Files that are no images by their ending are left out: 1 without an ending.",
        "Links to a folder that is read already are left out: art/up, photo/cat/here, photo/cat/top, whole.",
    )


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    one = make_folder(tmp_path / "one", {"pets": {"cat": ["1.png"], "dog": ["1.png"]}})
    with pytest.raises(UserError, match=r"at least two domains.*Found one, 'pets', with classes cat, dog.*one/pets"):
        load_images(one, QUIET)
    with pytest.raises(UserError, match=r"Found 1 directly in it"):
        load_images(one / "pets" / "cat", QUIET)
    with pytest.raises(UserError, match=r"directly in its sub-folders \(cat, dog\): it looks like one domain"):
        load_images(one / "pets", QUIET)
    (tmp_path / "empty" / "art").mkdir(parents=True)
    with pytest.raises(UserError, match=r"Expected images.*Found none"):
        load_images(tmp_path / "empty", QUIET)
    with pytest.raises(UserError, match="Found nothing there"):
        load_images(tmp_path / "absent", QUIET)
    with pytest.raises(UserError, match="Found a file"):
        load_images(one / "pets" / "cat" / "1.png", QUIET)
    with pytest.raises(UserError, match="image_size"):
        load_images(two_domains(tmp_path / "two"), LoadOptions(image_size=0))


def test_unreadable_files_stop_or_are_skipped(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    broken = truncate(root / "art" / "dog" / "1.png")
    with pytest.raises(UserError, match=r"art/dog/1\.png.*--skip-unreadable"):
        load_images(root, QUIET)
    assert broken.exists()
    dataset = load_images(root, LoadOptions(image_size=8, skip_unreadable=True, progress=False))
    assert [len(d) for d in dataset.domains] == [3, 4]
    assert dataset.domains[0].y.tolist() == [0, 0, 1]
    assert dataset.notes == ("Files that cannot be decoded are left out: 1 (art/dog/1.png).",)
    pixels = dataset.domains[0].inputs.images[dataset.domains[0].inputs.rows[2]]
    np.testing.assert_array_equal(pixels, np.asarray(picture(3)))  # art/dog/2.png


def test_a_domain_that_loses_all_of_its_files_is_an_error(tmp_path: Path) -> None:
    root = make_folder(tmp_path, {"art": {"cat": ["1.png"]}, "photo": {"cat": ["1.png"]}})
    truncate(root / "art" / "cat" / "1.png")
    with pytest.raises(UserError, match="None of art can be decoded"):
        load_images(root, LoadOptions(image_size=8, skip_unreadable=True, progress=False))


def test_fingerprint_sees_content_size_and_labels(tmp_path: Path) -> None:
    root = two_domains(tmp_path / "pets")
    fingerprint = load_images(root, QUIET).fingerprint
    (tmp_path / "pets").rename(tmp_path / "moved")
    assert load_images(tmp_path / "moved", QUIET).fingerprint == fingerprint
    other_size = load_images(tmp_path / "moved", LoadOptions(image_size=9, progress=False)).fingerprint
    (tmp_path / "moved" / "art" / "dog").rename(tmp_path / "moved" / "art" / "eel")
    other_labels = load_images(tmp_path / "moved", QUIET).fingerprint
    picture(99).save(tmp_path / "moved" / "art" / "cat" / "1.png")
    other_content = load_images(tmp_path / "moved", QUIET).fingerprint
    assert len({fingerprint, other_size, other_labels, other_content}) == 4


@pytest.mark.shared
def test_pacs_is_scanned_in_image_folders_order(shared_data: Path) -> None:
    scan = scan_folder(shared_data / "PACS")
    assert scan.counts() == {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
    photo = [str(file.path) for file in scan.files if file.domain == "photo"]
    assert photo == [path for path, _ in image_folder_order(shared_data / "PACS" / "photo")]


@pytest.mark.long
@pytest.mark.shared
def test_all_of_pacs_loads_and_splits(shared_data: Path) -> None:
    dataset = load("PACS", LoadOptions(root=shared_data, image_size=32, progress=False))
    assert dataset.notes == ()
    splits = split_dataset(dataset, 0.2, trial_seed=0)
    assert {name: len(s.holdout) for name, s in splits.items()} == {
        "art_painting": 409,
        "cartoon": 468,
        "photo": 334,
        "sketch": 785,
    }
    sketch = dataset.domains[3].inputs.prepare(splits["sketch"].holdout[:4], torch.Generator().manual_seed(0)).finish()
    assert sketch.shape == (4, 3, 32, 32)
