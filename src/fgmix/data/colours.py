"""The part of the augmentation that runs on the device: flip, colour jitter and grayscale, for many images at once.

The distributions are those of torchvision's transforms, as combined by DomainBed: a horizontal flip with probability
0.5; brightness, contrast, saturation and hue by up to 0.3, in a random order per image; grayscale with probability 0.1.

Brightness, contrast and saturation by a factor f are all a blend of the image, its grey version and its mean grey
value:

    x ← clamp(a·x + b·grey(x) + c·mean grey(x), 0, 1)    with (a, b, c) = (f, 0, 0), (f, 0, 1−f), (f, 1−f, 0)

So every image is blended three times with its own weights, and only the position of the hue differs: before the first,
the second or the third blend, or after it. Images are grouped by this position. Sampling and grouping run on the host,
so that nothing here synchronises with the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

FLIP = 0.5
JITTER = 0.3
GRAYSCALE = 0.1
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
NEUTRAL = (1.0, 1.0, 1.0, 0.0)  # the factor of each that changes nothing
TARGETS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0))  # factors of 1−f in the weights of grey and mean grey
COMPLEMENTS = (3 / 6, 5 / 6, 1 / 6)  # hues of cyan, magenta and yellow, in turns from red
LUMA = (0.2989, 0.587, 0.114)  # ITU-R 601-2


class Draws(NamedTuple):
    """Random parameters of the augmentation of n images."""

    flip: Tensor  # (n,) booleans
    order: Tensor  # (n, 4) permutations of brightness, contrast, saturation and hue
    factors: Tensor  # (n, 4) factors of brightness, contrast and saturation, and the turn of the hue
    grayscale: Tensor  # (n,) booleans


def draw(n: int, generator: torch.Generator) -> Draws:
    """Sample the parameters of n images."""
    uniform = 2 * torch.rand(n, len(NEUTRAL), generator=generator) - 1
    return Draws(
        flip=torch.rand(n, generator=generator) < FLIP,
        order=torch.rand(n, len(NEUTRAL), generator=generator).argsort(dim=1),
        factors=torch.tensor(NEUTRAL) + JITTER * uniform,
        grayscale=torch.rand(n, generator=generator) < GRAYSCALE,
    )


class Group(NamedTuple):
    """Images of a batch with the same position of the hue among the blends.

    `rows`, `flip` and `grayscale` stay on the host; `blends` and `phases` are moved to the device.
    """

    place: int  # number of blends before the hue
    rows: Sequence[int]  # (g,), indices of the images in the batch
    flip: Sequence[bool]  # (g,), which of them are flipped
    grayscale: Sequence[bool]  # (g,), which of them are converted to grey at the end
    blends: Tensor  # (g, 3, 3), the weights a, b, c of the three blends of each image
    phases: Tensor  # (g, 3), the turn of the hue minus the complement of each channel, modulo 1

    def move(self, move: Callable[[Tensor], Tensor]) -> Group:
        """Move every tensor."""
        return self._replace(blends=move(self.blends), phases=move(self.phases))

    def split(self, at_once: int) -> Iterator[Group]:
        """Split the group into chunks of at most `at_once` images."""
        for start in range(0, len(self.rows), at_once):
            at = slice(start, start + at_once)
            yield Group(self.place, self.rows[at], self.flip[at], self.grayscale[at], self.blends[at], self.phases[at])

    def recolour(self, pixels: Tensor, mirrored: Tensor) -> Tensor:
        """Augment the images of the group, (g, 3, h, w) in [0, 1], from the batch (n, 3, h, w) uint8 and its mirror."""
        x = torch.stack([(mirrored if flip else pixels)[i] for i, flip in zip(self.rows, self.flip)]).float().div_(255)
        blends = self.blends.unbind(dim=1)
        for weights in blends[: self.place]:
            blend_(x, weights)
        turn_hue_(x, self.phases)
        for weights in blends[self.place :]:
            blend_(x, weights)
        for image, is_grey in zip(x.split(1), self.grayscale):
            if is_grey:
                image.copy_(grey(image).unsqueeze(1))
        return x


def group_by_hue(draws: Draws) -> list[Group]:
    """Group the parameters of a batch by the position of the hue; on the host."""
    is_hue = (draws.order == HUE).int()
    steps = draws.order.gather(1, is_hue.argsort(dim=1, stable=True))[:, :HUE]  # the order without the hue
    factors = draws.factors.gather(1, steps).unsqueeze(2)
    blends = torch.cat([factors, (1 - factors) * torch.tensor(TARGETS)[steps]], dim=2)
    phases = (draws.factors[:, HUE:] - torch.tensor(COMPLEMENTS)) % 1
    place = is_hue.argmax(dim=1)
    by_place = place.argsort(stable=True).split(place.bincount(minlength=len(NEUTRAL)).tolist())
    return [
        Group(p, rows.tolist(), draws.flip[rows].tolist(), draws.grayscale[rows].tolist(), blends[rows], phases[rows])
        for p, rows in enumerate(by_place)
    ]


def join(batches: Sequence[Sequence[Group]], lengths: Sequence[int]) -> list[Group]:
    """Concatenate the groups of several batches, which have `lengths` images."""
    starts = [sum(lengths[:b]) for b in range(len(lengths))]
    return [
        Group(
            place,
            [start + row for group, start in zip(alike, starts) for row in group.rows],
            [flip for group in alike for flip in group.flip],
            [is_grey for group in alike for is_grey in group.grayscale],
            blends=torch.cat([group.blends for group in alike]),
            phases=torch.cat([group.phases for group in alike]),
        )
        for place, alike in enumerate(zip(*batches))
    ]


def grey(x: Tensor) -> Tensor:
    """Compute the grey values (n, h, w) of RGB (n, 3, h, w)."""
    r, g, b = x.unbind(dim=1)
    return (LUMA[0] * r).add_(g, alpha=LUMA[1]).add_(b, alpha=LUMA[2])


def blend_(x: Tensor, weights: Tensor) -> None:
    """Blend images in [0, 1] with grey(x) and its mean, in place, with weights a, b, c (n, 3)."""
    a, b, c = weights[:, :, None, None].split(1, dim=1)
    g = grey(x).unsqueeze(1)
    m = g.mean(dim=(2, 3), keepdim=True)
    torch.addcmul(g.mul_(b).add_(c * m), x, a, out=x).clamp_(0, 1)


def turn_hue_(x: Tensor, phases: Tensor) -> None:
    """Shift the hue of images in [0, 1] in place; value and chroma do not change.

    With value v = max(r, g, b), m = min(r, g, b), chroma c = v − m and hue t in turns from red,

        |t| = (v − 2m + g + b − r)/6c    with the sign of g − b,    channel = m − c + 6c·clamp(d, 1/6, 2/6)

    where d is the distance on the circle between the shifted hue and the channel's complement: cyan, magenta or yellow.
    There is no case distinction by sixths of the circle. `phases` (n, 3) is the turn minus each complement, modulo 1.
    """
    r, g, b = x.unbind(dim=1)
    v, m = x.amax(dim=1), x.amin(dim=1)
    c = v - m
    low, c6 = (m - c).unsqueeze(1), c.mul_(6)
    t = v.add_(g).add_(b).sub_(r).sub_(m, alpha=2).div_(c6.clamp_min(1e-12)).copysign_(g - b)  # 0 for grey pixels
    # frac(s + 1/2) is 1/2 where s is a whole number of turns; t ≥ −1/2, so the sum is not negative
    d = torch.add(t.unsqueeze(1), phases[:, :, None, None] + 0.5, out=x).frac_().sub_(0.5).abs_()
    torch.addcmul(low, d.clamp_(1 / 6, 2 / 6), c6.unsqueeze(1), out=x)
