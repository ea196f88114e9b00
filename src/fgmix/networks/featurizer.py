"""The featurizer of a run: a backbone, frozen batch-norm, dropout."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fgmix.networks._weights import Matched
from fgmix.networks.preprocessing import Normalisation

# Images per forward pass in evaluation on a CPU. Of 256 at 64 px, EfficientNet-Lite0 takes 4.1 ms each in one pass and
# 2.5 ms in pieces of 32; ResNet-18 at 224 px and small_cnn take as long either way.
PIECE = 32


class Featurizer(nn.Module):
    """z = dropout(net(x)), of normalised x where a normalisation is given.

    Args:
        net: a backbone with pooled output (n, d).
        out_features: d.
        dropout: share of the code's numbers dropped in training.
        freeze_bn: keep batch-norm layers in evaluation mode while their scale and shift train, as DomainBed's
            published protocol does: pre-trained statistics survive batches that hold several domains.
        input_shape: (c, h, w) of the images or (f,) of the features that the backbone was built for, where known.
        weights_matched: how the tensors of a weights file were matched with the backbone's; None without a file.
        normalisation: what pre-trained weights expect of images in [0, 1] that come as arrays; images in files are
            normalised when they are loaded.
    """

    mean: Tensor  # buffers, where the inputs are normalised here
    std: Tensor

    def __init__(
        self,
        net: nn.Module,
        out_features: int,
        dropout: float = 0.0,
        freeze_bn: bool = False,
        input_shape: tuple[int, ...] | None = None,
        weights_matched: Matched | None = None,
        normalisation: Normalisation | None = None,
    ) -> None:
        super().__init__()
        self.net = net
        self.out_features = out_features
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.freeze_bn = freeze_bn
        self.input_shape = input_shape
        self.weights_matched = weights_matched
        self.normalises = normalisation is not None
        if normalisation is not None:
            self.register_buffer("mean", torch.tensor(normalisation.mean).view(-1, 1, 1), persistent=False)
            self.register_buffer("std", torch.tensor(normalisation.std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.normalises:
            x = (x - self.mean) / self.std
        if self._in_pieces(x):
            return torch.cat([self.net(piece) for piece in x.split(PIECE)])
        z: Tensor = self.dropout(self.net(x))
        return z

    def _in_pieces(self, x: Tensor) -> bool:
        """Whether images are evaluated a few at a time: on a CPU, whose cache then holds what lies between layers."""
        return (
            torch.is_inference_mode_enabled()
            and not self.training
            and x.device.type == "cpu"
            and x.dim() == 4
            and len(x) > PIECE  # last: an export, which does not come so far, must not depend on it
        )

    def train(self, mode: bool = True) -> Self:
        """Training or evaluation mode; frozen layers stay in the latter."""
        super().train(mode)
        for module in self.net.modules():
            if (self.freeze_bn and isinstance(module, _BatchNorm)) or _is_frozen(module):
                module.eval()
        return self


def _is_frozen(module: nn.Module) -> bool:
    """Whether a module has parameters, and none of them is trained."""
    parameters = [parameter.requires_grad for parameter in module.parameters()]
    return bool(parameters) and not any(parameters)
