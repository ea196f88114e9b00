"""What the base model learns from mixed codes, measured: the share of extrapolated codes alone does not tell."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.mixing._heads import logits_of
from fgmix.mixing.flatness import logit_margins
from fgmix.mixing.scores import mean_gradient_norm
from fgmix.mixing.weights import rank_correlation

METRICS = ("mixed_loss", "mixed_margin", "gradient_ratio", "margin_correlation")


@torch.no_grad()
def measure_effect(
    classifier: nn.Module,
    mixed: tuple[Tensor, Tensor],
    batch: tuple[Tensor, Tensor],
    logits: Tensor,
    index: Tensor,
    weights: Tensor,
) -> dict[str, Tensor]:
    """Measure mixed codes against the codes of the batch that they are mixed from, as detached scalars:

    - mixed_loss: their mean cross-entropy;
    - mixed_margin: their mean margin, the logit of the true class minus the largest other one;
    - gradient_ratio: the norm of the mean gradient that they send to the classifier over that of the batch's codes;
    - margin_correlation: Spearman's rank correlation of ã with the margins of the members, averaged over tuples.

    Args:
        classifier: h_φ, in evaluation mode.
        mixed: mixed codes (n, d) and their classes (n,).
        batch: codes (N, d) and classes (N,) of the whole batch.
        logits: of the batch (N, C).
        index: members of the tuples, indices into the batch (n, k).
        weights: ã of the members (n, k).
    """
    (z_mix, y_mix), (z, y) = mixed, batch
    logits_mix = logits_of(classifier, z_mix)
    gradient = mean_gradient_norm(classifier, z_mix, y_mix, logits_mix)
    reference = mean_gradient_norm(classifier, z, y, logits)
    values = (
        cross_entropy(logits_mix, y_mix),
        logit_margins(logits_mix, y_mix).mean(),
        torch.where(reference > 0, gradient / reference, 0.0),
        rank_correlation(weights, logit_margins(logits, y)[index]),
    )
    return dict(zip(METRICS, values, strict=True))
