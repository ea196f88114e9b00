"""The entropy of predictions."""

from torch import Tensor


def softmax_entropy(logits: Tensor) -> Tensor:
    """Compute H(p) = −Σ_c p_c log p_c (n,) of p = softmax(logits), logits (n, C).

    >>> import torch
    >>> round(softmax_entropy(torch.zeros(1, 2)).item(), 4)  # log 2
    0.6931
    """
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
