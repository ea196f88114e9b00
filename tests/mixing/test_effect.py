"""What mixed codes teach the classifier, against a loop over codes and scipy's rank correlation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.mixing import draw_tuples
from fgmix.mixing.effect import METRICS, measure_effect
from fgmix.mixing.fgmix import FGMix
from reference.literal import gradients_by_loop

D, C, K, B = 6, 4, 3, 8
HEADS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(D, C),
    "without bias": lambda: nn.Linear(D, C, bias=False),
    "mlp": lambda: nn.Sequential(nn.Linear(D, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, C)),
}


def batch() -> tuple[Tensor, Tensor, Tensor]:
    y, domains = torch.arange(K * B) % C, torch.arange(K).repeat_interleave(B)
    return (torch.randn(K * B, D) + domains.unsqueeze(1)).requires_grad_(), y, domains


def margin(logits: Tensor, label: int) -> float:
    return float(logits.detach()[label] - max(logit for c, logit in enumerate(logits.detach()) if c != label))


def measure_by_loop(
    head: nn.Module, z_mix: Tensor, labels: Tensor, z: Tensor, y: Tensor, index: Tensor, a: Tensor
) -> dict[str, float]:
    head = head.eval()
    losses = [cross_entropy(head(c.unsqueeze(0)), t.unsqueeze(0)).item() for c, t in zip(z_mix, labels)]
    of_mixed = [margin(head(c), int(t)) for c, t in zip(z_mix, labels)]
    of_batch = np.array([margin(head(c), int(t)) for c, t in zip(z, y)])
    norms = [gradients_by_loop(head, codes, t).mean(0).norm().item() for codes, t in ((z_mix, labels), (z, y))]
    ranks = [spearmanr(row, of_batch[members]).statistic for row, members in zip(a.numpy(), index.numpy())]
    return dict(zip(METRICS, (np.mean(losses), np.mean(of_mixed), norms[0] / norms[1], np.mean(ranks))))


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("weights", ["learned", "dirichlet"])
def test_the_effect_of_a_call_is_that_of_a_loop_over_codes(kind: str, weights: str) -> None:
    head = HEADS[kind]().train()
    z, y, domains = batch()
    mixed = FGMix(D, head, weights=weights)(z, y, domains, head, torch.Generator().manual_seed(1))
    index, _ = draw_tuples(y, domains, 32, generator=torch.Generator().manual_seed(1))
    expected = measure_by_loop(head, mixed.z.detach(), mixed.y, z.detach(), y, index, mixed.weights)
    assert {name: mixed.metrics[name].item() for name in METRICS} == pytest.approx(expected, abs=1e-5)
    assert not any(mixed.metrics[name].requires_grad for name in METRICS)


def test_equal_weights_prefer_nothing() -> None:
    head = nn.Linear(D, C)
    assert FGMix(D, head, weights="uniform", lam=1.0)(*batch(), head).metrics["margin_correlation"] == 0


@pytest.mark.parametrize(("order", "expected"), [(1, 1.0), (-1, -1.0)])
def test_weights_in_the_order_of_the_margins(order: int, expected: float) -> None:
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(torch.eye(2))
    z, y = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]]), torch.zeros(3, dtype=torch.long)
    weights = order * torch.tensor([[0.9, 0.3, -0.2]])
    found = measure_effect(head, (z[:1], y[:1]), (z, y), head(z), torch.arange(3).unsqueeze(0), weights)
    assert found["margin_correlation"] == expected
    assert found["mixed_margin"] == 3


def test_a_classifier_without_a_gradient_has_no_ratio() -> None:
    head = nn.Linear(1, 2)
    head.weight.data.copy_(torch.tensor([[1e4], [-1e4]]))
    z, y = torch.ones(2, 1), torch.zeros(2, dtype=torch.long)
    found = measure_effect(head, (z[:1], y[:1]), (z, y), head(z), torch.tensor([[0, 1]]), torch.tensor([[0.5, 0.5]]))
    assert found["gradient_ratio"] == 0
