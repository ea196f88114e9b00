"""A featurizer followed by an activation."""

from __future__ import annotations

from torch import Tensor, nn


class Activated(nn.Module):
    """z = σ(g(x)).

    Args:
        net: featurizer g.
        activation: σ, elementwise.

    Example:
        >>> import torch
        >>> Activated(nn.Flatten(), nn.ReLU())(torch.tensor([[-1.0, 2.0]])).tolist()
        [[0.0, 2.0]]
    """

    def __init__(self, net: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.activation = activation
        self.out_features: int | None = getattr(net, "out_features", None)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.activation(self.net(x))
        return z
