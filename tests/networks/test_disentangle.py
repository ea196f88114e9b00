"""DDG's generator: AdaIN's statistics, what each code can carry, sizes."""

from __future__ import annotations

import pytest
import torch

from fgmix.networks.disentangle import Disentangler, VariationEncoder, adain


def test_adain_gives_the_statistics_it_is_told() -> None:
    x = torch.randn(3, 4, 16, 16) * 5 + 2
    scale, bias = torch.randn(3, 4), torch.randn(3, 4)
    out = adain(x, scale, bias)
    torch.testing.assert_close(out.mean((2, 3)), bias, atol=1e-5, rtol=0)
    torch.testing.assert_close(out.std((2, 3), correction=0), scale.abs(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("size", [(16, 16), (28, 28), (17, 30), (64, 64)])
def test_images_come_back_at_their_size(size: tuple[int, int]) -> None:
    generator = Disentangler(3, code_size=8, width=4)
    x, f = torch.randn(2, 3, *size), torch.randn(2, 8)
    assert generator.decode(generator.encode(x), f, size).shape == x.shape


def test_deeper_generator_halves_more_often() -> None:
    s = Disentangler(3, code_size=8, width=4, downs=4).encode(torch.randn(1, 3, 32, 32))
    assert s.shape == (1, 4 * 2**4, 2, 2)


def test_variation_is_read_from_grey() -> None:
    E_v, x = VariationEncoder(width=4), torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(E_v(x), E_v(x[:, [2, 0, 1]]), atol=1e-5, rtol=0)


def test_variation_ignores_contrast_and_brightness() -> None:
    """Instance normalisation all the way down: statistics are left for the semantic code to set."""
    E_v, x = VariationEncoder(width=4), torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(E_v(x), E_v(3 * x + 1), atol=1e-3, rtol=0)


def test_both_codes_change_the_image() -> None:
    generator = Disentangler(3, code_size=8, width=4)
    x, f = torch.randn(2, 3, 16, 16), torch.randn(2, 8)
    s = generator.encode(x)
    image = generator.decode(s, f, (16, 16))
    assert (image - generator.decode(s, f.flip(0), (16, 16))).abs().max() > 1e-3
    assert (image - generator.decode(s.flip(0), f, (16, 16))).abs().max() > 1e-3
