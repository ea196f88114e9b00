"""Images as networks see them: DomainBed's augmentation, drawn per image and applied to a whole batch at once.

In this order: random resized crop (0.7 to 1 of the area, aspect 3/4 to 4/3), horizontal flip, jitter of brightness,
contrast, saturation and hue by up to 0.3 in an order drawn per image, grayscale with probability 0.1, ImageNet's mean
and standard deviation. The distributions are those of torchvision's transforms of these names; values stay floats
between the colour steps, where Pillow rounds them to integers. Clean images are squashed to S×S and normalised.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fgmix.data._dataset import Indices
from fgmix.data.decoded import SMALLEST_CROP, DecodedImages

CROP_SCALE = (SMALLEST_CROP, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)
CROP_TRIES = 10
FLIP = 0.5
JITTER = 0.3
GRAYSCALE = 0.1
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
# Pixels that the colour steps take at once: few enough for the processor's cache, enough to outweigh the calls. On one
# core, 96 images of 224 px take 0.3 s in parts of 8 and 0.48 s at once; of 64 px, 50 ms in parts of 8, 18 ms at once.
PART_PIXELS = 400_000


@dataclass(frozen=True)
class ImageInputs:
    """The images of one domain; implements `Inputs`.

    Args:
        images: the dataset's decoded images.
        rows: which of them are this domain's.
        size: S, the side of the square that a network sees.
    """

    images: DecodedImages
    rows: Indices
    size: int

    def __len__(self) -> int:
        return len(self.rows)

    def clean(self, indices: Indices) -> Tensor:
        """Whole images squashed to S×S, normalised: (n, 3, S, S)."""
        rows = self.rows[indices]
        h, w = self.images.heights[rows], self.images.widths[rows]
        pixels = self._resized(rows, np.stack([np.zeros_like(h), np.zeros_like(w), h, w], axis=1))
        return normalise_(unit_range(pixels))

    def augmented(self, indices: Indices, generator: torch.Generator) -> Tensor:
        """Randomly transformed images, normalised: (n, 3, S, S)."""
        rows = self.rows[indices]
        boxes = crop_boxes(self.images.heights[rows], self.images.widths[rows], generator)
        recipe = Recipe.draw(len(rows), generator)
        pixels = self._resized(rows, boxes)
        x = torch.empty(len(rows), 3, self.size, self.size)
        for part in self._parts(len(rows)):
            x[part] = normalise_(recipe[part].apply_(unit_range(pixels[part])))
        return x

    def _resized(self, rows: Indices, boxes: Indices) -> Tensor:
        """The boxes cut out of the images and resized, (n, S, S, 3) uint8.

        Rows of RGB pixels are what torch resizes fastest: 57 ms for 96 crops to 224 px on one core, against 74 ms for
        separate colour planes, and about 140 ms if those are floats.
        """
        pixels = torch.empty(len(rows), self.size, self.size, 3, dtype=torch.uint8)
        for out, row, (top, left, h, w) in zip(pixels, rows, boxes.tolist()):
            crop = torch.from_numpy(self.images[row][top : top + h, left : left + w])
            resized = interpolate(
                crop.permute(2, 0, 1)[None], size=(self.size, self.size), mode="bilinear", antialias=True
            )
            out.copy_(resized[0].permute(1, 2, 0))
        return pixels

    def _parts(self, n: int) -> Iterator[slice]:
        step = max(1, PART_PIXELS // self.size**2)
        return (slice(start, start + step) for start in range(0, n, step))


def crop_boxes(heights: Indices, widths: Indices, generator: torch.Generator) -> Indices:
    """Random crops (n, 4) as top, left, height, width.

    Up to ten times an area and an aspect are drawn until the crop fits into the image; else the crop is the largest
    central one of an allowed aspect. The ten are drawn for all images at once, whether needed or not.
    """
    H, W = heights[:, None], widths[:, None]
    area_draw, ratio_draw = torch.rand(2, len(heights), CROP_TRIES, generator=generator, dtype=torch.float64).numpy()
    place_draw = torch.rand(2, len(heights), generator=generator, dtype=torch.float64).numpy()

    area = H * W * (CROP_SCALE[0] + (CROP_SCALE[1] - CROP_SCALE[0]) * area_draw)
    ratio = np.exp(log(CROP_RATIO[0]) + (log(CROP_RATIO[1]) - log(CROP_RATIO[0])) * ratio_draw)
    w = np.round(np.sqrt(area * ratio)).astype(np.int64)
    h = np.round(np.sqrt(area / ratio)).astype(np.int64)
    fits = (w > 0) & (w <= W) & (h > 0) & (h <= H)

    found, first = fits.any(axis=1), (np.arange(len(fits)), fits.argmax(axis=1))
    central_h = np.minimum(heights, np.round(widths / CROP_RATIO[0]).astype(np.int64))
    central_w = np.minimum(widths, np.round(heights * CROP_RATIO[1]).astype(np.int64))
    h, w = np.where(found, h[first], central_h), np.where(found, w[first], central_w)
    top, left = np.floor(place_draw * (np.stack([heights - h, widths - w]) + 1)).astype(np.int64)
    top, left = np.where(found, top, (heights - h) // 2), np.where(found, left, (widths - w) // 2)
    return np.stack([top, left, h, w], axis=1)


@dataclass(frozen=True)
class Recipe:
    """What was drawn for each of n images after its crop.

    Args:
        flip: (n,) booleans.
        order: (n, 4) permutations of the colour steps, by their number in COLOUR_STEPS.
        factors: (n, 4), the factor of each colour step.
        grayscale: (n,) booleans.
    """

    flip: Tensor
    order: Tensor
    factors: Tensor
    grayscale: Tensor

    @classmethod
    def draw(cls, n: int, generator: torch.Generator) -> Recipe:
        """Draw for n images."""
        uniform = 2 * torch.rand(n, len(COLOUR_STEPS), generator=generator) - 1
        return cls(
            flip=torch.rand(n, generator=generator) < FLIP,
            order=torch.rand(n, len(COLOUR_STEPS), generator=generator).argsort(dim=1),
            factors=torch.tensor(NEUTRAL) + JITTER * uniform,
            grayscale=torch.rand(n, generator=generator) < GRAYSCALE,
        )

    def __getitem__(self, part: slice) -> Recipe:
        return Recipe(self.flip[part], self.order[part], self.factors[part], self.grayscale[part])

    def apply_(self, x: Tensor) -> Tensor:
        """Flip and recolour x (n, 3, h, w) in [0, 1], in place."""
        x[self.flip] = x[self.flip].flip(-1)
        for position in self.order.unbind(dim=1):
            for number, step in enumerate(COLOUR_STEPS):
                chosen = (position == number).nonzero()[:, 0]
                if len(chosen):
                    x[chosen] = step(x[chosen], self.factors[chosen, number].view(-1, 1, 1, 1))
        x[self.grayscale] = luma(x[self.grayscale]).expand(-1, 3, -1, -1)
        return x


def luma(x: Tensor) -> Tensor:
    """Grey value (n, 1, h, w) of RGB (n, 3, h, w): ITU-R 601-2."""
    r, g, b = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    return (0.2989 * r).add_(g, alpha=0.587).add_(b, alpha=0.114)


def adjust_brightness(x: Tensor, factor: Tensor) -> Tensor:
    """f·x, for images in [0, 1] and a factor (n, 1, 1, 1) each."""
    return (x * factor).clamp_(0, 1)


def adjust_contrast(x: Tensor, factor: Tensor) -> Tensor:
    """f·x + (1−f)·m, with m the mean grey value of the image."""
    m = luma(x).mean(dim=(1, 2, 3), keepdim=True)
    return (x * factor).add_((1 - factor) * m).clamp_(0, 1)


def adjust_saturation(x: Tensor, factor: Tensor) -> Tensor:
    """f·x + (1−f)·grey."""
    return (x * factor).add_((1 - factor) * luma(x)).clamp_(0, 1)


def adjust_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by a part of the full circle, (n, 1, 1, 1); value and chroma stay.

    With value v = max(r, g, b), chroma c = v − min(r, g, b) and hue t in turns, a colour channel whose complement lies
    at t₀ is v − c·clamp(2 − 6·d(t, t₀), 0, 1), where d is the distance on the circle. So one never needs to know which
    sixth of the circle a hue is in.
    """
    r, g, b = x.unbind(dim=1)
    v = torch.maximum(torch.maximum(r, g), b)
    c = v - torch.minimum(torch.minimum(r, g), b)
    per_c = c.clamp_min(1e-12).reciprocal_()  # grey pixels have no hue: c = 0 keeps them as they are
    sixths = torch.where(v == r, (g - b) * per_c, torch.where(v == g, (b - r) * per_c + 2, (r - g) * per_c + 4))
    t = sixths.div_(6).add_(turn[:, 0])
    out = torch.empty_like(x)
    for channel, complement in enumerate((3 / 6, 5 / 6, 1 / 6)):  # cyan, magenta, yellow
        d = t - complement
        d = d.sub_(d.round()).abs_()
        out[:, channel] = v - d.mul_(-6).add_(2).clamp_(0, 1).mul_(c)
    return out


COLOUR_STEPS = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)
NEUTRAL = (1.0, 1.0, 1.0, 0.0)  # the factor of each step that changes nothing


def unit_range(pixels: Tensor) -> Tensor:
    """Rows of RGB pixels (n, h, w, 3) uint8 as colour planes (n, 3, h, w) in [0, 1]."""
    planes = pixels.permute(0, 3, 1, 2)
    return planes.to(torch.float32, memory_format=torch.contiguous_format).div_(255)


def normalise_(x: Tensor) -> Tensor:
    """Subtract ImageNet's mean and divide by its standard deviation, in place."""
    return x.sub_(x.new_tensor(MEAN).view(3, 1, 1)).div_(x.new_tensor(STD).view(3, 1, 1))
