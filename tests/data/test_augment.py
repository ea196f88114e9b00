"""Augmentation against torchvision's transforms, op by op and as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log, sqrt
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from data.pictures import picture
from fgmix.data import augment
from fgmix.data._dataset import Indices
from fgmix.data.augment import COLOUR_STEPS, ImageInputs, Recipe, crop_boxes
from fgmix.data.decoded import DecodedImages
from fgmix.networks._torchvision import ensure_torchvision

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


@pytest.fixture(scope="module")
def v2() -> ModuleType:
    ensure_torchvision()
    from torchvision.transforms import v2

    return v2


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def in_memory(pictures: list[Indices]) -> DecodedImages:
    """Images (h, w, 3) as the cache would give them."""
    heights, widths = (np.array([image.shape[axis] for image in pictures]) for axis in (0, 1))
    offsets = np.concatenate([[0], np.cumsum(heights * widths * 3)[:-1]])
    return DecodedImages("key", np.concatenate([image.ravel() for image in pictures]), offsets, heights, widths)


SIZES = [(20, 20), (31, 24), (18, 40), (9, 7), (16, 16), (60, 12)]  # (width, height)
PICTURES = [np.array(picture(i, w, h)) for i, (w, h) in enumerate(SIZES)]


def inputs(size: int = 16) -> ImageInputs:
    return ImageInputs(in_memory(PICTURES), np.arange(len(PICTURES)), size)


def planes(image: Indices) -> Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)


# colour


def colours() -> Tensor:
    """Eight images of random colours, with grey, black, white and pure pixels among them: (8, 3, 9, 11) uint8."""
    x = torch.randint(0, 256, (8, 3, 9, 11), generator=generator(), dtype=torch.uint8)
    x[:, :, 0] = x[:, :1, 0]
    x[:, :, 1, 0], x[:, :, 1, 1] = 0, 255
    for channel in range(3):
        x[:, channel, 2] = 0
        x[:, channel, 3] = 255
    return x


@pytest.mark.parametrize("name", ["adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue"])
def test_colour_steps_equal_torchvisions(v2: ModuleType, name: str) -> None:
    """Equal on floats; within the two roundings of its integers, of which the first is scaled by |1 − f| ≤ 0.3."""
    x8 = colours()
    x = x8.float() / 255
    factors = torch.linspace(-0.3, 0.3, 8) + (name != "adjust_hue")
    ours = getattr(augment, name)(x, factors.view(-1, 1, 1, 1))
    theirs = getattr(v2.functional, name)
    for image, image8, result, factor in zip(x, x8, ours, factors.tolist()):
        torch.testing.assert_close(result, theirs(image, factor), atol=3e-6, rtol=0)
        assert (result - theirs(image8, factor).float() / 255).abs().max() <= 1.31 / 255


@pytest.mark.parametrize(("name", "grey_levels"), [("brightness", 1), ("contrast", 1), ("saturation", 1), ("hue", 2)])
def test_colour_steps_are_near_pillows(v2: ModuleType, name: str, grey_levels: int) -> None:
    """DomainBed's run on Pillow, which keeps integers between the steps: hue in 256 steps of the circle."""
    image = picture(0, 40, 40)
    factors = torch.linspace(-0.3, 0.3, 7) + (name != "hue")
    x = planes(np.array(image)).float()[None].div(255).expand(7, -1, -1, -1)
    ours = getattr(augment, f"adjust_{name}")(x, factors.view(-1, 1, 1, 1))
    for result, factor in zip(ours, factors.tolist()):
        pillow = planes(np.array(getattr(v2.functional, f"adjust_{name}")(image, factor))).float() / 255
        assert (result - pillow).abs().mean() <= grey_levels / 255


def test_hue_of_a_third_rotates_the_channels() -> None:
    x = colours().float() / 255
    turned = augment.adjust_hue(x, torch.full((8, 1, 1, 1), 1 / 3))
    torch.testing.assert_close(turned, x.roll(1, dims=1), atol=1e-6, rtol=0)


def test_luma_is_torchvisions(v2: ModuleType) -> None:
    x = colours().float() / 255
    torch.testing.assert_close(augment.luma(x), v2.functional.rgb_to_grayscale(x), atol=1e-6, rtol=0)


def naively_recoloured(v2: ModuleType, image: Tensor, recipe: Recipe, i: int) -> Tensor:
    """One image through torchvision's functions in the order that the recipe says."""
    steps = [getattr(v2.functional, step.__name__) for step in COLOUR_STEPS]
    if recipe.flip[i]:
        image = v2.functional.horizontal_flip(image)
    for number in recipe.order[i].tolist():
        image = steps[number](image, recipe.factors[i, number].item())
    return v2.functional.rgb_to_grayscale(image, num_output_channels=3) if recipe.grayscale[i] else image


def test_recipe_equals_torchvision_image_by_image(v2: ModuleType) -> None:
    x = torch.rand(64, 3, 6, 5, generator=generator(1))
    recipe = Recipe.draw(64, generator(2))
    assert 0 < recipe.grayscale.sum() < 64
    expected = torch.stack([naively_recoloured(v2, image, recipe, i) for i, image in enumerate(x)])
    torch.testing.assert_close(recipe.apply_(x.clone()), expected, atol=1e-5, rtol=0)


def test_recipe_is_drawn_with_torchvisions_probabilities() -> None:
    n = 24_000
    recipe = Recipe.draw(n, generator())
    assert recipe.flip.float().mean() == pytest.approx(0.5, abs=0.015)  # 5 standard errors
    assert recipe.grayscale.float().mean() == pytest.approx(0.1, abs=0.01)
    centre = torch.tensor([1.0, 1.0, 1.0, 0.0])
    off = recipe.factors - centre
    assert off.abs().max() <= 0.3 + 1e-6
    torch.testing.assert_close(off.mean(0), torch.zeros(4), atol=0.006, rtol=0)
    torch.testing.assert_close(off.std(0), torch.full((4,), 0.3 / sqrt(3)), atol=0.004, rtol=0)
    orders, counts = recipe.order.unique(dim=0, return_counts=True)
    assert len(orders) == 24
    assert orders.sort(dim=1).values.tolist() == [[0, 1, 2, 3]] * 24
    assert (counts.float() / n).sub(1 / 24).abs().max() < 5 * sqrt(1 / 24 / n)


# crops


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
    assert crop_boxes(heights, widths, generator()).tolist() == expected


@pytest.mark.parametrize(("H", "W"), [(10, 100), (100, 10), (7, 30), (1, 5)])
def test_boxes_of_long_images_are_torchvisions_central_ones(v2: ModuleType, H: int, W: int) -> None:
    """No allowed crop fits, so nothing is random."""
    transform = v2.RandomResizedCrop(16, scale=(0.7, 1.0))
    params = transform.make_params([torch.empty(3, H, W)])
    expected = [params[key] for key in ("top", "left", "height", "width")]
    assert crop_boxes(np.full(5, H), np.full(5, W), generator()).tolist() == [expected] * 5


def test_boxes_are_distributed_as_torchvisions(v2: ModuleType) -> None:
    H, W, n = 90, 120, 3000
    transform = v2.RandomResizedCrop(16, scale=(0.7, 1.0))
    image = torch.empty(3, H, W)
    drawn = [transform.make_params([image]) for _ in range(n)]
    theirs = np.array([[p[key] for key in ("top", "left", "height", "width")] for p in drawn], dtype=float)
    ours = crop_boxes(np.full(n, H), np.full(n, W), generator()).astype(float)

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


# the whole


def test_clean_is_squashed_and_normalised(v2: ModuleType) -> None:
    """As torchvision resizes the pixels, and within a rounding of how Pillow does."""
    x = inputs().clean(np.array([5, 0, 2]))
    assert x.shape == (3, 3, 16, 16)
    assert x.dtype == torch.float32
    for result, i in zip(x, (5, 0, 2)):
        resized = v2.functional.resize(planes(PICTURES[i]), [16, 16], antialias=True)
        torch.testing.assert_close(result, (resized.float() / 255 - MEAN) / STD)
        pillow = v2.functional.to_image(v2.functional.resize(picture(i, *SIZES[i]), [16, 16]))
        assert (result * STD + MEAN - pillow.float() / 255).abs().max() <= 1.01 / 255


def test_augmented_equals_torchvision_with_the_same_draws(v2: ModuleType) -> None:
    indices = np.arange(6).repeat(3)
    x = inputs().augmented(indices, generator(3))
    heights, widths = (np.array([PICTURES[i].shape[axis] for i in indices]) for axis in (0, 1))
    boxes = crop_boxes(heights, widths, g := generator(3))
    recipe = Recipe.draw(len(indices), g)
    for k, i in enumerate(indices):
        crop = v2.functional.resized_crop(planes(PICTURES[i]), *boxes[k].tolist(), size=[16, 16], antialias=True)
        expected = (naively_recoloured(v2, crop.float() / 255, recipe, k) - MEAN) / STD
        torch.testing.assert_close(x[k], expected, atol=5e-5, rtol=0)


def test_randomness_comes_from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    a, b, c = (inputs().augmented(np.arange(6), generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_result_does_not_depend_on_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = inputs().augmented(np.arange(6), generator())
    monkeypatch.setattr(augment, "PART_PIXELS", 2 * 16 * 16)
    torch.testing.assert_close(inputs().augmented(np.arange(6), generator()), whole, atol=1e-6, rtol=0)


def test_rows_select_and_repeat() -> None:
    domain = ImageInputs(in_memory(PICTURES), np.array([4, 1]), 16)
    assert len(domain) == 2
    assert torch.equal(domain.clean(np.array([1, 0, 1])), inputs().clean(np.array([1, 4, 1])))


def test_stored_pixels_are_never_written() -> None:
    domain = inputs()
    before = domain.images.pixels.copy()
    domain.clean(np.arange(6)).zero_()
    domain.augmented(np.arange(6), generator()).zero_()
    np.testing.assert_array_equal(domain.images.pixels, before)


def test_an_empty_batch_is_empty() -> None:
    none = np.array([], dtype=np.int64)
    assert inputs().clean(none).shape == (0, 3, 16, 16)
    assert inputs().augmented(none, generator()).shape == (0, 3, 16, 16)
