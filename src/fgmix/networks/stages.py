"""Find the stages and residual blocks of a convolutional network: where style methods and manifold mixup act."""

from __future__ import annotations

from torch import nn

from fgmix.errors import UserError


def stages(featurizer: nn.Module) -> list[nn.Module]:
    """Convolutional stages in order of depth, each mapping (n, c, h, w) to (n, c', h', w').

    Works on `small_cnn`, on timm's ResNets (layer1 …) and on timm networks that keep their stages in `stages` or, as
    EfficientNet does, in `blocks`.

    >>> from fgmix.networks import build_featurizer
    >>> len(stages(build_featurizer("small_cnn", (3, 32, 32))))
    3
    """
    net = getattr(featurizer, "net", featurizer)
    layers = [module for name, module in net.named_children() if name in ("layer1", "layer2", "layer3", "layer4")]
    if layers:
        return layers
    for name in ("stages", "blocks"):
        found = getattr(net, name, None)
        if isinstance(found, nn.Sequential | nn.ModuleList) and _is_convolutional(found):
            return list(found)
    raise UserError(
        "This method works on the stages of a convolutional network. "
        f"Found {type(net).__name__}, which has none. Take a backbone such as small_cnn or resnet18."
    )


def residual_blocks(featurizer: nn.Module) -> list[nn.Module]:
    """Residual blocks of all stages, in order of depth."""
    return [block for stage in stages(featurizer) for block in (stage.children() if _is_list(stage) else [stage])]


def _is_list(stage: nn.Module) -> bool:
    return isinstance(stage, nn.Sequential | nn.ModuleList)


def _is_convolutional(found: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in found.modules())
