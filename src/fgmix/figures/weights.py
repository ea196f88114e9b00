"""Weights: gradients of three samples, the effect of λ on ã, and the paper's toy example."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fgmix.figures.arrays import Floats, Texts
from fgmix.figures.description import INK, Axis, Band, Chart, Line, Mark, Panel, Points, Words
from fgmix.figures.looks import GREY, assign_domain_looks, list_looks

DIGITS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, eq=False)
class WeightEffect:
    """Effect of λ on mixing weights, and the paper's toy example."""

    lam: Floats  # values of λ (l,)
    a: Floats  # weight vectors (w, k)
    a_tilde: Floats  # ã (w, l, k)
    gradients: Floats  # of the toy's samples (m, 2)
    weights: Floats  # their mixing weights a (m,)
    surfaces: Floats  # minima of three quadratic losses in the plane of the paper's panel (a) (3, 2)
    updates: Floats  # the update of each algorithm (3, 2)
    update_names: Texts  # labels of these algorithms (3,)
    update_algorithms: Texts  # keys of these algorithms (3,)


def describe_weights(arrays: WeightEffect) -> Chart:
    """Describe losses of three samples and their gradients, a panel for each vector a, then the toy example."""
    caption = (
        "Losses of three samples with minima z and their steepest descent. A weight below zero extrapolates. Toy "
        "example: gradients of the samples in grey, updates in colour."
    )
    panels = [_describe_surfaces(arrays), *_describe_effects(arrays), _describe_toy(arrays)]
    return Chart("Gradients and the effect of λ", caption, panels)


def _index(name: str, i: int) -> str:
    """Write a symbol with its index, counted from 1: g₁ for 0."""
    return name + str(i + 1).translate(DIGITS)


def _draw_arrow(name: str, to: Floats, colour: str, width: float, text: str) -> Line:
    """Describe an arrow from the origin, whose head is part of the line."""
    back = -0.18 * to / np.hypot(*to)
    across = 0.45 * np.array([-back[1], back[0]])
    path = np.array([(0.0, 0.0), to, to + back + across, to, to + back - across])
    return Line(name, path[:, 0], path[:, 1], colour, width=width, text=text)


def _describe_surfaces(arrays: WeightEffect) -> Panel:
    """Describe level lines of three losses, and the steepest descent from φ = 0."""
    marks: list[Mark] = []
    turn = np.linspace(0, 2 * np.pi, 49)
    looks = assign_domain_looks([str(i) for i in range(len(arrays.surfaces))])
    for i, (look, minimum) in enumerate(zip(looks.values(), arrays.surfaces)):
        colour, symbol = look.ink, f"−{_index('g', i)}"
        for level in (0.1, 0.3, 0.6, 1.0):
            radius = np.sqrt(2 * level)
            x, y = minimum[0] + radius * np.cos(turn), minimum[1] + radius * np.sin(turn)
            marks.append(Line("", x, y, colour, width=0.8, text=f"loss {level:g} of sample {i + 1}"))
        marks.append(_draw_arrow("", 0.8 * minimum, colour, 2.5, symbol))
        aside = 0.28 * np.array([-minimum[1], minimum[0]]) / np.hypot(*minimum)  # to the left of the arrow
        (x_g, y_g), (x_z, y_z) = 0.55 * minimum + aside, minimum
        marks.append(Words([x_z, x_g], [y_z, y_g], [_index("z", i), symbol], colour=colour))
    marks += [Points("", [0], [0], INK), Words([0], [-0.3], ["φ"])]
    x, y = Axis(ticks=(), low=-3.3, high=3.3), Axis(ticks=(), low=-1.1, high=3.1)
    return Panel("Losses of three samples and their gradients", x, y, marks, equal=True)


def _describe_effects(arrays: WeightEffect) -> list[Panel]:
    """Describe ã over λ for each vector a; below zero, which is shaded, a weight extrapolates."""
    margin = 0.05 * float(np.ptp(arrays.a_tilde))
    low, high = float(arrays.a_tilde.min()) - margin, float(arrays.a_tilde.max()) + margin
    ends = [float(arrays.lam[0]), float(arrays.lam[-1])]
    around: list[Mark] = [
        Band("", ends, [low, low], [0.0, 0.0], GREY),
        Words([ends[1]], [low + margin], ["extrapolation"], "end"),
        Line("", ends, [0, 0], GREY, dashed=True, width=1),
        Line("", [1, 1], [low, high], GREY, dashed=True, width=1),
    ]
    panels = []
    for a, a_tilde in zip(arrays.a, arrays.a_tilde):
        looks = assign_domain_looks([str(i) for i in range(len(a))]).values()
        names = [_index("ã", i) for i in range(len(a))]
        lines = [
            Line(name, arrays.lam, a_tilde[:, i], look.ink, text=f"{name}, {_index('a', i)} = {a[i]:g}")
            for i, (name, look) in enumerate(zip(names, looks))
        ]
        title = f"a = ({', '.join(f'{value:g}' for value in a)})"
        panels.append(Panel(title, Axis("λ"), Axis("ã", low=low, high=high), [*around, *lines]))
    return panels


def _describe_toy(arrays: WeightEffect) -> Panel:
    """Describe arrows from the origin: gradients of the samples, and the update of each algorithm."""
    x, y = Axis(low=-2.9, high=2.9), Axis(low=-2.0, high=2.0)
    marks: list[Mark] = [
        Line("", [-2.9, 2.9], [0, 0], GREY, width=0.6),
        Line("", [0, 0], [-2.0, 2.0], GREY, width=0.6),
    ]
    for i, (g, a) in enumerate(zip(arrays.gradients, arrays.weights)):
        symbol = _index("g", i)
        marks.append(_draw_arrow("", g, GREY, 1.5, f"{symbol} = ({g[0]:.2f}, {g[1]:.2f}), a = {a:.2f}"))
        place, anchor = g * 1.05 + (0, 0.18 if g[1] > 0 else -0.18), "start" if g[0] > 0 else "end"
        marks.append(Words([place[0]], [place[1]], [f"{symbol}, a = {a:.2f}"], anchor))
    updates = list(zip(map(str, arrays.update_names), list_looks(arrays.update_algorithms), arrays.updates))
    for name, look, update in sorted(updates, key=lambda each: -np.hypot(*each[2])):  # the shortest arrow on top
        text = f"{name} ({update[0]:.2f}, {update[1]:.2f})"
        marks.append(_draw_arrow(text, update, look.ink, 2.5, text))
    count = {2: "two", 3: "three", 4: "four", 5: "five"}.get(len(arrays.gradients), str(len(arrays.gradients)))
    return Panel(f"Toy example: {count} gradients, three updates", x, y, marks, equal=True)
