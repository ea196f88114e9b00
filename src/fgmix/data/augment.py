"""Input images of networks: DomainBed's augmentation for training, and a resize to S×S for evaluation.

In this order: random resized crop (on the host), horizontal flip, jitter of brightness, contrast, saturation and hue,
grayscale (`colours`, on the device), normalisation as the network expects. Values are floats between the colour steps,
while Pillow truncates them to integers. Crops have the distribution of torchvision's RandomResizedCrop, with an area of
0.7 to 1 of the image's and an aspect ratio of 3/4 to 4/3.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", 2021, https://arxiv.org/abs/2007.01434.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fgmix.data import colours
from fgmix.data.colours import Group
from fgmix.data.dataset import HostInputs, Indices, Inputs
from fgmix.data.image_cache import CachedImages, Pixels
from fgmix.data.images import SMALLEST_CROP
from fgmix.networks.preprocessing import IMAGENET, Normalisation

SCALE = (SMALLEST_CROP, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10
# Pixels that a CPU processes at once: few enough for its cache, enough to outweigh the overhead of calls.
CHUNK_PIXELS = 300_000
ALIGNMENT = 64  # bytes, as torch aligns its own memory


@dataclass(frozen=True)
class ImageInputs(Inputs):
    """The images of one domain."""

    augmentation: ClassVar[str] = "domainbed"

    images: CachedImages | Sequence[Pixels]  # of the whole dataset
    rows: Indices  # of the images of this domain
    size: int  # S, the side of the square input images
    normalisation: Normalisation = IMAGENET  # as the network's weights expect

    def __len__(self) -> int:
        return len(self.rows)

    def prepare(self, indices: Indices, generator: torch.Generator | None = None) -> HostImages:
        images = [self.images[row] for row in self.rows[indices]]
        heights, widths = np.array([image.shape[:2] for image in images], dtype=np.int64).reshape(-1, 2).T
        if generator is None:
            boxes, groups = np.stack([0 * heights, 0 * widths, heights, widths], axis=1), None
        else:
            boxes = draw_boxes(heights, widths, generator)
            groups = colours.group_by_hue(colours.draw(len(images), generator))
        pixels = crop_and_resize(images, boxes, self.size, self.normalisation.interpolation)
        return HostImages(torch.from_numpy(pixels), groups, self.normalisation)

    def normalise(self, normalisation: Normalisation) -> ImageInputs:
        return replace(self, normalisation=normalisation)


@dataclass(frozen=True)
class HostImages(HostInputs):
    """Resized images, with the parameters of the remaining transformations."""

    pixels: Tensor  # (n, 3, S, S) uint8
    groups: Sequence[Group] | None  # flips and colour jitter; None for clean images
    normalisation: Normalisation

    def move(self, move: Callable[[Tensor], Tensor]) -> HostImages:
        groups = None if self.groups is None else [group.move(move) for group in self.groups]
        return HostImages(move(self.pixels), groups, self.normalisation)

    @classmethod
    def join(cls, batches: Sequence[HostImages]) -> HostImages:
        groups = [batch.groups for batch in batches if batch.groups is not None]
        joined = colours.join(groups, [len(batch.pixels) for batch in batches]) if groups else None
        return cls(torch.cat([batch.pixels for batch in batches]), joined, batches[0].normalisation)

    def finish(self) -> Tensor:
        n, _, height, width = self.pixels.shape
        # all images at once, or on a CPU as many as fit into its cache
        at_once = max(1, CHUNK_PIXELS // (height * width) if self.pixels.device.type == "cpu" else n)
        x = empty_floats(self.pixels.shape, self.pixels.device)
        if self.groups is None:
            for pixels, out in zip(self.pixels.split(at_once), x.split(at_once)):
                normalise_(out.copy_(pixels).div_(255), self.normalisation)
            return x
        mirrored = self.pixels.flip(-1)
        for group in self.groups:
            for chunk in group.split(at_once):
                images = chunk.recolour(self.pixels, mirrored)
                normalise_(images, self.normalisation)
                for row, image in zip(chunk.rows, images):  # by index_copy_, it would take three times as long
                    x[row].copy_(image)
        return x


def normalise_(x: Tensor, normalisation: Normalisation) -> None:
    """Normalise images (n, 3, h, w) in place."""
    for plane, mean, std in zip(x.unbind(dim=1), normalisation.mean, normalisation.std):
        plane.sub_(mean).div_(std)


def empty_floats(shape: Sequence[int], device: torch.device) -> Tensor:
    """Allocate an uninitialised float tensor for a batch.

    On a CPU numpy allocates it, because numpy requests huge pages: filling 32 images of 224 px takes 1 ms. Torch's
    memory has small pages, which are returned and mapped again for every batch: 6 to 14 ms.
    """
    if device.type != "cpu":
        return torch.empty(*shape, device=device)
    size = 4 * prod(shape)
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return torch.from_numpy(memory[start : start + size]).view(torch.float32).view(*shape)


def draw_boxes(heights: Indices, widths: Indices, generator: torch.Generator) -> Indices:
    """Sample boxes (n, 4) as top, left, height, width.

    Area and aspect ratio are sampled up to ten times, until the box fits into the image; else it is the largest central
    box of an allowed aspect ratio. All ten are always sampled, for all images at once.
    """
    H, W = heights[:, None], widths[:, None]
    area_draw, ratio_draw = torch.rand(2, len(heights), TRIES, generator=generator, dtype=torch.float64).numpy()
    place_draw = torch.rand(2, len(heights), generator=generator, dtype=torch.float64).numpy()

    area = H * W * (SCALE[0] + (SCALE[1] - SCALE[0]) * area_draw)
    ratio = np.exp(log(RATIO[0]) + (log(RATIO[1]) - log(RATIO[0])) * ratio_draw)
    w = np.round(np.sqrt(area * ratio)).astype(np.int64)
    h = np.round(np.sqrt(area / ratio)).astype(np.int64)
    fits = (w > 0) & (w <= W) & (h > 0) & (h <= H)

    any_fits, first = fits.any(axis=1), (np.arange(len(fits)), fits.argmax(axis=1))
    central_h = np.minimum(heights, np.round(widths / RATIO[0]).astype(np.int64))
    central_w = np.minimum(widths, np.round(heights * RATIO[1]).astype(np.int64))
    h, w = np.where(any_fits, h[first], central_h), np.where(any_fits, w[first], central_w)
    top, left = np.floor(place_draw * (np.stack([heights - h, widths - w]) + 1)).astype(np.int64)
    top, left = np.where(any_fits, top, (heights - h) // 2), np.where(any_fits, left, (widths - w) // 2)
    return np.stack([top, left, h, w], axis=1)


def crop_and_resize(
    images: Iterable[Pixels], boxes: Indices, size: int, interpolation: Literal["bilinear", "bicubic"]
) -> Pixels:
    """Crop images (h, w, 3) to their boxes and resize them, with antialiasing, to colour planes (n, 3, S, S)."""
    planes = np.empty((len(boxes), 3, size, size), np.uint8)
    for out, image, (top, left, h, w) in zip(planes, images, boxes.tolist()):
        # Copied first: torch resizes contiguous RGB rows in 0.13 ms (one core, to 224 px), but a view of a larger image
        # or colour planes in 0.35 ms; Pillow takes 0.7 ms.
        crop = torch.from_numpy(np.ascontiguousarray(image[top : top + h, left : left + w]))
        out[:] = interpolate(crop.permute(2, 0, 1)[None], (size, size), mode=interpolation, antialias=True)[0].numpy()
    return planes
