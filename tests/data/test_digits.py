"""The embedded digits: what is in each domain, that it is always the same, and that it is kept safely."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from fgmix.data import DomainDataset, digits, load
from fgmix.data.mnist import Digits, bundled_mnist

# Made with the versions in constraints.txt: another Pillow may draw a font's edge a grey level off.
FINGERPRINT = "ef6be5cdd6e4bf70880b0dc020f6918c"
SIZES = {"fonts": 2000, "mnist": 2000, "optdigits": 1797, "photo": 2000}

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORK = multiprocessing.get_context("fork")  # milliseconds, where a fresh interpreter imports torch for seconds


@pytest.fixture(scope="session")
def built() -> dict[str, Digits]:
    return digits.build()


@pytest.fixture(scope="session")
def cache(built: dict[str, Digits], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that two processes filled at once."""
    folder = tmp_path_factory.mktemp("cache") / "made" / "on" / "demand"
    barrier = FORK.Barrier(2)

    def fill() -> None:
        digits.build = lambda: built if barrier.wait() < 2 else {}  # returns when both have begun to build
        digits.read_or_build(folder / digits.cache_name())

    processes = [FORK.Process(target=fill) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    return folder


@pytest.fixture
def dataset(cache: Path, monkeypatch: pytest.MonkeyPatch) -> DomainDataset:
    """`digits` out of the cache: building it here would fail."""
    monkeypatch.setenv("FGMIX_CACHE", str(cache))
    monkeypatch.delattr(digits, "build")
    return load("digits")


def pixels(dataset: DomainDataset, name: str) -> np.ndarray:
    return dataset.domains[dataset.index(name)].inputs.x  # type: ignore[attr-defined]


def test_fingerprint_is_pinned(dataset: DomainDataset) -> None:
    assert dataset.fingerprint == FINGERPRINT


def test_two_processes_that_build_at_once_leave_one_whole_file(cache: Path) -> None:
    assert [file.name for file in cache.iterdir()] == [digits.cache_name()]


def test_domains_classes_and_shapes(dataset: DomainDataset) -> None:
    assert dataset.domain_names == ("fonts", "mnist", "optdigits", "photo")
    assert dataset.classes == tuple("0123456789")
    assert (dataset.input_shape, dataset.kind) == ((3, 32, 32), "small_images")
    for domain in dataset.domains:
        x = pixels(dataset, domain.name)
        assert x.shape == (SIZES[domain.name], 3, 32, 32)
        assert (x.dtype, domain.y.dtype) == (np.uint8, np.int64)
        counts = np.bincount(domain.y, minlength=10)
        assert counts.min() >= 174
        assert domain.name == "optdigits" or (counts == 200).all()


def test_what_was_kept_equals_what_is_built(dataset: DomainDataset, built: dict[str, Digits]) -> None:
    assert tuple(built) == dataset.domain_names
    for domain in dataset.domains:
        x, y = built[domain.name]
        np.testing.assert_array_equal(pixels(dataset, domain.name), x)
        np.testing.assert_array_equal(domain.y, y)


def test_mnist_and_photo_hold_different_digits(built: dict[str, Digits]) -> None:
    """Both are traced back to the bundled digits, which are all different, by their pixels alone."""
    images, labels = bundled_mnist()
    number = {image.tobytes(): i for i, image in enumerate(images)}
    assert len(number) == 5000

    x, y = built["mnist"]
    assert (x == x[:, :1]).all()  # grey
    plain = [number[image[0, 2:30, 2:30].tobytes()] for image in x]
    np.testing.assert_array_equal(labels[plain], y)

    x, y = built["photo"]
    _, blended = digits.mnist_parts(labels)
    d = np.pad(images[blended], ((0, 0), (2, 2), (2, 2)))[:, None].astype(int)
    patches = digits.blend(np.zeros((len(d), 32, 32), np.uint8), digits._photos())  # |0 − c·p|, the same draws
    np.testing.assert_array_equal(x, abs(d - patches))
    np.testing.assert_array_equal(labels[blended], y)

    assert len(set(plain)) == len(set(blended.tolist())) == 2000
    assert not set(plain) & set(blended.tolist())


def test_blend_is_the_absolute_difference_with_a_dimmed_patch() -> None:
    flat = np.broadcast_to(np.array([0, 100, 250], np.uint8), (40, 50, 3))
    d = np.full((2, 32, 32), 90, np.uint8)
    x = digits.blend(d, [flat])
    assert x.shape == (2, 3, 32, 32)
    np.testing.assert_array_equal(x[:, :, 0, 0], [[90, 10, 110]] * 2)  # |90 − 0.8·(0, 100, 250)|


def test_photo_patches_are_cut_from_the_whole_of_every_photo() -> None:
    """A photo whose colour tells the place: the patches' corners reach all of its edges."""
    row, column = np.indices((64, 96))
    photos = [np.stack([row, column, np.full_like(row, which)], -1).astype(np.uint8) for which in (0, 200)]
    x = digits.blend(np.zeros((2000, 32, 32), np.uint8), photos) / digits.PHOTO_CONTRAST
    top, left, which = np.rint(x[:, :, 0, 0]).astype(int).T
    assert set(which) == {0, 200}
    assert (top.min(), top.max(), left.min(), left.max()) == (0, 64 - 32, 0, 96 - 32)


def test_optdigits_are_scikit_learns_in_their_order(built: dict[str, Digits]) -> None:
    from sklearn.datasets import load_digits

    x, y = built["optdigits"]
    small, labels = load_digits(return_X_y=True)
    np.testing.assert_array_equal(y, labels)
    # 24×24 within a margin of 4, averaged back to 8×8: the originals up to the enlargement's blur
    back = x[:, 0, 4:28, 4:28].reshape(-1, 8, 3, 8, 3).mean((2, 4)).reshape(-1, 64)
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(back, small)]
    assert min(correlation) > 0.97
    assert (x[:, :, :4] == 0).all()


@pytest.mark.parametrize("name", digits.FONTS)
def test_every_font_has_ten_different_digits(name: str) -> None:
    """Last Resort, which draws one box for all of them, would fail."""
    glyphs = [np.asarray(glyph) for glyph in digits.glyphs(name)]
    assert len({glyph.tobytes() for glyph in glyphs}) == 10
    for glyph in glyphs:
        assert glyph.max() == 255
        assert not glyph[[0, -1]].any()
        assert not glyph[:, [0, -1]].any()
        assert glyph[1].any() and glyph[-2].any() and glyph[:, 1].any() and glyph[:, -2].any()  # noqa: PT018


def test_fonts_are_light_on_dark_and_vary(built: dict[str, Digits]) -> None:
    x, _ = built["fonts"]
    grey = x.mean(1)
    ground = np.median(grey, axis=(1, 2))
    assert (grey.max((1, 2)) - ground > 60).all()
    assert len({image.tobytes() for image in x}) == len(x)
    assert (x.std(1).max((1, 2)) > 5).mean() > 0.99  # tinted, not grey


# The kept file. Tiny arrays stand in for the built ones.


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, Digits]:
    """What `build` returns from here on."""
    domains = {
        name: (np.full((2, 3, 4, 4), i, np.uint8), np.array([i, 9 - i])) for i, name in enumerate(digits.DOMAINS)
    }
    monkeypatch.setattr(digits, "build", lambda: domains)
    return domains


def assert_same(a: dict[str, Digits], b: dict[str, Digits]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        for left, right in zip(a[name], b[name]):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def with_a_pixel_changed(data: bytes) -> bytes:
    at = data.index(bytes([3]) * 16)  # within photo's pixels
    return data[:at] + b"\7" + data[at + 1 :]


@pytest.mark.parametrize("damage", [lambda _: b"", lambda _: b"no archive", half, with_a_pixel_changed])
def test_a_broken_file_is_built_again(
    damage: object, tiny: dict[str, Digits], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "digits.npz"
    digits.read_or_build(file)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))  # type: ignore[operator]
    assert_same(digits.read_or_build(file), tiny)
    monkeypatch.delattr(digits, "build")
    assert_same(digits.read_or_build(file), tiny)


def test_a_whole_file_with_other_content_is_built_again(tiny: dict[str, Digits], tmp_path: Path) -> None:
    file = tmp_path / "digits.npz"
    np.savez(file, fonts_x=np.zeros(3))
    assert_same(digits.read_or_build(file), tiny)


def test_pickled_objects_are_never_loaded(tiny: dict[str, Digits], tmp_path: Path) -> None:
    file = tmp_path / "digits.npz"
    np.savez(file, fingerprint=np.array([{"an": "object"}], dtype=object))
    assert_same(digits.read_or_build(file), tiny)


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tiny: dict[str, Digits], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert_same(digits.read_or_build(tmp_path / "file" / "digits.npz"), tiny)


def test_a_disk_that_fills_up_leaves_nothing_behind(
    tiny: dict[str, Digits], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert_same(digits.read_or_build(tmp_path / "digits.npz"), tiny)
    assert list(tmp_path.iterdir()) == []


def test_a_file_written_meanwhile_by_another_process_is_replaced(
    tiny: dict[str, Digits], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "digits.npz"

    def build_while_another_finishes() -> dict[str, Digits]:
        monkeypatch.setattr(digits, "build", lambda: tiny)
        return digits.read_or_build(file)

    monkeypatch.setattr(digits, "build", build_while_another_finishes)
    assert_same(digits.read_or_build(file), tiny)
    monkeypatch.delattr(digits, "build")
    assert_same(digits.read_or_build(file), tiny)


def test_the_name_tells_the_versions_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digits.cache_name()
    assert before.startswith("digits-v1-")
    monkeypatch.setattr("importlib.metadata.version", lambda package: f"{package} of another day")
    assert digits.cache_name() != before


def test_a_missing_font_is_named() -> None:
    with pytest.raises(ValueError, match=r"NoSuchFont\.ttf"):
        list(digits.glyphs("NoSuchFont"))
