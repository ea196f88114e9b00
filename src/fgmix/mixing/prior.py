"""The Gaussian prior of the codes, and the discriminator between its samples and mixed codes.

ẑ ~ N(μ, diag σ²),   policy: min mean log(1 − d(z_mix)),   discriminator: max mean [log d(ẑ) + log(1 − d(z_mix))]
"""

from __future__ import annotations

import math
from functools import lru_cache, reduce

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, mse_loss, relu

from fgmix.functional.gradients import Pullback
from fgmix.mixing import tuples

Flag = bool | Tensor  # a tensor on a GPU, where reading it would synchronise
Averages = tuple[Tensor, Tensor, Tensor]  # μ, σ² and the number of batches


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
        moved = self.follow(z)
        self.write(moved, is_finite(moved[1]))

    def averages(self) -> Averages:
        """Return μ, σ² and the number of batches."""
        return self.mean, self.var, self.batches

    @torch.no_grad()
    def follow(self, z: Tensor) -> Averages:
        """Compute the averages after a batch of codes (N, d). If a code or its square is not finite, σ² is not."""
        z = z.to(self.mean.dtype)
        if tuples.on_host(z):  # there ten times faster than torch.var_mean over the first dimension
            mean = z.mean(0)
            var = mse_loss(z, mean.expand_as(z), reduction="none").mean(0)
        else:
            var, mean = torch.var_mean(z, 0, correction=0)
        batches = self.batches + 1
        weight = batches.reciprocal().clamp_min(self.rate)
        return self.mean.lerp(mean, weight), self.var.lerp(var, weight), batches

    def write(self, averages: Averages, condition: Flag) -> None:
        """Replace the averages if the condition holds."""
        if condition is True:
            self.mean, self.var, self.batches = averages
        elif isinstance(condition, Tensor):
            for old, new in zip(self.averages(), averages):
                write_if(condition, old, new)


def sample_gaussian(averages: Averages, n: int, generator: torch.Generator | None = None) -> Tensor:
    """Sample n codes ẑ ~ N(μ, diag σ²), (n, d)."""
    mean, var, _ = averages
    noise = torch.randn(n, len(mean), generator=generator, device=mean.device, dtype=mean.dtype)
    return torch.addcmul(mean, noise, var.sqrt())


def is_finite(*tensors: Tensor) -> Flag:
    """Tell whether the sums of all tensors are finite: a fiftieth of the time of a check of every element.

    >>> is_finite(torch.ones(2), torch.tensor([1.0, math.inf]))
    False
    """
    sums = [t.detach().sum(dtype=torch.float32) if t.ndim else t.detach() for t in tensors]
    total = reduce(torch.add, sums)
    return math.isfinite(total.item()) if tuples.on_host(total) else total.abs() < math.inf


def negate(flag: Flag) -> Flag:
    """Compute the opposite of a flag."""
    return not flag if isinstance(flag, bool) else ~flag


def write_if(flag: Flag, old: Tensor, new: Tensor) -> None:
    """Write `new` into the memory of `old` if the flag holds."""
    if isinstance(flag, bool):
        old.copy_(new if flag else old)
    else:
        torch.where(flag, new, old, out=old)


def fill_if(flag: Flag, tensor: Tensor, value: int = 0) -> Tensor:
    """Fill a tensor with a value if the flag holds."""
    if isinstance(flag, bool):
        return torch.full_like(tensor, value) if flag else tensor
    return tensor.masked_fill(flag, value)


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

    def tensors(self) -> list[Tensor]:
        """Return `parameters()` without a walk over modules, in the order of the pullback of `losses`."""
        return [self.first.weight, self.first.bias, self.second.weight, self.second.bias]

    @torch.no_grad()
    def losses(self, z_prior: Tensor, z_mix: Tensor, alpha: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Pullback]:
        """Compute both losses from one pass, with all codes as constants, as many ẑ as z_mix.

        Returns:
            mean log(1 − d(z_mix)), minimised by the policy; −α·mean [log d(ẑ) + log(1 − d(z_mix))], minimised by d; the
            gradient of the second in z_mix, which is −α times that of the first; its pullback to `tensors()`.
        """
        n, first, second = len(z_mix), self.first, self.second
        sign, slopes, means = _weigh_logs(n, alpha, z_mix.dtype, z_mix.device)
        z = torch.cat([z_prior, z_mix])
        hidden = torch.addmm(first.bias, z, first.weight.T).relu_()
        odds = torch.addmm(second.bias, hidden, second.weight.T)
        logs = logsigmoid(odds * sign)  # log d(ẑ) and log(1 − d(z_mix))
        in_odds = torch.expm1(logs) * slopes  # α/n times d(ẑ) − 1 and d(z_mix): the gradient of the second loss
        in_first = (in_odds * second.weight).mul_(hidden > 0)  # … in the outputs of the first layer
        adv, disc = (logs.T @ means)[0].unbind()

        def pull(gradient: Tensor) -> list[Tensor]:
            g, g_odds = in_first * gradient, in_odds * gradient
            return [g.T @ z, g.sum(0), g_odds.T @ hidden, g_odds.sum(0)]

        return adv, disc, in_first[n:] @ first.weight, pull


@lru_cache(16)
def _weigh_logs(n: int, alpha: float, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `Discriminator.losses` multiplies by, for n ẑ and then n z_mix: signs of the log-odds (2n, 1), the
    same times α/n, and weights of the logarithms in the two losses (2n, 2)."""
    sign = torch.ones(2 * n, 1, dtype=dtype, device=device)
    sign[n:] = -1
    means = torch.cat([(1 - sign) / (2 * n), torch.full_like(sign, -alpha / n)], 1)
    return sign, sign * (alpha / n), means
