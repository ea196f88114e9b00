"""The discriminator of domains."""

from __future__ import annotations

from torch import nn


def discriminator(
    in_features: int, out_features: int, width: int = 256, depth: int = 3, dropout: float = 0.0
) -> nn.Module:
    """Build DomainBed's MLP: `depth` linear layers, with dropout and ReLU after each but the last.

    Args:
        in_features: d, the width of the codes.
        out_features: number of logits.
        width: width of the hidden layers.
        depth: number of linear layers, at least 2.
        dropout: dropout rate of the hidden layers.

    Example:
        >>> [layer for layer in discriminator(4, 3, width=8, depth=2)]
        [Linear(in_features=4, out_features=8, bias=True), ReLU(), Linear(in_features=8, out_features=3, bias=True)]
    """
    sizes = [in_features, *[width] * (depth - 1)]
    layers: list[nn.Module] = []
    for size in sizes[:-1]:
        layers += [nn.Linear(size, width), *([nn.Dropout(dropout)] if dropout else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, out_features))
