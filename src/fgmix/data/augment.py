"""Input images of networks: DomainBed's augmentation for training, and a resize to S×S for evaluation.

In this order: random resized crop (`crops`, on the host), horizontal flip, jitter of brightness, contrast, saturation
and hue, grayscale (`colours`, on the device), normalisation. Values are floats between the colour steps, while Pillow
rounds them to integers.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", 2021, https://arxiv.org/abs/2007.01434.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch
from torch import Tensor

from fgmix.data import colours
from fgmix.data._dataset import Indices, Inputs, Prepared
from fgmix.data.cached_images import DecodedImages
from fgmix.data.colours import Group
from fgmix.data.crops import random_boxes, resized, whole_boxes
from fgmix.networks.preprocessing import IMAGENET, Normalisation

# Pixels that a CPU processes at once: few enough for its cache, enough to outweigh the overhead of calls.
PART_PIXELS = 300_000
ALIGNMENT = 64  # bytes, as torch aligns its own memory


@dataclass(frozen=True)
class ImageInputs(Inputs):
    """The images of one domain.

    Args:
        images: the decoded images of the dataset.
        rows: indices of the images of this domain.
        size: S, the side of the square input images.
        normalisation: mean, standard deviation and interpolation that the network's weights expect.
    """

    images: DecodedImages
    rows: Indices
    size: int
    normalisation: Normalisation = IMAGENET

    def __len__(self) -> int:
        return len(self.rows)

    def prepare(self, indices: Indices, generator: torch.Generator | None = None) -> PreparedImages:
        rows = self.rows[indices]
        heights, widths = self.images.heights[rows], self.images.widths[rows]
        if generator is None:
            boxes, groups = whole_boxes(heights, widths), None
        else:
            boxes = random_boxes(heights, widths, generator)
            groups = colours.grouped(colours.draw(len(rows), generator))
        images = (self.images[row] for row in rows)
        pixels = resized(images, boxes, self.size, self.normalisation.interpolation)
        return PreparedImages(torch.from_numpy(pixels), groups, self.normalisation)

    def normalised(self, normalisation: Normalisation) -> ImageInputs:
        return replace(self, normalisation=normalisation)


@dataclass(frozen=True)
class PreparedImages(Prepared):
    """Resized images, with the parameters of the remaining transformations.

    Args:
        pixels: (n, 3, S, S) uint8.
        groups: flips and colour jitter; None for clean images.
        normalisation: mean and standard deviation.
    """

    pixels: Tensor
    groups: Sequence[Group] | None
    normalisation: Normalisation

    def moved(self, move: Callable[[Tensor], Tensor]) -> PreparedImages:
        groups = None if self.groups is None else [group.moved(move) for group in self.groups]
        return PreparedImages(move(self.pixels), groups, self.normalisation)

    @classmethod
    def join(cls, parts: Sequence[PreparedImages]) -> PreparedImages:
        groups = [part.groups for part in parts if part.groups is not None]
        joined = colours.join(groups, [len(part.pixels) for part in parts]) if groups else None
        return cls(torch.cat([part.pixels for part in parts]), joined, parts[0].normalisation)

    def finish(self) -> Tensor:
        x = empty_floats(self.pixels.shape, self.pixels.device)
        if self.groups is None:
            for pixels, out in zip(self.pixels.split(self._at_once), x.split(self._at_once)):
                normalise_(out.copy_(pixels).div_(255), self.normalisation)
            return x
        mirrored = self.pixels.flip(-1)
        for group in self.groups:
            for part in group.split(self._at_once):
                images = normalise_(part.recoloured(self.pixels, mirrored), self.normalisation)
                torch._foreach_copy_([x[row] for row in part.rows], list(images))
        return x

    @property
    def _at_once(self) -> int:
        """Number of images processed together: all of them, or on a CPU as many as fit into its cache."""
        n, _, height, width = self.pixels.shape
        return max(1, PART_PIXELS // (height * width) if self.pixels.device.type == "cpu" else n)


def normalise_(x: Tensor, normalisation: Normalisation) -> Tensor:
    """Subtract the mean and divide by the standard deviation of each colour channel, in place."""
    for plane, mean, std in zip(x.unbind(dim=1), normalisation.mean, normalisation.std):
        plane.sub_(mean).div_(std)
    return x


def empty_floats(shape: Sequence[int], device: torch.device) -> Tensor:
    """An uninitialised float tensor for a batch.

    On a CPU numpy allocates it, because numpy requests huge pages: filling 32 images of 224 px takes 1 ms. Torch's
    memory has small pages, which are returned and mapped again for every batch: 6 to 14 ms.
    """
    if device.type != "cpu":
        return torch.empty(*shape, device=device)
    size = 4 * prod(shape)
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return torch.from_numpy(memory[start : start + size]).view(torch.float32).view(*shape)
