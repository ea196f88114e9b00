"""The featurizer of a run: a backbone with normalisation of its inputs, frozen batch norm and dropout."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fgmix.networks._weights import Matched
from fgmix.networks.preprocessing import Normalisation

# Images per forward pass in evaluation on a CPU, whose cache then holds the intermediate maps, while the weights, which
# oneDNN lays out anew in every pass, are used for several images: 64 of up to 64×64 pixels, 16 of larger ones, fewer
# only beyond 256×256. docs/speed.md has the measurements.
PIECES = ((64 * 64, 64), (256 * 256, 16))  # the largest number of pixels, and images of such a size


def choose_piece(height: int, width: int) -> int:
    """Choose the number of images per forward pass in evaluation on a CPU.

    >>> choose_piece(32, 32), choose_piece(224, 224), choose_piece(448, 448)
    (64, 16, 5)
    """
    pixels = height * width
    largest, images = next((piece for piece in PIECES if pixels <= piece[0]), PIECES[-1])
    return max(1, min(images, images * largest // pixels))


class Featurizer(nn.Module):
    """z = dropout(net(x)), with x normalised first if a normalisation is given.

    Args:
        net: a backbone with pooled output (n, d).
        out_features: d.
        dropout: dropout rate of the codes.
        freeze_bn: keep batch-norm layers in evaluation mode while their scale and shift are trained, as in DomainBed's
            published protocol: batches of several domains do not change the pre-trained statistics.
        input_shape: (c, h, w) of the images or (f,) of the features that the backbone was built for, if known.
        weights_matched: how the tensors of a weights file were matched with the backbone's; None without a file.
        normalisation: the one that pre-trained weights expect, for arrays of images in [0, 1]; image files are
            normalised when they are loaded.
    """

    mean: Tensor  # buffers, only with a normalisation
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
        self.base: frozenset[str] = frozenset()  # names of the tensors that adapters leave as they are (`lora`)
        if normalisation is not None:
            self.register_buffer("mean", torch.tensor(normalisation.mean).view(-1, 1, 1), persistent=False)
            self.register_buffer("std", torch.tensor(normalisation.std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.normalises:
            image, added = x[:, : len(self.mean)], x[:, len(self.mean) :]  # ARM adds a channel
            x = (image - self.mean) / self.std
            x = torch.cat([x, added], 1) if added.shape[1] else x
        # In evaluation on a CPU images pass in small pieces: its cache then holds the intermediate maps. The number of
        # images is looked at last, so that an export, for which an earlier condition fails, does not depend on it.
        evaluates = torch.is_inference_mode_enabled() and not self.training
        if evaluates and x.device.type == "cpu" and x.dim() == 4:
            size = choose_piece(x.shape[2], x.shape[3])
            if len(x) > size:
                return torch.cat([self.net(piece) for piece in x.split(size)])
        z: Tensor = self.dropout(self.net(x))
        return z

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; frozen layers stay in evaluation mode."""
        super().train(mode)
        for module in self.net.modules():
            trainable = [parameter.requires_grad for parameter in module.parameters()]
            is_frozen = bool(trainable) and not any(trainable)
            if is_frozen or (self.freeze_bn and isinstance(module, _BatchNorm)):
                module.eval()
        return self
