"""Networks for arrays of features, and the discriminator of codes."""

from __future__ import annotations

from torch import Tensor, nn


class MLP(nn.Module):
    """Linear → ReLU → Linear → ReLU on flattened inputs.

    DomainBed's featurizer for vectors has a third linear layer without an activation (`third`): its codes have both
    signs.
    """

    def __init__(self, in_features: int, out_features: int = 256, *, third: bool = False) -> None:
        super().__init__()
        self.out_features = out_features
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(in_features, out_features),
            nn.ReLU(),
            nn.Linear(out_features, out_features),
            nn.ReLU(),
            *([nn.Linear(out_features, out_features)] if third else []),
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


def build_discriminator(
    in_features: int, out_features: int, width: int = 256, depth: int = 3, dropout: float = 0.0
) -> nn.Module:
    """Build DomainBed's MLP: `depth` linear layers, with dropout and ReLU after each but the last.

    `depth` is at least 2.

    >>> [layer for layer in build_discriminator(4, 3, width=8, depth=2)]
    [Linear(in_features=4, out_features=8, bias=True), ReLU(), Linear(in_features=8, out_features=3, bias=True)]
    """
    sizes = [in_features, *[width] * (depth - 1)]
    layers: list[nn.Module] = []
    for size in sizes[:-1]:
        layers += [nn.Linear(size, width), *([nn.Dropout(dropout)] if dropout else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, out_features))
