"""How a network's weights expect images to be prepared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Normalisation:
    """What images in [0, 1] are normalised by, and how they are resized.

    Args:
        mean: subtracted, one number per colour channel.
        std: divided by, one number per colour channel.
        interpolation: of the resize.
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
