"""Boxes against torchvision's RandomResizedCrop, and their resizing against its kernel and Pillow's."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log, sqrt
from types import ModuleType

import numpy as np
import pytest
import torch

from data.pictures import picture
from fgmix.data.augment import crop_and_resize, random_boxes, whole_boxes
from fgmix.data.dataset import Indices


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def naive_box(H: int, W: int, areas: Iterator[float], ratios: Iterator[float], place: tuple[float, float]) -> list[int]:
    """The definition, for one image and given uniform draws."""
    for u, v in zip(areas, ratios):
        target = H * W * (0.7 + 0.3 * u)
        ratio = exp(log(3 / 4) + (log(4 / 3) - log(3 / 4)) * v)
        w, h = round(sqrt(target * ratio)), round(sqrt(target / ratio))
        if 0 < w <= W and 0 < h <= H:
            return [int(place[0] * (H - h + 1)), int(place[1] * (W - w + 1)), h, w]
    h, w = H, W
    if W / H < 3 / 4:
        h = round(W / (3 / 4))
    elif W / H > 4 / 3:
        w = round(H * (4 / 3))
    return [(H - h) // 2, (W - w) // 2, h, w]


def test_boxes_follow_the_definition() -> None:
    rng = np.random.default_rng(0)
    heights, widths = rng.integers(1, 60, 300), rng.integers(1, 60, 300)
    tries = torch.rand(2, 300, 10, generator=(g := generator()), dtype=torch.float64).tolist()
    places = torch.rand(2, 300, generator=g, dtype=torch.float64).tolist()
    expected = [
        naive_box(int(heights[i]), int(widths[i]), iter(tries[0][i]), iter(tries[1][i]), (places[0][i], places[1][i]))
        for i in range(300)
    ]
    assert random_boxes(heights, widths, generator()).tolist() == expected


@pytest.mark.parametrize(("H", "W"), [(10, 100), (100, 10), (7, 30), (1, 5)])
def test_boxes_of_long_images_are_torchvisions_central_ones(v2: ModuleType, H: int, W: int) -> None:
    """No allowed crop fits, so nothing is random."""
    transform = v2.RandomResizedCrop(16, scale=(0.7, 1.0))
    params = transform.make_params([torch.empty(3, H, W)])
    expected = [params[key] for key in ("top", "left", "height", "width")]
    assert random_boxes(np.full(5, H), np.full(5, W), generator()).tolist() == [expected] * 5


def test_boxes_are_distributed_as_torchvisions(v2: ModuleType) -> None:
    H, W, n = 90, 120, 3000
    transform = v2.RandomResizedCrop(16, scale=(0.7, 1.0))
    image = torch.empty(3, H, W)
    drawn = [transform.make_params([image]) for _ in range(n)]
    theirs = np.array([[p[key] for key in ("top", "left", "height", "width")] for p in drawn], dtype=float)
    ours = random_boxes(np.full(n, H), np.full(n, W), generator()).astype(float)

    def statistics(boxes: Indices) -> Indices:
        top, left, h, w = boxes.T
        return np.stack([top, left, h, w, h * w / (H * W), np.log(w / h)])

    a, b = statistics(ours), statistics(theirs)
    error = np.sqrt(a.var(axis=1) / n + b.var(axis=1) / n)
    assert (np.abs(a.mean(axis=1) - b.mean(axis=1)) < 4 * error).all()
    np.testing.assert_allclose(a.std(axis=1), b.std(axis=1), rtol=0.08)
    for mine, other in zip(a, b):  # Kolmogorov–Smirnov distance, bound of level 1e-4
        grid = np.union1d(mine, other)
        gap = np.searchsorted(np.sort(mine), grid, "right") - np.searchsorted(np.sort(other), grid, "right")
        assert np.abs(gap).max() / n < 2.22 * sqrt(2 / n)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resizing_equals_torchvision_on_bytes(v2: ModuleType, interpolation: str) -> None:
    images = [np.array(picture(i, *size)) for i, size in enumerate([(20, 20), (31, 24), (18, 40), (9, 7)])]
    boxes = np.array([[2, 3, 15, 12], [0, 0, 24, 31], [5, 1, 30, 17], [0, 0, 7, 9]])
    ours = crop_and_resize(images, boxes, 16, interpolation)
    assert ours.shape == (4, 3, 16, 16)
    mode = v2.InterpolationMode(interpolation)
    for result, image, box in zip(ours, images, boxes.tolist()):
        planes = torch.from_numpy(image).permute(2, 0, 1)
        theirs = v2.functional.resized_crop(planes, *box, size=[16, 16], interpolation=mode, antialias=True)
        assert np.array_equal(result, theirs.numpy())


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resizing_is_within_a_rounding_of_pillows(v2: ModuleType, interpolation: str) -> None:
    """DomainBed's runs on Pillow."""
    image = picture(0, 40, 30)
    ours = crop_and_resize([np.array(image)], whole_boxes(np.array([30]), np.array([40])), 16, interpolation)
    theirs = v2.functional.resize(image, [16, 16], interpolation=v2.InterpolationMode(interpolation))
    assert np.abs(ours[0].transpose(1, 2, 0).astype(int) - np.array(theirs).astype(int)).max() <= 1


def test_images_are_not_written_to() -> None:
    image = np.array(picture(0, 20, 20))
    before = image.copy()
    crop_and_resize([image], np.array([[0, 0, 20, 20]]), 20, "bilinear")[:] = 0
    np.testing.assert_array_equal(image, before)
