"""Near-duplicates: found in other tones, sizes and noise, mirrored and inverted; unrelated pictures are not."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps
from scipy.fft import dct

from cli.test_cli import call
from fgmix.data.checks import check_images
from fgmix.data.near_duplicates import FREQUENCIES, LEAD, SIDE, describe_image, find_pairs, find_twins

N = 40  # pictures


def scene(seed: int) -> Image.Image:
    """A picture of random shapes: it has all frequencies, as photos have."""
    rng = np.random.default_rng(seed)
    pixels = np.full((96, 96, 3), rng.integers(0, 256, 3), dtype=np.uint8)
    for _ in range(25):
        x, y, w, h = rng.integers(0, 80, 4) // (1, 1, 2, 2)
        pixels[y : y + h + 6, x : x + w + 6] = rng.integers(0, 256, 3)
    return Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(1))


def compress(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=30)
    return Image.open(file)


def add_noise(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image) + np.random.default_rng(0).normal(0, 20, (96, 96, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


STYLES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "compressed": compress,
    "small": lambda image: image.resize((48, 48)),
    "dark": lambda image: image.point(lambda v: 255 * (v / 255) ** 2),
    "grey": ImageOps.grayscale,
    "noisy": add_noise,
    "posterised": lambda image: ImageOps.posterize(image, 2),
    "mirrored": ImageOps.mirror,
    "inverted": ImageOps.invert,
    "mirrored and inverted": lambda image: ImageOps.mirror(ImageOps.invert(image)),
}


@pytest.fixture(scope="module")
def scenes() -> list[Image.Image]:
    return [scene(seed) for seed in range(N)]


@pytest.mark.parametrize("style", STYLES)
def test_a_restyled_picture_is_found(style: str, scenes: list[Image.Image]) -> None:
    low = np.stack([describe_image(image) for image in (*scenes, *map(STYLES[style], scenes))])
    found = {(i, j) for i, j, _ in find_pairs(low)}
    assert found <= {(i, i + N) for i in range(N)}
    assert len(found) >= 0.95 * N


def test_unrelated_pictures_are_not_found(scenes: list[Image.Image]) -> None:
    assert find_pairs(np.stack(list(map(describe_image, scenes)))) == []


def test_pictures_in_one_pose_are_told_apart() -> None:
    """Most low frequencies of aligned pictures have the same sign, which the median takes away."""
    pose = np.asarray(scene(0)).astype(float)
    changed = [0.6 * pose + 0.4 * np.asarray(scene(seed)) for seed in range(1, N)]
    low = np.stack([describe_image(Image.fromarray(pixels.astype(np.uint8))) for pixels in changed])
    assert find_pairs(low) == []
    signs = np.where(low > 0, 1, -1)[:, 1:]
    alike = [np.mean(a * b) for a, b in itertools.combinations(signs, 2)]
    assert max(alike) >= 0.7


def naive_low(image: Image.Image) -> np.ndarray:
    """Low frequencies by cosines, one row and one column at a time."""
    pixels = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=float)
    rows = np.stack([dct(row, norm="ortho") for row in pixels])
    both = np.stack([dct(column, norm="ortho") for column in rows.T]).T[:FREQUENCIES, :FREQUENCIES].reshape(-1)
    both[0] = 0
    return both / np.linalg.norm(both)


def test_pairs_agree_with_a_loop_over_all(scenes: list[Image.Image]) -> None:
    images = [*scenes[:12], ImageOps.mirror(scenes[3]), ImageOps.invert(scenes[5]), add_noise(scenes[7])]
    low = np.stack(list(map(describe_image, images)))
    np.testing.assert_allclose(low, np.stack(list(map(naive_low, images))), atol=1e-5)
    m = np.median(low, axis=0)
    mirrored = np.stack([describe_image(ImageOps.mirror(image)) for image in images])
    expected = {}
    for i, j in itertools.combinations(range(len(images)), 2):
        others = (low[j], mirrored[j], -low[j], -mirrored[j])
        similarity = max(np.mean(np.where(low[i] > m, 1, -1)[1:] * np.where(o > m, 1, -1)[1:]) for o in others)
        if similarity >= 0.2:
            expected[i, j] = similarity
    found = {(i, j): similarity for i, j, similarity in find_pairs(low, least=0.2)}
    assert found.keys() == expected.keys()
    assert all(found[pair] == pytest.approx(expected[pair], abs=0.02) for pair in found)
    assert {(3, 12), (5, 13), (7, 14)} <= {pair for pair, similarity in found.items() if similarity > 0.7}


def test_check_reports_pairs_across_and_within_domains(tmp_path: Path, scenes: list[Image.Image]) -> None:
    for domain, images in {"plain": scenes[:12], "noisy": [*scenes[12:23], add_noise(scenes[0])]}.items():
        for i, image in enumerate(images):
            folder = tmp_path / domain / ("cat" if i % 2 else "dog")
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{i}.png")
    ImageOps.mirror(scenes[1]).save(tmp_path / "plain" / "cat" / "mirror.png")
    report = check_images(tmp_path, progress=False)
    assert report.near_across == ((tmp_path / "noisy" / "cat" / "11.png", tmp_path / "plain" / "dog" / "0.png"),)
    assert report.near_within == ((tmp_path / "plain" / "cat" / "1.png", tmp_path / "plain" / "cat" / "mirror.png"),)
    assert not report.clean
    assert sum("Near-duplicates" in line and "1 pair" in line for line in report.lines()) == 2

    known = {each: number for number, pair in enumerate((*report.near_across, *report.near_within)) for each in pair}
    rows = [
        f"{path},{path.parts[-2]},{path.parts[-3]},{known.get(path, path.stem + path.parts[-3])}"
        for path in sorted(tmp_path.rglob("*.png"))
    ]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,domain,group", *rows]))
    named = check_images(tmp_path / "list.csv", progress=False)
    assert (named.near_across, named.near_within) == ((), ())  # the groups say it


def test_no_picture_and_one_picture(scenes: list[Image.Image]) -> None:
    assert find_pairs(np.zeros((0, 256), np.float32)) == []
    assert find_pairs(describe_image(scenes[0])[None]) == []


def test_twins_are_those_of_a_search_by_loops() -> None:
    rng = np.random.default_rng(0)
    objects = rng.normal(size=(20, 30))
    domains = [
        np.float32(scale * (objects[rows] + 0.6 * rng.normal(size=(len(rows), 30))) + shift)
        for rows, scale, shift in ((range(12), 1, 0), (range(4, 20), 3, -2), ([0, 19, 5], 0.1, 9))
    ]
    codes = []
    for x in domains:
        z = (x - x.mean(0)) / x.std(0)
        codes.append(z / np.linalg.norm(z, axis=1, keepdims=True))
    expected = []
    for a, b in itertools.combinations(range(3), 2):
        for i, one in enumerate(codes[a]):
            for j, other in enumerate(codes[b]):
                rivals = [one @ each for k, each in enumerate(codes[b]) if k != j]
                rivals += [each @ other for k, each in enumerate(codes[a]) if k != i]
                if one @ other - max(rivals) >= LEAD:
                    expected.append(((a, i), (b, j)))
    found = find_twins(domains)
    assert sorted(found) == sorted(expected)
    assert 5 < len(found) < 12
    assert find_twins([domains[0], domains[1][:1]]) == []


def test_features_find_objects_that_pixels_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    for i in range(12):
        other = scene(i if i < 4 else 20 + i).crop((9, 9, 87, 87))
        for domain, image in (("photo", scene(i)), ("crop", other)):
            path = tmp_path / "digits" / domain / "ab"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
    monkeypatch.chdir(tmp_path)  # where a folder has the name of a dataset
    assert call(monkeypatch, "data", "check", "./digits", "--quiet") == 0
    assert "pair" not in capsys.readouterr().out
    assert call(monkeypatch, "data", "check", "./digits", "--features", "--quiet") == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "pair" in line)
    found = re.findall(r"crop/(./\d+.png) and photo/(./\d+.png)", line)
    assert len(found) == 3
    assert all(one == other and int(one[2:-4]) < 4 for one, other in found)
