"""Inputs without content are of the samples' range and of nothing else."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.covariance import LedoitWolf

from fgmix.deploy.hold_out import draw_noise
from fgmix.deploy.novelty import shrink_covariance


def test_images_of_noise_and_plain_ones() -> None:
    bright = torch.tensor([1.0, 2.0, 3.0])[:, None, None]
    x = bright * torch.rand(20, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    noise = draw_noise(x, 10)
    pixels, plain = noise[:5], noise[5:]
    assert noise.shape == (10, 3, 6, 6)
    assert (noise.amin((0, 2, 3)) >= x.amin((0, 2, 3))).all()
    assert (noise.amax((0, 2, 3)) <= x.amax((0, 2, 3))).all()
    assert (plain == plain[:, :, :1, :1]).all()
    assert (pixels.std((2, 3)) > 0.1).all()
    assert torch.equal(noise, draw_noise(x, 10))
    assert not torch.equal(noise, draw_noise(x, 10, seed=1))


def test_features_keep_their_scales_and_lose_their_dependence() -> None:
    base = torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
    x = torch.cat([base, 10 * base + 5], dim=1)
    noise = draw_noise(x, 4000)
    torch.testing.assert_close(noise.mean(0), x.mean(0), atol=0.5, rtol=0)
    torch.testing.assert_close(noise.std(0), x.std(0), atol=0, rtol=0.1)
    assert abs(float(torch.corrcoef(noise.T)[0, 1])) < 0.1 < float(torch.corrcoef(x.T)[0, 1])


def test_the_shrunk_covariance_is_scikit_learns() -> None:
    for n, d in ((200, 5), (20, 40)):
        x = np.random.default_rng(d).normal(size=(n, d)) * np.arange(1, d + 1)
        expected = LedoitWolf(assume_centered=True).fit(x).covariance_
        np.testing.assert_allclose(shrink_covariance(x), expected, rtol=1e-9)
