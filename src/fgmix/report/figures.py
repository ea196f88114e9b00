"""Arrays of any figure as a chart of the page; the same names, colours and markers as on paper."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.analysis.arrays import Floats
from fgmix.benchmark.statistics import Comparison
from fgmix.plots.looks import GREY, domain_looks, method_look
from fgmix.report.charts import Axis, Cells, Chart, Line, Mark, Panel, Pictures, Points

INK = "ink"  # the text's colour: black on paper, light on a dark screen
NO_AXIS = Axis(ticks=())
PICTURES_A_ROW = 32


def chart(id: str, arrays: Any, command: str = "") -> Chart:
    """The chart of arrays of any kind.

    Args:
        id: for links to it.
        arrays: one of `fgmix.analysis.arrays.KINDS`.
        command: the command that draws the same for a paper.
    """
    return _CHARTS[type(arrays)](id, arrays, command)


def differences(id: str, comparisons: Sequence[Comparison], labels: Sequence[str]) -> Chart:
    """Differences from the baseline with their intervals; what cannot be told from it is pale."""
    known = [(label, c, c.difference) for label, c in zip(labels, comparisons) if c.difference is not None]
    marks: list[Mark] = []
    for place, (label, c, mean) in enumerate(known):
        look = method_look(label)
        low, high = c.interval or (mean, mean)
        sure = "" if c.distinguishable else "; cannot be told from ERM"
        text = f"{label}: {mean:+.2f} points [{low:+.2f}, {high:+.2f}], {c.pairs} pairs{sure}"
        colour = _ink(look.colour) if c.distinguishable else GREY
        marks.append(Line("", [low, high], [place, place], colour, width=2, text=text))
        marks.append(Points("", [mean], [place], colour, look.marker, [text]))
    rows = _names([label for label, _, _ in known], flipped=True)
    zero = Line("", [0, 0], [-0.5, len(known) - 0.5], GREY, dashed=True, width=1)
    x = Axis("Difference from ERM (percentage points)")
    caption = (
        "Mean difference and its 95 % bootstrap interval over trials and test domains. Grey: cannot be told from ERM "
        "(Wilcoxon, Holm)."
    )
    return Chart(id, "Differences from ERM", caption, [Panel("", x, rows, [zero, *marks])])


def _embedding(id: str, arrays: kinds.Embedding, command: str) -> Chart:
    panels = [
        Panel(_panel_title(arrays, i), NO_AXIS, NO_AXIS, _embedded(arrays, arrays.panel == i))
        for i in range(len(arrays.panels))
    ]
    caption = (
        "t-SNE of latent codes: near is alike, distances between groups mean little. Hover over a point to see what it "
        "is; the same instance lights up in every panel."
    )
    return Chart(id, "Latent codes", caption, panels, pictures(arrays.thumbnails), command)


def _panel_title(arrays: kinds.Embedding, i: int) -> str:
    share = arrays.extrapolated[i]
    return str(arrays.panels[i]) + ("" if np.isnan(share) else f" ({100 * share:.1f} % extrapolated)")


def _embedded(arrays: kinds.Embedding, here: Any) -> list[Mark]:
    mixed = here & (arrays.domain < 0)
    keys = arrays.thumbnail if len(arrays.thumbnail) else np.full(len(arrays.points), -1)
    marks: list[Mark] = []

    def add(name: str, at: Any, what: Callable[[int], str], colour: str, marker: str, faint: bool) -> None:
        where = np.flatnonzero(at)
        x, y = arrays.points[where].T
        marks.append(Points(name, x, y, colour, marker, [what(int(i)) for i in where], keys[where], faint))

    for d, (name, look) in enumerate(domain_looks(arrays.domains.tolist()).items()):
        test = bool(arrays.is_test[d])
        label = f"{name} (test)" if test else name

        def what(i: int, label: str = label) -> str:
            return f"{arrays.classes[arrays.label[i]]}, {label}, instance {arrays.instance[i]}"

        add(label, here & (arrays.domain == d), what, _ink(look.colour), look.marker, bool(mixed.any()) and not test)
    if mixed.any():
        add("mixed", mixed, lambda i: f"mixed code of class {arrays.classes[arrays.label[i]]}", INK, "x", False)
    return marks


def pictures(thumbnails: Any) -> Pictures | None:
    """All thumbnails (n, s, s, 3) as one PNG; None for none."""
    from PIL import Image

    if not len(thumbnails):
        return None
    n, side = thumbnails.shape[:2]
    rows = -(-n // PICTURES_A_ROW)
    sheet = np.zeros((rows * PICTURES_A_ROW, side, side, 3), dtype=np.uint8)
    sheet[:n] = thumbnails
    sheet = sheet.reshape(rows, PICTURES_A_ROW, side, side, 3).swapaxes(1, 2)
    file = io.BytesIO()
    Image.fromarray(sheet.reshape(rows * side, PICTURES_A_ROW * side, 3)).save(file, "png", optimize=True)
    return Pictures(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}", side, PICTURES_A_ROW)


def _flatness(id: str, arrays: kinds.Flatness, command: str) -> Chart:
    x = Axis("Distance γ" + (" (% of each filter's norm)" if arrays.scope == "network" else ""))
    y = Axis("(L(φ*) − L(φ′))²", low=0.0, high=float(arrays.gaps.max()) or 1.0)  # one scale: compared by eye
    panels = []
    together: list[Mark] = []
    for method, data, gaps in zip(map(str, arrays.methods), arrays.data, arrays.gaps):
        look = method_look(method)
        grey = [Line("", arrays.gammas, gap, GREY, width=0.5, text=f"direction {i}") for i, gap in enumerate(gaps)]
        mean = Line("", arrays.gammas, gaps.mean(0), _ink(look.colour), width=3, text=f"mean of {len(gaps)}")
        panels.append(Panel(f"{method} ({data})", x, y, [*grey, mean]))
        together += _with_points(method, arrays.gammas, gaps.mean(0), _ink(look.colour), look.marker)
    panels.append(Panel("Means", x, Axis(y.label, low=0.0), together))
    caption = (
        f"{arrays.scope.capitalize()}; {arrays.gaps.shape[1]} random directions in grey, their mean in colour. Lower "
        "is flatter."
    )
    return Chart(id, f"Flatness, test domain {arrays.test_domains}", caption, panels, command=command)


def _with_points(
    name: str,
    x: Any,
    y: Any,
    colour: str,
    marker: str,
    dashed: bool = False,
    width: float = 1.5,
    *,
    legend: bool = True,
) -> list[Mark]:
    """A line whose points can be hovered over."""
    texts = [f"{name}: {b:.4g} at {a:g}" for a, b in zip(x, y)]
    shown = name if legend else ""
    return [Line(shown, x, y, colour, dashed, width), Points(shown, x, y, colour, marker, texts)]


def _surface(id: str, arrays: kinds.Surface, command: str) -> Chart:
    losses = arrays.values[:-1]
    low, high = float(np.nanmin(losses)), float(np.nanquantile(losses, 0.75))
    panels = []
    for i, title in enumerate(map(str, arrays.panels)):
        value = arrays.values[i]
        last = i == len(arrays.panels) - 1
        bottom, top = (float(np.nanmin(value)), float(np.nanmax(value))) if last else (low, high)
        cells = Cells(
            arrays.u,
            arrays.v,
            value,
            [[f"{v:.4g}" for v in row] for row in value],
            bottom,
            top if top > bottom else bottom + 1e-6,
            power=1.0 if last else 2 / 3,  # losses: finer towards the minimum
            label="Test accuracy (%)" if last else "Train loss",
        )
        panels.append(Panel(title, Axis("û"), Axis("v̂"), [cells, *_paths(arrays, i), *_anchors(arrays)]))
    caption = "The plane through three models; paths of training projected on it, averaged weights solid."
    return Chart(id, f"Loss surface, test domain {arrays.test_domains}", caption, panels, command=command)


def _paths(arrays: kinds.Surface, panel: int) -> list[Mark]:
    marks: list[Mark] = []
    for p, label in enumerate(map(str, arrays.paths)):
        if arrays.path_panels[p, panel]:
            at = arrays.path == p
            x, y = arrays.path_points[at].T
            look = method_look(label)
            texts = [f"{label}, step {step}" for step in arrays.path_steps[at]]
            colour = _ink(look.colour)
            marks += [
                Line(label, x, y, "paper", width=5),  # a rim: seen on light and on dark cells
                Line(label, x, y, colour, dashed=" + " not in label, width=2),
                Points(label, x, y, colour, look.marker, texts),
            ]
    return marks


def _anchors(arrays: kinds.Surface) -> list[Mark]:
    return [
        Points(f"{label} model", [x], [y], "#ffffff", marker, [str(label)], outlined=True)
        for label, marker, (x, y) in zip(arrays.anchors, "osD", arrays.anchor_points)
    ]


def _scores(id: str, arrays: kinds.Scores, command: str) -> Chart:
    colour = method_look("FGMix").colour
    panels = [
        Panel(
            f"{pair}, ρ = {rho:.2f}",
            Axis(f"Cosine of {arrays.inputs}"),
            Axis("A_ω"),
            [Points("", cosine, score, colour, "o", [f"cosine {c:.3f}, A_ω {s:.3f}" for c, s in zip(cosine, score)])],
        )
        for pair, rho, cosine, score in zip(arrays.pairs, arrays.rho, arrays.cosine, arrays.score)
    ]
    caption = "Learned compatibility against the cosine, for pairs of instances of two domains; ρ is Spearman's."
    return Chart(id, "Compatibility and cosine", caption, panels, command=command)


def _weights(id: str, arrays: kinds.WeightEffect, command: str) -> Chart:
    panels = []
    for a, a_tilde in zip(arrays.a, arrays.a_tilde):
        looks = domain_looks([str(i) for i in range(len(a))])
        lines = [
            Line(f"ã{i + 1}", arrays.lam, a_tilde[:, i], _ink(look.colour), text=f"ã{i + 1}, a{i + 1} = {a[i]:g}")
            for i, look in enumerate(looks.values())
        ]
        zero = Line("", [arrays.lam[0], arrays.lam[-1]], [0, 0], GREY, dashed=True, width=1)
        panels.append(Panel(f"a = ({', '.join(f'{v:g}' for v in a)})", Axis("λ"), Axis("ã"), [zero, *lines]))
    caption = "Below zero a weight extrapolates. Toy: gradients of three instances in grey, updates in colour."
    return Chart(id, "Effect of λ", caption, [*panels, _toy(arrays)], command=command)


def _toy(arrays: kinds.WeightEffect) -> Panel:
    """Arrows from the origin: the instances' gradients, and what each method makes of them."""
    marks: list[Mark] = []

    def arrow(name: str, to: Floats, colour: str, text: str, width: float) -> None:
        marks.append(Line(name, [0.0, to[0]], [0.0, to[1]], colour, width=width, text=text))
        marks.append(Points(name, [to[0]], [to[1]], colour, "D", [text]))

    for i, (g, a) in enumerate(zip(arrays.gradients, arrays.weights), start=1):
        arrow("", g, GREY, f"g{i} = ({g[0]:.2f}, {g[1]:.2f}), a = {a:.2f}", 1.5)
    for name, update in zip(map(str, arrays.update_names), arrays.updates):
        colour = _ink(method_look(name).colour)
        arrow(name, update, colour, f"{name}: ({update[0]:.2f}, {update[1]:.2f})", 2.5)
    return Panel("Toy: gradients and updates", Axis(""), Axis(""), marks)


def _curves(id: str, arrays: kinds.Curves, command: str) -> Chart:
    step = Axis("Step")
    panels = [Panel("Holdout accuracy", step, Axis("%"), _by_domain(arrays, arrays.accuracy))]
    if np.isfinite(arrays.loss).any():  # DomainBed's records hold none
        panels.append(Panel("Holdout loss", step, Axis(""), _by_domain(arrays, arrays.loss)))
    for name, values in zip(map(str, arrays.metrics), arrays.metric_values):
        panels.append(Panel(name, step, Axis(""), _with_points(name, arrays.steps, values, INK, "o", legend=False)))
    caption = (
        "Thick: the test domain. Dashed: averaged weights. The method's own numbers are means since the evaluation "
        "before."
    )
    return Chart(id, arrays.title, caption, panels, command=command)


def _by_domain(arrays: kinds.Curves, values: Floats) -> list[Mark]:
    marks: list[Mark] = []
    for d, (domain, look) in enumerate(domain_looks(arrays.domains.tolist()).items()):
        for m, model in enumerate(map(str, arrays.models)):
            test = bool(arrays.is_test[d])
            name = domain + (" (test)" if test else "") + ("" if model == "raw" else f", {model.upper()}")
            width = 2.5 if test else 1.2
            marks += _with_points(
                name, arrays.steps, values[m, d], _ink(look.colour), look.marker, model != "raw", width
            )
    return marks


def _sensitivity(id: str, arrays: kinds.Sensitivity, command: str) -> Chart:
    name, _, _ = str(arrays.columns[0]).partition(" = ")
    heads = [str(column).removeprefix(f"{name} = ") for column in arrays.columns]
    text = [
        [f"{arrays.corner} = {row}, {column}: {_with_spread(v, s)}" for column, v, s in zip(arrays.columns, *numbers)]
        for row, *numbers in zip(arrays.rows, arrays.value, arrays.spread)
    ]
    shown = [["–" if np.isnan(v) else f"{v:.1f}" for v in row] for row in arrays.value]
    cells = _grid(arrays.value, text, float(np.nanmin(arrays.value)), float(np.nanmax(arrays.value)), shown)
    x, y = _names(heads, name), _names([str(row) for row in arrays.rows], arrays.corner, flipped=True)
    return Chart(id, arrays.title, "Accuracy in percent.", [Panel("", x, y, [cells])], command=command)


def _grid(
    value: Floats, text: Sequence[Sequence[str]], low: float, high: float, written: Sequence[Sequence[str]]
) -> Cells:
    rows, columns = value.shape
    return Cells(range(columns), range(rows), value, text, low, max(high, low + 1e-6), written=written)


def _names(names: Sequence[str], label: str = "", *, flipped: bool = False) -> Axis:
    """An axis of things."""
    return Axis(label, tuple((float(i), name) for i, name in enumerate(names)), -0.5, len(names) - 0.5, flipped)


def _with_spread(value: float, spread: float) -> str:
    return f"{value:.1f}" + ("" if np.isnan(spread) else f" ± {spread:.1f}")


def _ablation(id: str, arrays: kinds.Ablation, command: str) -> Chart:
    """A place for each column, methods side by side within it, with their spreads."""
    marks: list[Mark] = []
    rows, columns = arrays.value.shape
    for r, label in enumerate(map(str, arrays.rows)):
        look = method_look(label)
        places = np.arange(columns) + 0.7 * ((r + 0.5) / rows - 0.5)
        texts = [
            f"{label}, {column}: {_with_spread(*pair)}"
            for column, *pair in zip(arrays.columns, arrays.value[r], arrays.spread[r])
        ]
        for place, value, spread in zip(places, arrays.value[r], arrays.spread[r]):
            if np.isfinite(spread):
                marks.append(Line(label, [place, place], [value - spread, value + spread], _ink(look.colour), width=1))
        marks.append(
            Points(
                label, places, arrays.value[r], _ink(look.colour), look.marker, texts, faint=label.endswith("(paper)")
            )
        )
    panel = Panel("", _names([str(column) for column in arrays.columns]), Axis("Accuracy (%)"), marks)
    return Chart(id, f"Ablation: {arrays.title}", "Lines are ± as in the table.", [panel], command=command)


def _cost(id: str, arrays: kinds.Cost, command: str) -> Chart:
    order = np.argsort(arrays.value[:, 0], kind="stable")
    marks: list[Mark] = []
    labels = [str(label) for label in arrays.rows[order]]
    for place, (label, (ours, theirs)) in enumerate(zip(labels, arrays.value[order])):
        look = method_look(label)
        text = f"{label}: {ours:.2f} of ERM's step" + ("" if np.isnan(theirs) else f"; paper {theirs:.2f}")
        marks.append(Line("", [0, ours], [place, place], _ink(look.colour), width=8, text=text))
        if np.isfinite(theirs):
            marks.append(Points("paper", [theirs], [place], INK, "D", [text]))
    x = Axis(arrays.title, low=0.0)
    return Chart(
        id,
        "Cost",
        "Bars: ours. Diamonds: the paper's.",
        [Panel("", x, _names(labels, flipped=True), marks)],
        command=command,
    )


def _ranks(id: str, arrays: kinds.Ranks, command: str) -> Chart:
    """Ranks as points, a row each; bars join what cannot be told apart."""
    labels = [str(method) for method in arrays.methods]
    marks: list[Mark] = []
    for place, (label, rank) in enumerate(zip(labels, arrays.ranks)):
        look = method_look(label)
        marks.append(Points("", [rank], [place], _ink(look.colour), look.marker, [f"{label}: average rank {rank:.2f}"]))
    top = -0.4
    for b, (first, last) in enumerate(arrays.cliques):
        top = -0.6 - 0.5 * b
        text = f"cannot be told apart: {', '.join(labels[first : last + 1])}"
        marks.append(Line("", [arrays.ranks[first], arrays.ranks[last]], [top, top], INK, width=4, text=text))
    names = tuple((float(i), name) for i, name in enumerate(labels))
    y = Axis("", names, top - 0.4, len(labels) - 0.4, flipped=True)
    p = "< 0.001" if arrays.p < 0.001 else f"= {arrays.p:.3f}"
    caption = (
        f"Average rank over {arrays.pairs} trials and test domains, the best on the left (Friedman p {p}). Bars join "
        f"methods whose ranks differ by less than {arrays.critical_difference:.2f} (Nemenyi)."
    )
    return Chart(id, "Ranks", caption, [Panel("", Axis("Average rank"), y, marks)], command=command)


def _shift(id: str, arrays: kinds.Shift, command: str) -> Chart:
    names = [f"{name} (test)" if test else str(name) for name, test in zip(arrays.domains, arrays.is_test)]
    x, y = _names(names), _names(names, flipped=True)
    accuracy = _pairwise(names, arrays.accuracy, (0.5, 1.0), lambda i, j: f"{arrays.accuracy[i, j]:.2f}")
    with_p = _pairwise(
        names,
        arrays.mmd,
        (0.0, float(arrays.mmd.max())),
        lambda i, j: f"{arrays.mmd[i, j]:.3f}\np {_p_text(float(arrays.p[i, j]))}",
    )
    panels = [
        Panel("Domain classifier's accuracy (0.5: chance)", x, y, [accuracy]),
        Panel("MMD² and its permutation p", x, y, [with_p]),
    ]
    caption = (
        f"{arrays.title}: the right one of {len(names)} domains is named in {100 * arrays.overall:.0f} % "
        f"(chance {100 / len(names):.0f} %). Without a shift the accuracy is near 0.5; MMD² of two samples of one law "
        "is above 0 by chance, the more the fewer they are: its p says whether it is more than that."
    )
    return Chart(id, "Shift between domains", caption, panels, command=command)


def _pairwise(
    names: Sequence[str], value: Floats, scale: tuple[float, float], text: Callable[[int, int], str]
) -> Cells:
    """A heat map of pairs of domains; a domain with itself is left empty."""
    k = range(len(names))
    written = [["" if i == j else text(i, j) for j in k] for i in k]
    hovered = [[f"{names[i]} and {names[j]}: {text(i, j)}".replace("\n", ", ") for j in k] for i in k]
    return _grid(np.where(np.eye(len(names), dtype=bool), np.nan, value), hovered, *scale, written)


def _p_text(p: float) -> str:
    return "< 0.01" if p < 0.01 else f"= {p:.2f}"


def _ink(colour: str) -> str:
    """Black is the text's colour, so that it can be seen on a dark screen."""
    return INK if colour == "#000000" else colour


_CHARTS: dict[type, Callable[[str, Any, str], Chart]] = {
    kinds.Embedding: _embedding,
    kinds.Flatness: _flatness,
    kinds.Surface: _surface,
    kinds.Scores: _scores,
    kinds.WeightEffect: _weights,
    kinds.Curves: _curves,
    kinds.Sensitivity: _sensitivity,
    kinds.Ablation: _ablation,
    kinds.Cost: _cost,
    kinds.Ranks: _ranks,
    kinds.Shift: _shift,
}
