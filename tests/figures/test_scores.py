"""A_ω against the cosine."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from fgmix.figures.kinds import describe, state_claims
from fgmix.figures.scores import bound_rho
from figures import made
from figures.marks import points


@pytest.mark.parametrize("pairs", [2, 4])
def test_a_panel_for_each_pair_on_the_same_axes(pairs: int) -> None:
    chart = describe(made.scores(pairs))
    assert len(chart.panels) == pairs
    assert chart.panels[0].title == "d0 → d1, ρ = 0.35 [-0.12, 0.69]"
    assert chart.title.endswith("test domain sketch")
    assert len({(panel.x, panel.y) for panel in chart.panels}) == 1
    assert chart.panels[-1].x.label == "Cosine of gradients"
    assert len(points(chart)[0].x) == 20


def test_the_interval_of_rho_covers_the_truth() -> None:
    rng = np.random.default_rng(0)
    truth = 6 / np.pi * np.arcsin(0.5 / 2)  # Spearman's ρ of a normal pair with correlation 0.5
    covered = 0
    for _ in range(200):
        x = rng.normal(size=60)
        y = 0.5 * x + np.sqrt(0.75) * rng.normal(size=60)
        low, high = bound_rho(float(spearmanr(x, y).statistic), 60)
        covered += low <= truth <= high
    assert 0.9 <= covered / 200 <= 0.99


def test_the_claim_counts_the_pairs() -> None:
    assert "it does in 3 of 6 pairs of domains; d0 → d1 0.35 [" in state_claims(made.scores())[1]
