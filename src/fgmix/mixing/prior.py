"""The Gaussian prior of the codes, and the discriminator between its samples and mixed codes.

ẑ ~ N(μ, diag σ²),   policy: min mean log(1 − d(z_mix)),   discriminator: max mean [log d(ẑ) + log(1 − d(z_mix))]
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, relu

from fgmix.functional.gradients import with_gradient


class Prior(nn.Module):
    """Gaussian whose μ and σ² are moving averages of the mean and (biased) variance of the codes of each batch.

    The first 1/`rate` batches are weighted equally, so that the result does not depend on the initial values; then each
    new batch has weight `rate`, as in batch normalisation.

    >>> prior = Prior(2)
    >>> prior.observe(torch.tensor([[0.0, 1.0], [2.0, 1.0]]))
    >>> prior.mean, prior.var
    (tensor([1., 1.]), tensor([1., 0.]))
    """

    mean: Tensor
    var: Tensor
    batches: Tensor

    def __init__(self, code_size: int, rate: float = 0.1) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros(code_size))
        self.register_buffer("var", torch.ones(code_size))
        self.register_buffer("batches", torch.zeros(()))

    @torch.no_grad()
    def observe(self, z: Tensor) -> None:
        """Update the averages with a batch of codes (N, d); a batch that is not finite leaves them unchanged."""
        moved, _ = self.follow(z)
        for average, new in zip(self.averages(), moved):
            average.copy_(new)

    def averages(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return μ, σ² and the number of batches."""
        return self.mean, self.var, self.batches

    @torch.no_grad()
    def follow(self, z: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Compute the averages after a batch of codes (N, d), and whether the codes and their squares are finite; if
        they are not, the averages are the present ones."""
        z = z.to(self.mean.dtype)
        mean = z.mean(0)
        var = (z - mean).square().mean(0)  # ten times faster than torch.var_mean over the first dimension
        batches = self.batches + 1
        weight = batches.reciprocal().clamp_min(self.rate)
        finite = is_finite(var)  # implies a finite mean; used without `if`, which would synchronise with the device
        moved = (self.mean.lerp(mean, weight), self.var.lerp(var, weight), batches)
        return tuple(torch.where(finite, new, old) for new, old in zip(moved, self.averages())), finite


def sample_gaussian(mean: Tensor, var: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Sample n codes ẑ ~ N(μ, diag σ²), (n, d)."""
    noise = torch.randn(n, len(mean), generator=generator, device=mean.device, dtype=mean.dtype)
    return torch.addcmul(mean, noise, var.sqrt())


def is_finite(*tensors: Tensor) -> Tensor:
    """Tell whether the sums of all tensors are finite: a fiftieth of the time of a check of every element.

    >>> is_finite(torch.ones(2), torch.tensor([1.0, math.inf]))
    tensor(False)
    """
    sums = [tensor.detach().sum(dtype=torch.float32) for tensor in tensors]
    return (torch.stack(sums).sum() if len(sums) > 1 else sums[0]).abs() < math.inf


class Discriminator(nn.Module):
    """code → 64 → ReLU → 1: the log-odds of d(z), the probability that a code z comes from the prior.

    log d and log(1 − d) are `logsigmoid` of ± the log-odds, which is always finite; d itself is never computed.
    """

    def __init__(self, code_size: int, hidden: int = 64) -> None:
        super().__init__()
        self.first = nn.Linear(code_size, hidden)
        self.second = nn.Linear(hidden, 1)

    def forward(self, z: Tensor) -> Tensor:
        """Compute the log-odds (n,) of codes (n, d)."""
        odds: Tensor = self.second(relu(self.first(z)))
        return odds.squeeze(-1)

    def losses(self, z_prior: Tensor, z_mix: Tensor) -> tuple[Tensor, Tensor]:
        """Compute both losses from one pass, as many ẑ as z_mix:

        - mean log(1 − d(z_mix)), minimised by the policy, with the parameters of d as constants: its gradient in z_mix
          is −d(z_mix)/n · ∂(log-odds)/∂z_mix;
        - −mean [log d(ẑ) + log(1 − d(z_mix))], minimised by d, with all codes as constants.
        """
        n = len(z_mix)
        hidden = relu(self.first(torch.cat([z_prior, z_mix]).detach()))
        real, fake = self.second(hidden).squeeze(-1).chunk(2)
        log_rest = logsigmoid(-fake)
        with torch.no_grad():
            slope = (hidden[n:] > 0) * self.second.weight @ self.first.weight
            gradient = slope * (torch.sigmoid(fake) / -n).unsqueeze(1)
        return with_gradient(z_mix, log_rest.mean(), gradient), -(logsigmoid(real) + log_rest).mean()
