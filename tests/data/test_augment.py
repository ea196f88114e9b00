"""Images as networks see them: against torchvision's transforms, on any device, for any network's normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log, sqrt
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from data.pictures import picture
from data.test_colours import naively_recoloured
from fgmix.data import Domain, DomainDataset, augment, from_arrays
from fgmix.data.augment import HostImages, ImageInputs, crop_and_resize, draw_boxes
from fgmix.data.colours import draw
from fgmix.data.dataset import Indices
from fgmix.networks.preprocessing import IMAGENET, Normalisation

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SIZES = [(20, 20), (31, 24), (18, 40), (9, 7), (16, 16), (60, 12)]  # (width, height)
PICTURES = [np.array(picture(i, w, h)) for i, (w, h) in enumerate(SIZES)]


def inputs(size: int = 16) -> ImageInputs:
    return ImageInputs(PICTURES, np.arange(len(PICTURES)), size)


def planes(image: Indices) -> Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)


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
    x = inputs().prepare(indices, generator(3)).finish()
    heights, widths = (np.array([PICTURES[i].shape[axis] for i in indices]) for axis in (0, 1))
    boxes = draw_boxes(heights, widths, g := generator(3))
    draws = draw(len(indices), g)
    for k, i in enumerate(indices):
        crop = v2.functional.resized_crop(planes(PICTURES[i]), *boxes[k].tolist(), size=[16, 16], antialias=True)
        expected = (naively_recoloured(v2, crop.float() / 255, draws, k) - MEAN) / STD
        torch.testing.assert_close(x[k], expected, atol=5e-5, rtol=0)


def test_draws_stay_what_they_are() -> None:
    """One pixel of each image, within a grey level: a later version must see what an earlier one saw."""
    x = inputs().prepare(np.arange(6), generator(3)).finish()[:, :, 5, 11]
    seen = [
        [-0.1654, 0.8622, 0.8159],
        [1.0481, 0.9605, -0.8050],
        [0.3818, -1.0757, -0.9031],
        [-0.5152, -0.1251, -0.1395],
        [0.3296, 0.4665, 0.6866],
        [0.8868, 0.3818, 1.5015],
    ]
    torch.testing.assert_close(x, torch.tensor(seen), atol=0.02, rtol=0)


def test_randomness_comes_from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    a, b, c = (inputs().prepare(np.arange(6), generator(seed)).finish() for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_result_does_not_depend_on_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = inputs().prepare(np.arange(6), generator()).finish()
    monkeypatch.setattr(augment, "CHUNK_PIXELS", 2 * 16 * 16)
    torch.testing.assert_close(inputs().prepare(np.arange(6), generator()).finish(), whole, atol=1e-6, rtol=0)


def test_rows_select_and_repeat() -> None:
    domain = ImageInputs(PICTURES, np.array([4, 1]), 16)
    assert len(domain) == 2
    assert torch.equal(domain.clean(np.array([1, 0, 1])), inputs().clean(np.array([1, 4, 1])))


def test_stored_pixels_are_never_written() -> None:
    domain = inputs()
    before = [image.copy() for image in domain.images]
    domain.clean(np.arange(6)).zero_()
    domain.prepare(np.arange(6), generator()).finish().zero_()
    assert all(np.array_equal(image, copy) for image, copy in zip(domain.images, before, strict=True))


def test_an_empty_batch_is_empty() -> None:
    none = np.array([], dtype=np.int64)
    assert inputs().clean(none).shape == (0, 3, 16, 16)
    assert inputs().prepare(none, generator()).finish().shape == (0, 3, 16, 16)


# The device's part


EACH_TWICE = np.arange(6).repeat(2)


def prepared(seed: int | None = 0, indices: Indices = EACH_TWICE) -> HostImages:
    return inputs().prepare(indices, None if seed is None else generator(seed))


class NoWaiting(TorchDispatchMode):
    """Fails on operations whose result the host must know before it can go on."""

    WAITS = ("nonzero", "_local_scalar_dense", "masked_select", "unique", "is_nonzero", "equal", "bincount")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.WAITS, f"{name} waits for the device"
        if name.startswith("index"):
            masks = [t for arg in args if isinstance(arg, list) for t in arg if t is not None and t.dtype == torch.bool]
            assert not masks, "a boolean mask waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("seed", [None, 0])
def test_finishing_never_waits_for_the_device(seed: int | None) -> None:
    batch = prepared(seed)
    with NoWaiting():
        x = batch.finish()
    assert x.shape == (12, 3, 16, 16)


@pytest.mark.parametrize("seed", [None, 0])
def test_finishing_copies_nothing_from_the_host(seed: int | None) -> None:
    """On the meta device, where tensors have no values: one from the host, or a look at a value, would be an error."""
    batch = prepared(seed).move(lambda t: t.to("meta"))
    x = HostImages.join([batch, batch]).finish()
    assert x.device.type == "meta"
    assert x.shape == (24, 3, 16, 16)


def test_bytes_cross_the_bus() -> None:
    moved: list[Tensor] = []
    prepared().move(lambda t: moved.append(t) or t)
    pixels = [t for t in moved if t.dtype == torch.uint8]
    assert [t.shape for t in pixels] == [(12, 3, 16, 16)]
    assert sum(t.nbytes for t in moved) < 1.1 * pixels[0].nbytes


@pytest.mark.parametrize("seed", [None, 0])
def test_batches_of_several_domains_are_finished_together(seed: int | None) -> None:
    parts = [prepared(seed, np.arange(6)), prepared(seed, np.array([5])), prepared(seed, np.array([], dtype=np.int64))]
    together = HostImages.join(parts).finish()
    torch.testing.assert_close(together, torch.cat([part.finish() for part in parts]), atol=1e-6, rtol=0)


def test_memory_of_a_batch_is_aligned_as_torchs() -> None:
    for _ in range(20):
        assert augment.empty_floats((2, 3, 5, 7), torch.device("cpu")).data_ptr() % 64 == 0


# Normalisation

CLIP = Normalisation((0.481, 0.458, 0.408), (0.269, 0.261, 0.276), "bicubic")


def test_images_are_normalised_as_the_network_expects(v2: ModuleType) -> None:
    x = inputs().normalise(CLIP).clean(np.array([1]))
    bicubic = v2.InterpolationMode.BICUBIC
    resized = v2.functional.resize(planes(PICTURES[1]), [16, 16], interpolation=bicubic, antialias=True)
    mean, std = torch.tensor(CLIP.mean).view(3, 1, 1), torch.tensor(CLIP.std).view(3, 1, 1)
    torch.testing.assert_close(x[0], (resized.float() / 255 - mean) / std)


def test_augmented_images_differ_by_their_normalisation_alone() -> None:
    other = Normalisation((0.5, 0.4, 0.3), (1.0, 2.0, 0.5), "bilinear")
    a, b = (inputs().normalise(n).prepare(np.arange(6), generator()).finish() for n in (IMAGENET, other))
    mean, std = torch.tensor(other.mean).view(3, 1, 1), torch.tensor(other.std).view(3, 1, 1)
    torch.testing.assert_close(b, (a * STD + MEAN - mean) / std, atol=1e-5, rtol=0)


def test_a_dataset_of_images_is_normalised_domain_by_domain() -> None:
    y = np.arange(6) % 2
    dataset = DomainDataset(
        "made", (Domain("a", inputs(), y), Domain("b", inputs(), y)), ("0", "1"), (3, 16, 16), "images", "f"
    )
    changed = dataset.normalise(CLIP)
    for before, after in zip(dataset.domains, changed.domains):
        expected = inputs().normalise(CLIP).clean(np.arange(6))
        assert torch.equal(after.inputs.clean(np.arange(6)), expected)
        assert not torch.equal(before.inputs.clean(np.arange(6)), expected)
    assert changed.fingerprint == dataset.fingerprint


def test_arrays_are_left_as_they_are() -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, 3, 2, 2), dtype=np.uint8)
    dataset = from_arrays(x, np.arange(4) % 2, np.arange(4) // 2)
    changed = dataset.normalise(CLIP)
    assert torch.equal(changed.domains[0].inputs.clean(np.arange(2)), torch.from_numpy(x[:2]).float() / 255)


# Boxes against torchvision's RandomResizedCrop, and their resizing against its kernel and Pillow's


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
    assert draw_boxes(heights, widths, generator()).tolist() == expected


@pytest.mark.parametrize(("H", "W"), [(10, 100), (100, 10), (7, 30), (1, 5)])
def test_boxes_of_long_images_are_torchvisions_central_ones(v2: ModuleType, H: int, W: int) -> None:
    """No allowed crop fits, so nothing is random."""
    transform = v2.RandomResizedCrop(16, scale=(0.7, 1.0))
    params = transform.make_params([torch.empty(3, H, W)])
    expected = [params[key] for key in ("top", "left", "height", "width")]
    assert draw_boxes(np.full(5, H), np.full(5, W), generator()).tolist() == [expected] * 5


def test_boxes_are_distributed_as_torchvisions(v2: ModuleType) -> None:
    H, W, n = 90, 120, 3000
    transform = v2.RandomResizedCrop(16, scale=(0.7, 1.0))
    image = torch.empty(3, H, W)
    drawn = [transform.make_params([image]) for _ in range(n)]
    theirs = np.array([[p[key] for key in ("top", "left", "height", "width")] for p in drawn], dtype=float)
    ours = draw_boxes(np.full(n, H), np.full(n, W), generator()).astype(float)

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
    ours = crop_and_resize([np.array(image)], np.array([[0, 0, 30, 40]]), 16, interpolation)
    theirs = v2.functional.resize(image, [16, 16], interpolation=v2.InterpolationMode(interpolation))
    assert np.abs(ours[0].transpose(1, 2, 0).astype(int) - np.array(theirs).astype(int)).max() <= 1


def test_images_are_not_written_to() -> None:
    image = np.array(picture(0, 20, 20))
    before = image.copy()
    crop_and_resize([image], np.array([[0, 0, 20, 20]]), 20, "bilinear")[:] = 0
    np.testing.assert_array_equal(image, before)
