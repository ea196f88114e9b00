"""The network of a model as one module: standardisation, featurizer, classifier, calibration and novelty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fgmix.algorithms import get
from fgmix.data.standardisation import FURTHEST, Standardisation
from fgmix.deploy.novelty import SHORTEST, Familiar
from fgmix.errors import UserError


def check_alone(algorithm: str) -> None:
    """Raise an error for a method whose predictions depend on other samples: a model predicts each sample alone."""
    if get(algorithm).adapts_at_test:
        raise UserError(
            f"Expected a method that predicts each sample alone, for a model. Found {algorithm}, which adapts to the "
            f"samples of a domain. Use {algorithm.partition('+')[2] or 'erm'} or another method that does not."
        )


class Standardise(nn.Module):
    """`data.standardisation.Standardisation` as a layer, for export: change both together."""

    mean: Tensor
    scale: Tensor
    tail: Tensor

    def __init__(self, standard: Standardisation) -> None:
        super().__init__()
        self.imputes = standard.imputes
        dtype = torch.float64 if standard.mean.dtype == np.float64 else torch.float32
        for name in ("mean", "scale", "tail"):  # copies: members of an ensemble share `standard`
            self.register_buffer(name, torch.tensor(getattr(standard, name), dtype=dtype))

    @property
    def standard(self) -> Standardisation:
        """The numbers of the layer."""
        mean, scale = (value.cpu().numpy() for value in (self.mean, self.scale))
        return Standardisation(mean, scale, float(self.tail), self.imputes)

    def forward(self, x: Tensor) -> Tensor:
        if self.imputes:
            x = torch.where(x.isnan(), self.mean, x)
        z = ((x - self.mean) / self.scale).clamp(-FURTHEST, FURTHEST)
        return z.sign() * (z.abs().minimum(self.tail) + (z.abs() - self.tail).clamp(min=0).log1p())


class Network(nn.Module):
    """Inputs → calibrated probabilities (n, C) and novelty (n,).

        z = g(x),    p = softmax(h(z) / T)
        novelty = min_c ‖W (z/‖z‖ − center) − m_c‖² · max(1, q/‖z‖, ‖z‖/r)² / limit,    of features at least ‖x‖² / size
                                                                                        where that is above 1

    with x the inputs after backbone and standardisation. Inputs are normalised images, or arrays as the user gives
    them.

    Args:
        featurizer: g.
        classifier: h.
        temperature: T.
        familiar: center, m_c, W, q, r, the limit and the size; see `novelty`.
        standard: standardisation of the inputs of g; None for none.
        backbone: frozen network whose features of images are the inputs of g; None for none.
    """

    temperature: Tensor
    center: Tensor
    means: Tensor
    whitening: Tensor
    usual: Tensor
    reach: Tensor
    limit: Tensor
    size: Tensor

    def __init__(
        self,
        featurizer: nn.Module,
        classifier: nn.Module,
        temperature: float,
        familiar: Familiar,
        standard: Standardisation | None = None,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone or nn.Identity()
        self.standardise = nn.Identity() if standard is None else Standardise(standard)
        self.on_features = familiar.size < float("inf")
        self.featurizer = featurizer
        self.classifier = classifier
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float32))
        for name in ("center", "means", "whitening", "usual", "reach", "limit", "size"):
            self.register_buffer(name, torch.as_tensor(getattr(familiar, name), dtype=torch.float32))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, novelty = self.logits_and_novelty(x)
        return torch.softmax(logits / self.temperature, dim=1), novelty

    def logits_and_novelty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute h(g(x)) (n, C) and novelty (n,)."""
        x = self.standardise(self.backbone(x)).float()
        z = self.featurizer(x)
        return self.classifier(z), self.measure_novelty(z, x)

    def measure_novelty(self, z: Tensor, x: Tensor) -> Tensor:
        """Compute the novelty (n,) of codes z = g(x)."""
        length = torch.linalg.vector_norm(z, dim=1).clamp(min=SHORTEST)
        white = (z / length[:, None] - self.center) @ self.whitening.T
        nearest = (self.means.square().sum(1) - 2 * white @ self.means.T).argmin(1)
        # From differences: for distant classes, the expanded squares above lose all digits in single precision.
        novelty: Tensor = (white - self.means[nearest]).square().sum(1) / self.limit
        novelty = novelty * torch.maximum(self.usual / length, length / self.reach).clamp(min=1) ** 2
        if self.on_features:
            size = x.flatten(1).square().sum(1) / self.size
            novelty = torch.where(size > 1, novelty.maximum(size), novelty)
        return novelty


class Ensemble(nn.Module):
    """Several networks as one: softmax of the mean of their logits, and the mean of their novelties.

    Args:
        members: the networks.
    """

    def __init__(self, members: Sequence[Network]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, novelties = zip(*(member.logits_and_novelty(x) for member in self.members))  # type: ignore[operator]
        return torch.softmax(torch.stack(logits).mean(0), dim=1), torch.stack(novelties).mean(0)
