"""Networks for arrays of features."""

from __future__ import annotations

from torch import Tensor, nn


class MLP(nn.Module):
    """Linear → ReLU → Linear → ReLU on flattened inputs.

    With a linear classifier this is DomainBed's MLP of width 256 and depth 3; as a featurizer, DomainBed's has a third
    linear layer.

    Args:
        in_features: number of features of a sample.
        out_features: width of the layers and of the code.
    """

    def __init__(self, in_features: int, out_features: int = 256) -> None:
        super().__init__()
        self.out_features = out_features
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(in_features, out_features),
            nn.ReLU(),
            nn.Linear(out_features, out_features),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.net(x)
        return z


class Identity(nn.Module):
    """z = x, flattened: the features are the code, and only the classifier is trained."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.out_features = in_features

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)
