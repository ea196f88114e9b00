"""Effect of λ and the toy example, as they are drawn."""

from __future__ import annotations

import numpy as np

from fgmix.figures.kinds import describe
from figures import made
from figures.marks import lines, words


def test_losses_effects_and_the_toy_are_drawn() -> None:
    arrays = made.weight_effect()
    chart = describe(arrays)
    _, first, second, toy = chart.panels
    assert [panel.equal for panel in chart.panels] == [True, False, False, True]  # angles of arrows are true
    assert {"z₁", "−g₃", "φ"} <= set(words(chart, 0))
    assert first.title == "a = (0.1, 0.6, 0.3)"
    assert first.y == second.y
    np.testing.assert_allclose(next(line for line in lines(chart, 1) if line.name == "ã₁").y[-1], 2 * 0.1 - 1 / 3)
    assert "extrapolation" in words(chart, 1)
    assert "g₁, a = 0.70" in words(chart, 3)
    assert "two gradients" in toy.title
    arrows = {line.name: line for line in lines(chart, 3) if line.name}
    assert arrows.keys() == {"FGMix (-0.80, 0.00)", "AND-Mask (-1.50, 0.00)", "ERM (-1.50, -0.50)"}
    erm = arrows["ERM (-1.50, -0.50)"]
    assert (erm.x[1], erm.y[1]) == (-1.5, -0.5)


def test_every_text_and_arrow_lies_in_its_panel() -> None:
    for panel in describe(made.weight_effect()).panels:
        for mark in panel.marks:
            for axis, values in ((panel.x, mark.x), (panel.y, mark.y)):
                low, high = (-np.inf if axis.low is None else axis.low), (np.inf if axis.high is None else axis.high)
                assert low <= np.min(values), mark
                assert np.max(values) <= high, mark
