"""Damage to any file of the cache is harmless or reported, and never reaches a network."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from data.pictures import two_domains
from fgmix.data import DomainDataset, LoadOptions
from fgmix.data.image_cache import CachedImages
from fgmix.data.image_dataset import load_images, prepare_images
from fgmix.errors import MachineError, UserError

pytestmark = pytest.mark.usefixtures("image_cache")
FLIPS, CUTS, GROWTHS = 60, 12, 4
OPTIONS = LoadOptions(image_size=8, progress=False)


@pytest.fixture(params=["pixels"])
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A prepared folder, as pixels or JPEGs; its files count as old, so that their contents are remembered, too."""
    monkeypatch.setenv("FGMIX_DECODED_GB", {"pixels": "1", "jpeg": "0"}[request.param])
    root = two_domains(tmp_path / "pets")
    later = time.time_ns() + 60 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    prepare_images(root, OPTIONS)
    return root


def images_of(dataset: DomainDataset) -> CachedImages:
    images = dataset.domains[0].inputs.images  # type: ignore[attr-defined]
    assert isinstance(images, CachedImages)
    return images


def everything(root: Path) -> tuple[str, bytes]:
    """The fingerprint and every pixel."""
    dataset = load_images(root, OPTIONS)
    images = images_of(dataset)
    return dataset.fingerprint, b"".join(images[row].tobytes() for row in images.readable)


def flip(data: bytearray, rng: np.random.Generator) -> None:
    data[rng.integers(len(data))] ^= int(rng.integers(1, 256))


def cut(data: bytearray, rng: np.random.Generator) -> None:
    del data[rng.integers(len(data)) :]


def grow(data: bytearray, rng: np.random.Generator) -> None:
    data += rng.bytes(3)


@pytest.mark.parametrize("pets", ["pixels", "jpeg"], indirect=True)
def test_any_change_is_harmless_or_reported(
    pets: Path, image_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a hundred rebuilds need not survive a power cut
    sound = everything(pets)
    whole = shutil.copytree(image_cache, tmp_path / "whole")
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    assert [path.parts[0] for path in files] == ["contents", "decoded", "decoded"]
    rng = np.random.default_rng(0)
    for change in [flip] * FLIPS + [cut] * CUTS + [grow] * GROWTHS:
        file = files[rng.integers(len(files))]
        data = bytearray((whole / file).read_bytes())
        change(data, rng)
        (image_cache / file).write_bytes(data)
        try:
            assert everything(pets) == sound, file
            said = capsys.readouterr().err
        except MachineError as error:  # an image is damaged: the next start rebuilds
            said = str(error)
            assert everything(pets) == sound, file
        assert file.parts[0] == "contents" or str(image_cache / file.parent) in said, file
        shutil.copytree(whole, image_cache, dirs_exist_ok=True)


def damage(images: CachedImages, row: int) -> None:
    with open(images.file, "r+b") as file:
        file.seek(int(images.offsets[row]) + 7)
        file.write(b"\xaa\x55\xaa")


def test_an_image_is_verified_once_in_a_process(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = images_of(load_images(pets, OPTIONS))
    checked = []
    sound = CachedImages.is_sound
    monkeypatch.setattr(CachedImages, "is_sound", lambda self, row: checked.append(row) or sound(self, row))
    for row in (3, 1, 3, 3, 1):
        images[row]
    assert checked == [3, 1]


def test_a_cache_that_may_not_be_read_is_an_error_of_its_own(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("fgmix.data.image_cache.read_arrays", forbidden)
    with pytest.raises(UserError, match=r"Expected to read decoded images.*Permission denied.*FGMIX_CACHE"):
        load_images(pets, OPTIONS)


def test_a_damaged_image_is_an_error_and_the_next_start_rebuilds(pets: Path) -> None:
    sound = everything(pets)
    images = images_of(load_images(pets, OPTIONS))
    damage(images, 2)
    with pytest.raises(MachineError, match=r"images\.bin.*is deleted.*again"):
        images[2]
    assert not images.file.exists()
    assert everything(pets) == sound
