"""SagNet: a featurizer g that serves a content network h and starves a style network s.

    style randomisation    SR(z) = σ' (z − μ)/σ + μ',   μ' = α μ + (1 − α) μ_π,   σ'² = α σ² + (1 − α) σ_π²
    content randomisation  CR(z) = σ (z_π − μ_π)/σ_π + μ,   with (z_π − μ_π)/σ_π constant

    content    L_c   = CE(h(SR(z)), y)                         moves g and h
    style      L_s   = CE(s(CR(z)), y)                         moves s
    adversary  L_adv = w · mean_c −log softmax(s(CR(z)))_c     moves g

μ and σ are the statistics of one instance, π a permutation of the batch, α ~ U(0, 1) for each instance.

Nam et al., "Reducing Domain Gap by Reducing Style Bias", 2021. Variant `vector`, the default: DomainBed's, on the final
code (one μ and σ over its d numbers), s a classifier, three updates in turn. Variant `maps`: the authors', on the maps
that enter a stage (μ and σ of every channel), s a copy of the rest of the network, all gradients from one forward pass,
and an adversary that moves only the scales and shifts of the normalisation layers before that stage.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from fgmix.algorithms._base import Algorithm, Batches, batch_of
from fgmix.algorithms._config import BaseConfig, log_uniform, search, setting
from fgmix.algorithms._registry import register
from fgmix.errors import UserError, bad_value
from fgmix.functional.precision import widened
from fgmix.functional.style import instance_statistics, restyle
from fgmix.networks import stages

CLIP = 0.1  # largest norm of the adversary's gradient on maps, the authors' constant


@register("sagnet")
class SagNet(Algorithm):
    """Style-agnostic network; see the module for its three losses and two variants."""

    label = "SagNet"
    year = 2021
    paper = "https://arxiv.org/abs/1910.11645"
    domainbed_name = "SagNet"

    class Config(BaseConfig):
        w_adv: float = search(0.1, log_uniform(1e-2, 1e1), help="weight w of the adversary", domainbed="sag_w_adv")
        level: Literal["vector", "maps"] = setting(
            "vector", help="randomise the final code (vector, DomainBed's) or feature maps (maps, the authors')"
        )
        stage: int = setting(3, help="for level maps: the stage, counted from 1, whose input is randomised")

    config: Config  # narrows the base's type

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: Config) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.style_network = _untrained_copy(classifier)
        if config.level == "maps":
            self.adversary_optimizer = self.adam(self._adversary_parameters())
            self.style_network = nn.Sequential(_from_stage(featurizer, config.stage), self.style_network)
        self.style_optimizer = self.adam(self.style_network.parameters())

    def update(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        return self._update_on_vector(x, y) if self.config.level == "vector" else self._update_on_maps(x, y)

    def _update_on_vector(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        content = cross_entropy(self.classifier(randomise_style(self.featurizer(x), _shares(x), _partners(x))), y)
        _descend(self.optimizer, content)

        # DomainBed encodes x twice more. Between the two only s moves, so that one pass gives the codes of both.
        z = self.featurizer(x)
        style = cross_entropy(self.style_network(randomise_content(z.detach(), _partners(x))), y)
        _descend(self.style_optimizer, style)

        adversary = self.config.w_adv * _distance_to_uniform(self.style_network(randomise_content(z, _partners(x))))
        _descend(self.optimizer, adversary)  # moves g alone: without a gradient, Adam passes over h
        return {"loss": content, "style": style, "adversary": adversary}

    def _update_on_maps(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        maps: list[Tensor] = []

        def enter(_: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
            maps.append(inputs[0])
            return randomise_style(inputs[0], _shares(x), _partners(x))

        with _stage(self.featurizer, self.config.stage).register_forward_pre_hook(enter):
            content = cross_entropy(self.predict(x), y)
        style_logits = self.style_network(randomise_content(maps[0], _partners(x)))
        style = cross_entropy(style_logits, y)
        adversary = self.config.w_adv * _distance_to_uniform(style_logits)

        # All gradients before any step: a step would change weights that the other graphs still need.
        adversarial = self._adversary_parameters()
        gradients = torch.autograd.grad(adversary, adversarial, retain_graph=True)
        self.style_optimizer.zero_grad(set_to_none=True)
        style.backward(inputs=list(self.style_network.parameters()), retain_graph=True)
        _descend(self.optimizer, content)
        self.style_optimizer.step()
        for parameter, gradient in zip(adversarial, gradients):
            parameter.grad = gradient
        clip_grad_norm_(adversarial, CLIP)
        self.adversary_optimizer.step()
        return {"loss": content, "style": style, "adversary": adversary}

    def _adversary_parameters(self) -> list[nn.Parameter]:
        """Scales and shifts of the normalisation layers before the stage: style, and nothing but style."""
        before = _layers_before(self.featurizer, _stage(self.featurizer, self.config.stage))
        layers = [layer for _, _, child in before for layer in child.modules()]
        norms = [layer for layer in layers if isinstance(layer, _BatchNorm | nn.GroupNorm | nn.LayerNorm)]
        parameters = [parameter for norm in norms for parameter in norm.parameters()]
        if not parameters:
            raise UserError(
                "sagnet with level=maps trains normalisation layers against its style network. "
                f"Found none before stage {self.config.stage}. Take a later stage or level=vector."
            )
        return parameters


def randomise_style(z: Tensor, alpha: Tensor, pi: Tensor) -> Tensor:
    """SR(z): the statistics of z interpolated with those of its partner.

    Args:
        z: codes (n, d) or maps (n, c, h, w).
        alpha: α (n,), the share of an instance's own statistics.
        pi: permutation (n,), the partners.

    Example:
        >>> z = torch.tensor([[1.0, 3.0], [10.0, 14.0]])
        >>> randomise_style(z, torch.zeros(2), torch.tensor([1, 0])).round(decimals=3)
        tensor([[10., 14.],
                [ 1.,  3.]])
    """
    maps = _as_maps(z)
    mu, sigma = instance_statistics(maps)
    alpha = alpha.view(-1, 1, 1, 1).to(mu.dtype)
    mu_new = torch.lerp(mu[pi], mu, alpha)
    sigma_new = torch.lerp(sigma[pi].square(), sigma.square(), alpha).sqrt()
    return restyle(maps, (mu, sigma), (mu_new, sigma_new)).view_as(z)


def randomise_content(z: Tensor, pi: Tensor) -> Tensor:
    """CR(z): the partner's normalised values, which are constant, under the statistics of z.

    Args:
        z: codes (n, d) or maps (n, c, h, w).
        pi: permutation (n,), the partners.

    Example:
        >>> z = torch.tensor([[1.0, 3.0], [14.0, 10.0]])
        >>> randomise_content(z, torch.tensor([1, 0])).round(decimals=3)
        tensor([[ 3.,  1.],
                [10., 14.]])
    """
    maps = _as_maps(z)
    mu, sigma = instance_statistics(maps)
    partner = (mu[pi].detach(), sigma[pi].detach())
    return restyle(maps[pi].detach(), partner, (mu, sigma)).view_as(z)


def _shares(x: Tensor) -> Tensor:
    """α ~ U(0, 1), one for each instance."""
    return torch.rand(len(x), device=x.device)


def _partners(x: Tensor) -> Tensor:
    """π, a random permutation of the batch."""
    return torch.randperm(len(x), device=x.device)


def _as_maps(z: Tensor) -> Tensor:
    """Codes (n, d) as maps of one channel, d pixels wide; maps as they are."""
    return z[:, None, None] if z.ndim == 2 else z


def _distance_to_uniform(logits: Tensor) -> Tensor:
    """Cross-entropy of the predictions to the uniform distribution over classes."""
    return -widened(logits).log_softmax(1).mean()


def _descend(optimizer: Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def _untrained_copy(module: nn.Module) -> nn.Module:
    """The same layers, initialised anew."""
    fresh = copy.deepcopy(module)
    for layer in fresh.modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
    return fresh


def _stage(featurizer: nn.Module, number: int) -> nn.Module:
    found = stages(featurizer)
    if not 1 <= number <= len(found):
        raise bad_value("stage", f"between 1 and {len(found)}, the stages of this network", number)
    return found[number - 1]


def _from_stage(featurizer: nn.Module, number: int) -> nn.Module:
    """A copy of the featurizer that starts at a stage: whatever comes before it is the identity."""
    rest = copy.deepcopy(featurizer)
    for parent, name, _ in list(_layers_before(rest, _stage(rest, number))):
        setattr(parent, name, nn.Identity())
    return rest


def _layers_before(module: nn.Module, stage: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """(parent, name, layer) of the layers registered before `stage`, whole branches as one layer."""
    for name, child in module.named_children():
        if child is stage:
            return
        if stage in child.modules():
            yield from _layers_before(child, stage)
            return
        yield module, name, child
