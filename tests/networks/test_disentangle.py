"""DDG's generator: AdaIN's statistics, what each code can carry, sizes; its discriminator's losses in closed form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fgmix.networks.generators import (
    Disentangler,
    PatchDiscriminator,
    VariationEncoder,
    adain,
    discriminator_loss,
    generator_loss,
)


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
    assert generator.Dec(generator.E_v(x), f, size).shape == x.shape


def test_deeper_generator_halves_more_often() -> None:
    s = Disentangler(3, code_size=8, width=4, downs=4).E_v(torch.randn(1, 3, 32, 32))
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
    s = generator.E_v(x)
    image = generator.Dec(s, f, (16, 16))
    assert (image - generator.Dec(s, f.flip(0), (16, 16))).abs().max() > 1e-3
    assert (image - generator.Dec(s.flip(0), f, (16, 16))).abs().max() > 1e-3


class LinearScores(nn.Module):
    """Scores ⟨v, x_i⟩ + c, the same at every scale: gradient v for every image."""

    def __init__(self, v: Tensor, c: float = 0.0, n_scales: int = 1) -> None:
        super().__init__()
        self.v, self.c, self.n_scales = nn.Parameter(v), c, n_scales

    def forward(self, x: Tensor) -> list[Tensor]:
        scores = (x * self.v).sum((1, 2, 3)) + self.c
        return [scores] * self.n_scales


@pytest.mark.parametrize("n_scales", [1, 3])
def test_an_undecided_discriminator_costs_a_half_per_scale(n_scales: int) -> None:
    D, x = LinearScores(torch.zeros(3, 4, 4), 0.5, n_scales), torch.randn(2, 3, 4, 4)
    assert discriminator_loss(D, x, x).item() == pytest.approx(0.5 * n_scales)
    assert generator_loss(D, x).item() == pytest.approx(0.5 * n_scales)


def test_gradient_penalty_and_its_derivative() -> None:
    """On D(x) = ⟨v, x⟩ the penalty is 0.01·‖v‖², so that its derivative, a second one of D, is 0.02·v."""
    v = torch.randn(1, 4, 4)
    fake, real = torch.randn(3, 1, 4, 4), torch.randn(5, 1, 4, 4)
    D = LinearScores(v.clone())
    loss = discriminator_loss(D, fake, real)
    loss.backward()
    on_fake, on_real = (fake * v).sum((1, 2, 3)), (real * v).sum((1, 2, 3))
    expected = on_fake.square().mean() + (on_real - 1).square().mean() + 0.01 * v.square().sum()
    torch.testing.assert_close(loss, expected)
    slope = (2 * on_fake.view(-1, 1, 1, 1) * fake).mean(0) + (2 * (on_real - 1).view(-1, 1, 1, 1) * real).mean(0)
    torch.testing.assert_close(D.v.grad, slope + 0.02 * v, rtol=1e-4, atol=1e-4)


def test_scales_judge_halved_images_by_networks_of_their_own() -> None:
    D, x = PatchDiscriminator(3, width=4, n_scales=2), torch.randn(2, 3, 32, 32)
    fine, coarse = D(x)
    assert fine.shape == (2, 1, 8, 8)
    assert coarse.shape == (2, 1, 4, 4)
    torch.testing.assert_close(coarse, D.scales[1](nn.AvgPool2d(3, 2, 1, count_include_pad=False)(x)))


def test_second_derivatives_reach_every_weight_of_the_network() -> None:
    D, x = PatchDiscriminator(3, width=4), torch.randn(2, 3, 16, 16)
    only_penalty = discriminator_loss(D, x, x, penalty=1.0) - discriminator_loss(D, x, x, penalty=0.0)
    only_penalty.backward()
    weights = [p for name, p in D.named_parameters() if name.endswith("weight")]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in weights)


def test_half_precision_is_left_for_float32() -> None:
    D, x = PatchDiscriminator(3, width=4), torch.randn(2, 3, 16, 16)
    expected = discriminator_loss(D, x, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(discriminator_loss(D, x.bfloat16().float(), x), discriminator_loss(D, x.bfloat16(), x))
        assert torch.equal(discriminator_loss(D, x, x), expected)
