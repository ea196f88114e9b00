"""Flips and colours against torchvision's functions, image by image, and without asking the device for anything."""

from __future__ import annotations

from math import sqrt
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from data.pictures import picture
from fgmix.data import colours
from fgmix.data.colours import BRIGHTNESS, CONTRAST, HUE, SATURATION, Draws, Group, draw, group_by_hue

NAMES = {BRIGHTNESS: "brightness", CONTRAST: "contrast", SATURATION: "saturation", HUE: "hue"}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def colourful() -> Tensor:
    """Eight images of random colours, with grey, black, white and pure pixels among them: (8, 3, 9, 11) uint8."""
    x = torch.randint(0, 256, (8, 3, 9, 11), generator=generator(), dtype=torch.uint8)
    x[:, :, 0] = x[:, :1, 0]
    x[:, :, 1, 0], x[:, :, 1, 1] = 0, 255
    for channel in range(3):
        x[:, channel, 2 + channel] = 0
        x[:, channel, 5 + channel] = 255
    return x


def adjusted(x: Tensor, step: int, factors: Tensor) -> Tensor:
    """Images in [0, 1] after one colour step, each with its factor."""
    x = x.clone()
    if step == HUE:
        colours.turn_hue_(x, (factors[:, None] - torch.tensor(colours.COMPLEMENTS)) % 1)
    else:
        weights = torch.stack([factors, *((1 - factors) * share for share in colours.TARGETS[step])], dim=1)
        colours.blend_(x, weights)
    return x


@pytest.mark.parametrize("step", NAMES)
def test_colour_steps_equal_torchvisions(v2: ModuleType, step: int) -> None:
    """Equal on floats; within the two roundings of its integers, of which the first is scaled by |1 − f| ≤ 0.3."""
    x8 = colourful()
    x = x8.float() / 255
    factors = torch.linspace(-0.3, 0.3, 8) + (step != HUE)
    theirs = getattr(v2.functional, f"adjust_{NAMES[step]}")
    for image, image8, result, factor in zip(x, x8, adjusted(x, step, factors), factors.tolist()):
        torch.testing.assert_close(result, theirs(image, factor), atol=3e-6, rtol=0)
        assert (result - theirs(image8, factor).float() / 255).abs().max() <= 1.31 / 255


@pytest.mark.parametrize(("step", "grey_levels"), [(BRIGHTNESS, 1), (CONTRAST, 1), (SATURATION, 1), (HUE, 2)])
def test_colour_steps_are_near_pillows(v2: ModuleType, step: int, grey_levels: int) -> None:
    """DomainBed's run on Pillow, which keeps integers between the steps: hue in 256 steps of the circle."""
    image = picture(0, 40, 40)
    factors = torch.linspace(-0.3, 0.3, 7) + (step != HUE)
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()[None].div(255).expand(7, -1, -1, -1)
    for result, factor in zip(adjusted(x, step, factors), factors.tolist()):
        pillow = np.array(getattr(v2.functional, f"adjust_{NAMES[step]}")(image, factor))
        assert (result - torch.from_numpy(pillow).permute(2, 0, 1).float() / 255).abs().mean() <= grey_levels / 255


def test_hue_of_a_third_rotates_the_channels() -> None:
    x = colourful().float() / 255
    turned = adjusted(x, HUE, torch.full((8,), 1 / 3))
    torch.testing.assert_close(turned, x.roll(1, dims=1), atol=1e-6, rtol=0)


def test_grey_is_torchvisions(v2: ModuleType) -> None:
    x = colourful().float() / 255
    torch.testing.assert_close(colours.grey(x).unsqueeze(1), v2.functional.rgb_to_grayscale(x), atol=1e-6, rtol=0)


def naively_recoloured(v2: ModuleType, image: Tensor, draws: Draws, i: int) -> Tensor:
    """One image in [0, 1] through torchvision's functions, in the order that was drawn."""
    if draws.flip[i]:
        image = v2.functional.horizontal_flip(image)
    for step in draws.order[i].tolist():
        image = getattr(v2.functional, f"adjust_{NAMES[step]}")(image, draws.factors[i, step].item())
    return v2.functional.rgb_to_grayscale(image, num_output_channels=3) if draws.grayscale[i] else image


def recoloured(pixels: Tensor, groups: list[Group]) -> Tensor:
    """The batch in its own order."""
    x = torch.full(pixels.shape, torch.nan)
    for group in groups:
        if group.rows:
            x[group.rows] = group.recolour(pixels, pixels.flip(-1))
    return x


def test_a_batch_equals_torchvision_image_by_image(v2: ModuleType) -> None:
    pixels = torch.randint(0, 256, (96, 3, 6, 5), generator=generator(1), dtype=torch.uint8)
    draws = draw(96, generator(2))
    assert len(draws.order.unique(dim=0)) == 24
    assert 0 < draws.grayscale.sum() < 96
    expected = torch.stack([naively_recoloured(v2, image.float() / 255, draws, i) for i, image in enumerate(pixels)])
    torch.testing.assert_close(recoloured(pixels, group_by_hue(draws)), expected, atol=1e-5, rtol=0)


def test_joined_batches_are_recoloured_as_each_by_itself() -> None:
    pixels = torch.randint(0, 256, (40, 3, 6, 5), generator=generator(1), dtype=torch.uint8)
    lengths = [25, 0, 1, 14]
    batches = [group_by_hue(draw(n, generator(n))) for n in lengths]
    apart = [recoloured(part, groups) for part, groups in zip(pixels.split(lengths), batches)]
    together = recoloured(pixels, colours.join(batches, lengths))
    torch.testing.assert_close(together, torch.cat(apart), atol=1e-6, rtol=0)


def test_draws_have_torchvisions_probabilities() -> None:
    n = 24_000
    draws = draw(n, generator())
    assert draws.flip.float().mean() == pytest.approx(0.5, abs=0.015)  # 5 standard errors
    assert draws.grayscale.float().mean() == pytest.approx(0.1, abs=0.01)
    centre = torch.tensor([1.0, 1.0, 1.0, 0.0])
    off = draws.factors - centre
    assert off.abs().max() <= 0.3 + 1e-6
    torch.testing.assert_close(off.mean(0), torch.zeros(4), atol=0.006, rtol=0)
    torch.testing.assert_close(off.std(0), torch.full((4,), 0.3 / sqrt(3)), atol=0.004, rtol=0)
    orders, counts = draws.order.unique(dim=0, return_counts=True)
    assert len(orders) == 24
    assert orders.sort(dim=1).values.tolist() == [[0, 1, 2, 3]] * 24
    assert (counts.float() / n).sub(1 / 24).abs().max() < 5 * sqrt(1 / 24 / n)
