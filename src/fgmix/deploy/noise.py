"""Noise inputs, to test novelty: predictions for them should not be trusted."""

from __future__ import annotations

import torch
from torch import Tensor

from fgmix.records.schema import ResolvedSpec
from fgmix.training.open_run import OpenedRun
from fgmix.training.prepare import frozen_backbone

BATCH = 64  # images per forward pass


def noise_like(x: Tensor, n: int, seed: int = 0) -> Tensor:
    """Noise in the range of given samples: half images of random pixels, half images of one random colour each.

    Features are Gaussian and independent, each with its own mean and variance.

    Args:
        x: samples (m, f) or (m, c, h, w), as input to a network.
        n: number of noise samples.
        seed: of the random numbers.

    Example:
        >>> noise_like(torch.rand(9, 3, 8, 8), 4).shape
        torch.Size([4, 3, 8, 8])
    """
    generator = torch.Generator().manual_seed(seed)
    if x.ndim == 2:
        return x.mean(0) + x.std(0, correction=0) * torch.randn(n, x.shape[1], generator=generator)
    low, high = x.amin((0, 2, 3))[:, None, None], x.amax((0, 2, 3))[:, None, None]
    pixels = torch.rand(n - n // 2, *x.shape[1:], generator=generator)
    plain = torch.rand(n // 2, x.shape[1], 1, 1, generator=generator).expand(-1, *x.shape[1:])
    return low + (high - low) * torch.cat([pixels, plain])


@torch.inference_mode()
def noise_features(spec: ResolvedSpec, n: int, device: torch.device) -> Tensor:
    """Features of noise images from the frozen backbone of a run, (n, d): not standardised, the same in every run.

    Args:
        spec: of a run with `frozen`.
        n: how many images.
        device: where to compute them.
    """
    mean, std = (torch.tensor(values)[:, None, None] for values in (spec.mean, spec.std))
    black_and_white = torch.stack([torch.zeros(spec.input_shape), torch.ones(spec.input_shape)])
    images = noise_like((black_and_white - mean) / std, n)
    backbone = frozen_backbone(spec).to(device)
    return torch.cat([backbone(batch.to(device)).float().cpu() for batch in images.split(BATCH)])


def noise_for(run: OpenedRun, n: int, features: Tensor | None = None) -> Tensor:
    """Noise inputs for the network of a run: in the range of its source domains, or given features, standardised.

    Args:
        run: the run.
        n: number of noise samples, without `features`.
        features: of noise images, for a run on a frozen backbone.
    """
    if features is None:
        return noise_like(torch.cat(list(run.sample(run.sources, limit=n).inputs())), n)
    standard = run.prepared.standard
    return features if standard is None else torch.from_numpy(standard(features.numpy()))
