"""The discriminator's scales and its losses against closed forms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fgmix.networks.patch_discriminator import PatchDiscriminator, discriminator_loss, generator_loss


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
