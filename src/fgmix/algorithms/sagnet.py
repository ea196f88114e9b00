import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, descend, log_uniform, register, search
from fgmix.functional import widen
from fgmix.functional.style import instance_statistics, restyle


@register("sagnet")
class SagNet(Algorithm):
    """Style-agnostic network: train on content under random styles, against a network that sees only the style.

        style randomisation    SR(z) = σ' (z − μ)/σ + μ',   μ' = α μ + (1 − α) μ_π,   σ'² = α σ² + (1 − α) σ_π²
        content randomisation  CR(z) = σ (z_π − μ_π)/σ_π + μ,   with (z_π − μ_π)/σ_π constant

        content    L_c   = CE(h(SR(z)), y)                         updates g and h
        style      L_s   = CE(s(CR(z)), y)                         updates s
        adversary  L_adv = w · mean_c −log softmax(s(CR(z)))_c     updates g

    μ and σ are the mean and standard deviation of one sample, π is a permutation of the batch (the index π marks the
    values of a sample's partner), α ~ U(0, 1) is sampled per sample, and s is the style network.

    Nam et al., "Reducing Domain Gap by Reducing Style Bias", 2021, https://arxiv.org/abs/1910.11645. Variant:
    DomainBed's, on the final code (one μ and σ over its d numbers) instead of on maps, with s a classifier and three
    updates in turn.
    """

    label = "SagNet"
    family = "style"
    cost = 2.0
    targets = "soft"
    domainbed_name = "SagNet"

    class Config(BaseConfig):
        w_adv: float = search(
            0.1, log_uniform(1e-2, 1e1), help="weight w of the adversarial loss", domainbed="sag_w_adv", ge=0
        )

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.style_network = _copy_untrained(classifier)
        self.style_optimizer = self.build_optimizer(self.style_network.parameters())

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        g, h, s = self.featurizer, self.classifier, self.style_network
        content = cross_entropy(h(randomise_style(g(x), sample_shares(x), sample_partners(x))), y)
        descend(self.optimizer, content)

        # DomainBed encodes x twice more; only s changes in between, so one pass gives the codes of both.
        z = g(x)
        style = cross_entropy(s(randomise_content(z.detach(), sample_partners(x))), y)
        descend(self.style_optimizer, style)

        adversary = self.config.w_adv * distance_to_uniform(s(randomise_content(z, sample_partners(x))))
        descend(self.optimizer, adversary)  # updates g alone: Adam skips h, which has no gradient
        return {"loss": content, "style": style, "adversary": adversary}


def _copy_untrained(module: nn.Module) -> nn.Module:
    """Copy the layers and initialise them anew."""
    fresh = copy.deepcopy(module)
    for layer in fresh.modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
    return fresh.requires_grad_(True)  # of a frozen head, too


def randomise_style(z: Tensor, alpha: Tensor, pi: Tensor) -> Tensor:
    """Compute SR(z): interpolate the statistics of z with those of its partner.

    z are codes (n, d) or maps (n, c, h, w), α (n,) weighs a sample's own statistics, and π (n,) permutes the samples.

    >>> z = torch.tensor([[1.0, 3.0], [10.0, 14.0]])
    >>> randomise_style(z, torch.zeros(2), torch.tensor([1, 0])).round(decimals=3)
    tensor([[10., 14.],
            [ 1.,  3.]])
    """
    maps = _view_as_maps(z)
    mu, sigma = instance_statistics(maps)
    alpha = alpha.view(-1, 1, 1, 1).to(mu.dtype)
    mu_new = torch.lerp(mu[pi], mu, alpha)
    sigma_new = torch.lerp(sigma[pi].square(), sigma.square(), alpha).sqrt()
    return restyle(maps, (mu, sigma), (mu_new, sigma_new)).view_as(z)


def randomise_content(z: Tensor, pi: Tensor) -> Tensor:
    """Compute CR(z): the partner's normalised values, as constants, with the statistics of z.

    >>> z = torch.tensor([[1.0, 3.0], [14.0, 10.0]])
    >>> randomise_content(z, torch.tensor([1, 0])).round(decimals=3)
    tensor([[ 3.,  1.],
            [10., 14.]])
    """
    maps = _view_as_maps(z)
    mu, sigma = instance_statistics(maps)
    partner = (mu[pi].detach(), sigma[pi].detach())
    return restyle(maps[pi].detach(), partner, (mu, sigma)).view_as(z)


def sample_shares(x: Tensor) -> Tensor:
    """Sample α ~ U(0, 1), one per sample."""
    return torch.rand(len(x), device=x.device)


def sample_partners(x: Tensor) -> Tensor:
    """Sample π, a random permutation of the batch."""
    return torch.randperm(len(x), device=x.device)


def distance_to_uniform(logits: Tensor) -> Tensor:
    """Compute the cross-entropy of the predictions to the uniform distribution over classes."""
    return -widen(logits).log_softmax(1).mean()


def _view_as_maps(z: Tensor) -> Tensor:
    """View codes (n, d) as maps of one channel, d pixels wide; maps as they are."""
    return z[:, None, None] if z.ndim == 2 else z
