"""Summarize predictions for many samples by quantiles of confidence and novelty and by counts of classes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import Indices
from fgmix.records.model import PredictionSummary

QUANTILES = 101  # from the smallest to the largest value


def summarize_predictions(
    probabilities: npt.NDArray[np.floating], novelty: npt.NDArray[np.floating]
) -> PredictionSummary:
    """Summarize calibrated probabilities (n, C) and novelty (n,)."""
    labels = probabilities.argmax(axis=1)
    return summarize_labels(labels, probabilities.max(axis=1), novelty, probabilities.shape[1])


def summarize_labels(
    labels: Indices, confidence: npt.NDArray[np.floating], novelty: npt.NDArray[np.floating], classes: int
) -> PredictionSummary:
    """Summarize predicted classes, their confidence and novelty, each (n,), of a number of classes."""
    levels = np.linspace(0, 1, QUANTILES)
    return PredictionSummary(
        samples=len(labels),
        mean_confidence=float(confidence.mean(dtype=np.float64)),
        novel=float((novelty > 1).mean()),
        confidence=tuple(np.quantile(confidence, levels).astype(np.float64).round(5).tolist()),
        novelty=tuple(np.quantile(novelty, levels).astype(np.float64).round(5).tolist()),
        classes=tuple(np.bincount(labels, minlength=classes).tolist()),
    )
