"""SagNet on feature maps, the authors' variant: `sagnet` with level `maps`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import clip_grad_norm_

from fgmix.algorithms._base import descend
from fgmix.algorithms._sagnet_styles import (
    distance_to_uniform,
    partners,
    randomise_content,
    randomise_style,
    shares,
)
from fgmix.errors import UserError, bad_value
from fgmix.networks.split import layers_before
from fgmix.networks.stages import Stage, stages

if TYPE_CHECKING:
    from fgmix.algorithms.sagnet import SagNet

CLIP = 0.1  # largest norm of the adversary's gradient, the authors' constant


def update_on_maps(method: SagNet, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """One step: the losses L_c, L_s and L_adv from one forward pass, each for its own parameters."""
    g, s, entry = method.featurizer, method.style_network, method.entry
    maps: list[Tensor] = []

    def enter(_: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        maps.append(inputs[0])
        return randomise_style(inputs[0], shares(x), partners(x))

    with g.get_submodule(entry).register_forward_pre_hook(enter):
        content = cross_entropy(method.predict(x), y)
    style_logits = s(randomise_content(maps[0], partners(x)))
    style = cross_entropy(style_logits, y)
    adversary = method.config.w_adv * distance_to_uniform(style_logits)

    # All gradients before any step: a step would change weights that the other graphs still need.
    adversarial = adversary_parameters(g, entry)
    gradients = torch.autograd.grad(adversary, adversarial, retain_graph=True)
    method.style_optimizer.zero_grad(set_to_none=True)
    style.backward(inputs=list(s.parameters()), retain_graph=True)
    descend(method.optimizer, content)
    method.style_optimizer.step()
    for parameter, gradient in zip(adversarial, gradients):
        parameter.grad = gradient
    clip_grad_norm_(adversarial, CLIP)
    method.adversary_optimizer.step()
    return {"loss": content, "style": style, "adversary": adversary}


def adversary_parameters(featurizer: nn.Module, entry: str) -> list[nn.Parameter]:
    """Scales and shifts of the normalisation layers before the module `entry`, which control the style."""
    layers = [layer for _, _, child in layers_before(featurizer, entry) for layer in child.modules()]
    norms = [layer for layer in layers if isinstance(layer, _BatchNorm | nn.GroupNorm | nn.LayerNorm)]
    parameters = [parameter for norm in norms for parameter in norm.parameters() if parameter.requires_grad]
    if not parameters:
        raise UserError(
            "sagnet with level=maps trains normalisation layers against its style network. "
            f"Found none before `{entry}`. Choose a later stage or level=vector."
        )
    return parameters


def numbered_stage(featurizer: nn.Module, number: int) -> Stage:
    """A stage of a network, counted from 1."""
    found = stages(featurizer)
    if number > len(found):
        raise bad_value("stage", f"between 1 and {len(found)}, the stages of this network", number)
    return found[number - 1]
