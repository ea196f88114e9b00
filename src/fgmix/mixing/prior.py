"""The Gaussian prior of the codes, and the discriminator between its samples and mixed codes.

ẑ ~ N(μ, diag σ²),   policy: min mean log(1 − d(z_mix)),   discriminator: max mean [log d(ẑ) + log(1 − d(z_mix))]
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid, relu


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
        z = z.to(self.mean.dtype)
        mean = z.mean(0)
        var = (z - mean).square().mean(0)  # ten times faster than torch.var_mean over the first dimension
        weight = (self.batches + 1).reciprocal().clamp_min(self.rate)
        fine = var.isfinite().all()  # implies a finite mean; used without `if`, which would synchronise with the device
        for average, new in (
            (self.mean, self.mean.lerp(mean, weight)),
            (self.var, self.var.lerp(var, weight)),
            (self.batches, self.batches + 1),
        ):
            average.copy_(torch.where(fine, new, average))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Sample ẑ (n, d)."""
        noise = torch.randn(n, len(self.mean), generator=generator, device=self.mean.device, dtype=self.mean.dtype)
        return torch.addcmul(self.mean, noise, self.var.sqrt())


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
        return _log_odds(z, *self._weights())

    def _weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return `parameters()`, without a walk over modules."""
        return self.first.weight, self.first.bias, self.second.weight, self.second.bias

    def adversarial_loss(self, z_mix: Tensor) -> Tensor:
        """Compute mean log(1 − d(z_mix)), minimised by the policy; the parameters of d are constants here."""
        return logsigmoid(-_log_odds(z_mix, *(p.detach() for p in self._weights()))).mean()

    def discriminator_loss(self, z_prior: Tensor, z_mix: Tensor) -> Tensor:
        """Compute −mean [log d(ẑ) + log(1 − d(z_mix))], minimised by d; as many ẑ as z_mix, both constants here."""
        real, fake = self(torch.cat([z_prior, z_mix]).detach()).chunk(2)
        return -(logsigmoid(real) + logsigmoid(-fake)).mean()


def _log_odds(z: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> Tensor:
    return linear(relu(linear(z, w_1, b_1)), w_2, b_2).squeeze(-1)
