"""Effect of λ on the weights of a mixture."""

from __future__ import annotations

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.analysis.arrays import Floats
from fgmix.plots.looks import GREY, domain_looks, method_looks
from fgmix.report.charts import Axis, Chart, Line, Mark, Panel, Points, Words
from fgmix.report.figures.shared import ink


def weights(id: str, arrays: kinds.WeightEffect, command: str) -> Chart:
    """A panel for each vector a, and the toy example."""
    panels = []
    for a, a_tilde in zip(arrays.a, arrays.a_tilde):
        looks = domain_looks([str(i) for i in range(len(a))])
        lines = [
            Line(f"ã{i + 1}", arrays.lam, a_tilde[:, i], ink(look.colour), text=f"ã{i + 1}, a{i + 1} = {a[i]:g}")
            for i, look in enumerate(looks.values())
        ]
        zero = Line("", [arrays.lam[0], arrays.lam[-1]], [0, 0], GREY, dashed=True, width=1)
        panels.append(Panel(f"a = ({', '.join(f'{v:g}' for v in a)})", Axis("λ"), Axis("ã"), [zero, *lines]))
    caption = (
        "Losses of three samples with minima z and their steepest descent. A weight below zero extrapolates. Toy "
        "example: gradients of the samples in grey, updates in colour."
    )
    return Chart(
        id, "Gradients and the effect of λ", caption, [_surfaces(arrays), *panels, _toy(arrays)], command=command
    )


def _surfaces(arrays: kinds.WeightEffect) -> Panel:
    """Level lines of three losses, and the steepest descent from the origin."""
    marks: list[Mark] = []
    turn = np.linspace(0, 2 * np.pi, 49)
    looks = domain_looks([str(i) for i in range(len(arrays.surfaces))])
    for i, (look, minimum) in enumerate(zip(looks.values(), arrays.surfaces), start=1):
        for level in (0.1, 0.3, 0.6, 1.0):
            radius = np.sqrt(2 * level)
            x, y = minimum[0] + radius * np.cos(turn), minimum[1] + radius * np.sin(turn)
            marks.append(Line("", x, y, ink(look.colour), width=0.8, text=f"loss {level:g} of sample {i}"))
        marks.append(Line("", [0.0, minimum[0]], [0.0, minimum[1]], ink(look.colour), width=2.5, text=f"−g{i}"))
    marks.append(
        Words(arrays.surfaces[:, 0], arrays.surfaces[:, 1], [f"z{i + 1}" for i in range(len(arrays.surfaces))])
    )
    return Panel("Losses of three samples and their gradients", Axis(ticks=()), Axis(ticks=()), marks)


def _toy(arrays: kinds.WeightEffect) -> Panel:
    """Arrows from the origin: gradients of the samples, and the update of each method."""
    marks: list[Mark] = []

    def arrow(name: str, to: Floats, colour: str, text: str, width: float) -> None:
        marks.append(Line(name, [0.0, to[0]], [0.0, to[1]], colour, width=width, text=text))
        marks.append(Points(name, [to[0]], [to[1]], colour, "D", [text]))

    for i, (g, a) in enumerate(zip(arrays.gradients, arrays.weights), start=1):
        arrow("", g, GREY, f"g{i} = ({g[0]:.2f}, {g[1]:.2f}), a = {a:.2f}", 1.5)
    looks = method_looks(arrays.update_algorithms.tolist())
    for name, key, update in zip(map(str, arrays.update_names), arrays.update_algorithms.tolist(), arrays.updates):
        colour = ink(looks[key].colour)
        arrow(name, update, colour, f"{name}: ({update[0]:.2f}, {update[1]:.2f})", 2.5)
    return Panel(
        f"Toy example: {kinds.in_words(len(arrays.gradients))} gradients, three updates", Axis(""), Axis(""), marks
    )
