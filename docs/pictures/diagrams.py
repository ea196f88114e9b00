"""Draw the diagrams of the docs as SVG files, for light and dark pages.

    python docs/pictures/diagrams.py

Each function below is one diagram; its numbers are pixels at the width of a page.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
FONT = 'font-family="system-ui, sans-serif"'
LIGHT = {"page": "#ffffff", "ink": "#1f2328", "faint": "#57606a", "line": "#8c959f"} | {
    "grey": "#eaeef2",
    "blue": "#cfe6f5",
    "orange": "#fbe3b8",
    "green": "#c9ecdf",
    "red": "#f7d9c6",
}
DARK = {"page": "#131416", "ink": "#e6edf3", "faint": "#c3cad2", "line": "#7d8590"} | {
    "grey": "#2a2f36",
    "blue": "#124a6b",
    "orange": "#6b4a06",
    "green": "#0b5a45",
    "red": "#6b3413",
}


class Drawing:
    """Boxes, texts and arrows; a text of several lines has line breaks."""

    def __init__(self, height: int, colours: dict[str, str]) -> None:
        self.height, self.colours = height, colours
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, colour: str, text: str = "", note: str = "") -> None:
        """A box with a text in its middle and a smaller note below the text."""
        fill, line = self.colours[colour], self.colours["line"]
        place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        self.parts.append(f'<rect {place} rx="5" fill="{fill}" stroke="{line}"/>')
        size = 18 * len(text.splitlines()) + 15 * len(note.splitlines())
        top = y + (height - size) / 2
        self.text(x + width / 2, top + 14, text)
        self.text(x + width / 2, top + 18 * len(text.splitlines()) + 11, note, small=True)

    def text(self, x: float, y: float, text: str, anchor: str = "middle", *, small: bool = False) -> None:
        """Lines of text; y is the base of the first."""
        size, step, colour = (12, 15, "faint") if small else (14, 18, "ink")
        for i, line in enumerate(text.splitlines()):
            place = f'x="{x}" y="{y + step * i}" text-anchor="{anchor}" font-size="{size}"'
            lowered = rf'<tspan dy="3" font-size="{size - 3}">\1</tspan><tspan dy="-3">\2</tspan>'  # A_ω: a subscript
            written = re.sub(r"_(\w+)([^_]*)", lowered, escape(line))
            self.parts.append(f'<text {place} fill="{self.colours[colour]}">{written}</text>')

    def shape(self, kind: str, colour: str, *, dashed: bool = False, **where: object) -> None:
        """A circle, an ellipse or a polygon."""
        place = " ".join(f'{name}="{value}"' for name, value in where.items())
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        look = f'fill="{self.colours[colour]}" stroke="{self.colours["line"]}"'
        self.parts.append(f"<{kind} {place} {look}{dash}/>")

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """An arrow along points."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        path = " ".join(f"{x},{y}" for x, y in points)
        look = f'fill="none" stroke="{self.colours["line"]}" stroke-width="1.5" marker-end="url(#head)"'
        self.parts.append(f'<polyline points="{path}" {look}{dash}/>')

    def to_svg(self, title: str) -> str:
        """The file."""
        head = f'<path d="M0,0 L8,4 L0,8 z" fill="{self.colours["line"]}"/>'
        size = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        marker = f'<marker id="head" {size} orient="auto">{head}</marker>'
        size = f'viewBox="0 0 760 {self.height}" width="760" height="{self.height}"'
        back = f'<rect width="760" height="{self.height}" rx="8" fill="{self.colours["page"]}"/>'
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT}>', f"<title>{escape(title)}</title>"]
        return "\n".join([*lines, f"<defs>{marker}</defs>", back, *self.parts, "</svg>", ""])


def draw_parts(colours: dict[str, str]) -> str:
    """Domains and their parts: what each is used for."""
    d = Drawing(286, colours)
    d.text(170, 26, "training part, 80 %", "start")
    d.text(598, 26, "holdout part, 20 %", "start")
    for i, name in enumerate(("art", "cartoon", "photo")):
        y = 40 + 44 * i
        d.text(156, y + 23, name, "end")
        d.box(170, y, 420, 36, "blue", "trained on")
        d.box(598, y, 150, 36, "orange", "validation")
    d.text(22, 99, "source\ndomains", "start", small=True)
    y = 188
    d.text(156, y + 23, "sketch", "end")
    d.text(22, y + 16, "test\ndomain", "start", small=True)
    d.box(170, y, 420, 36, "green", "the accuracy that is reported")
    d.box(598, y, 150, 36, "grey", "oracle rule only")
    note = """Validation selects the step and the hyper-parameters. Nothing of the test domain is
trained on or selects. Then another domain is the test domain, until each has been."""
    d.text(170, 250, note, "start", small=True)
    return d.to_svg("Domains and their parts")


def draw_protocol(colours: dict[str, str]) -> str:
    """A sweep: samples of the search × trials, one selected per trial, their mean in the table."""
    d = Drawing(330, colours)
    d.box(12, 60, 140, 84, "grey", "search", "20 hyper-parameter\nsamples; sample 0\nhas the defaults")
    d.box(12, 160, 140, 84, "grey", "trials", "3 times other\nsplits, seeds\nand samples")
    d.arrow((156, 150), (196, 150))
    d.text(306, 26, "runs of one method on one test domain")
    chosen = {0: 1, 1: 0, 2: 2}
    for trial in range(3):
        x = 200 + 74 * trial
        d.text(x + 33, 52, f"trial {trial}", small=True)
        for i, sample in enumerate(("sample 0", "sample 1", "sample 2", "…", "sample 19")):
            d.box(x, 60 + 38 * i, 66, 32, "orange" if chosen[trial] == i else "blue")
            d.text(x + 33, 81 + 38 * i, sample, small=True)
    d.arrow((418, 150), (440, 150))
    d.box(
        446,
        92,
        146,
        116,
        "orange",
        "selection",
        "of each trial, the\nsample and the step\nwith the highest\nvalidation accuracy",
    )
    d.arrow((596, 150), (618, 150))
    d.box(624, 106, 128, 88, "green", "table", "mean ± standard\nerror over trials;\nthen over domains")
    note = """Every test domain, method and dataset has its own grid. A trial has the same splits and batches
for all methods, so that differences are paired. Selection reads records only: other rules
(last evaluations, leave one out, oracle) need no new training."""
    d.text(380, 282, note, small=True)
    return d.to_svg("The protocol: search, trials, selection, table")


def draw_run(colours: dict[str, str]) -> str:
    """The life of a run, with the files of its folder."""
    d = Drawing(300, colours)
    d.box(8, 64, 126, 70, "grey", "spec", "options, settings,\nseeds")
    d.arrow((136, 99), (158, 99))
    d.box(164, 64, 124, 70, "blue", "steps", "one batch of each\nsource domain")
    d.arrow((292, 99), (312, 99))
    d.box(318, 64, 142, 70, "blue", "evaluation", "all domains, raw\nand averaged model")
    d.arrow((464, 99), (594, 99))
    d.text(528, 90, "after the last step", small=True)
    d.box(600, 64, 150, 70, "green", "record", "its presence means\nthat the run is done")
    d.arrow((389, 60), (389, 30), (226, 30), (226, 60))
    d.text(308, 22, "until the last step", small=True)
    for x, width, text, note in (
        (8, 126, "spec.json", "environment, data\nand code, too"),
        (164, 124, "checkpoint.pt", "replaced at once,\nnever half written"),
        (318, 142, "metrics.jsonl", "a line for each\nevaluation"),
        (600, 150, "record.json", "written last, all\nthat tables need"),
    ):
        d.arrow((x + width / 2, 138), (x + width / 2, 168))
        d.box(x, 174, width, 66, "grey", text, note)
    d.arrow((676, 244), (676, 264))
    d.text(676, 282, "tables and report")
    d.arrow((226, 244), (226, 264), (149, 264), (149, 118), (160, 118), dashed=True)
    note = "Interrupted? The same command resumes from the\ncheckpoint, and the record is bit-identical."
    d.text(240, 266, note, "start", small=True)
    return d.to_svg("The life of a run")


def draw_mixing(colours: dict[str, str]) -> str:
    """Where mixed codes of three samples lie, for random weights a and two values of λ."""
    d = Drawing(308, colours)
    random = Random(0)
    draws = [[random.expovariate(1) for _ in range(3)] for _ in range(60)]
    for middle, lam, title in ((190, 1, "λ = 1: interpolation"), (570, 2, "λ = 2: extrapolation, too")):
        z = ((middle - 70, 200), (middle - 10, 108), (middle + 62, 192))
        d.text(middle, 24, title)
        d.shape("ellipse", "page", dashed=True, cx=middle + 110, cy=92, rx=60, ry=36)
        d.text(middle + 110, 52, "an unseen domain", small=True)
        for dx, dy in ((72, 88), (96, 74), (112, 108), (136, 84), (150, 98)):
            d.text(middle + dx, dy + 5, "☆")
        d.shape("polygon", "grey", points=" ".join(f"{x},{y}" for x, y in z))
        for draw in draws:
            weights = [lam * each / sum(draw) - (lam - 1) / 3 for each in draw]
            x, y = (sum(weight * code[axis] for weight, code in zip(weights, z)) for axis in (0, 1))
            d.shape("circle", "red" if min(weights) < 0 else "blue", cx=round(x, 1), cy=round(y, 1), r=4)
        for i, (x, y) in enumerate(z):
            d.shape("circle", "green", cx=x, cy=y, r=13)
            d.text(x, y + 5, f"z{'₁₂₃'[i]}")
    note = """Codes z of three samples of one class, one from each source domain, and 60 mixed codes Σ ã_i z_i with random weights.
Where a weight ã_i is below 0 (red), the mixed code lies outside of the triangle, the region that the codes span."""
    d.text(380, 278, note, small=True)
    return d.to_svg("Interpolation and extrapolation")


def draw_fgmix(colours: dict[str, str]) -> str:
    """FGMix: codes of one class, their gradients, the policy's weights, the mixed code and the three losses."""
    d = Drawing(404, colours)
    d.text(8, 24, "one class, one\nsample per domain", "start", small=True)
    for i in range(3):
        y = 56 + 48 * i
        d.box(24, y, 72, 36, "grey", f"x{'₁₂₃'[i]}")
        d.arrow((98, y + 18), (120, y + 18))
        d.arrow((206, y + 18), (228, y + 18))
        d.box(234, y, 56, 36, "blue", f"z{'₁₂₃'[i]}")
    d.box(126, 56, 76, 132, "blue", "featurizer\ng_θ")
    d.text(262, 40, "codes", small=True)
    d.arrow((294, 122), (318, 122))
    d.box(324, 56, 90, 132, "blue", "classifier\nh_φ", "loss of each\ncode")
    d.arrow((418, 122), (442, 122))
    d.box(448, 56, 92, 132, "orange", "gradients\ng₁, g₂, g₃", "of the losses\nwith respect\nto φ")
    d.arrow((544, 122), (566, 122))
    weights = "s_i = Σ A_ω(g_i, g_j), j ≠ i\na = softmax(s)\nã_i = λ a_i − (λ − 1)/k"
    d.box(572, 56, 176, 132, "orange", "policy A_ω, λ", weights + "\n\nlarge λ: weights below 0,\nan extrapolated code")
    d.arrow((660, 192), (660, 230))
    d.text(670, 214, "ã", "start")
    d.arrow((262, 192), (262, 252), (566, 252))
    d.text(414, 244, "z₁, z₂, z₃", small=True)
    d.box(572, 234, 176, 40, "red", "z_mix = Σ ã_i z_i")
    d.box(24, 316, 216, 72, "blue", "θ, φ: base loss", "cross-entropy of the codes z\nand of the mixed codes z_mix")
    d.box(
        272,
        316,
        216,
        72,
        "orange",
        "ω, λ: flatness and realism",
        "L_flat: noise on φ hardly changes\nthe loss of z_mix; L_adv: fool d",
    )
    d.box(520, 316, 228, 72, "grey", "d: discriminator", "tells z_mix from samples\nof the prior N(μ, σ²)")
    d.arrow((660, 278), (660, 296), (634, 296), (634, 312))
    d.arrow((660, 278), (660, 296), (380, 296), (380, 312))
    d.arrow((660, 278), (660, 296), (132, 296), (132, 312))
    return d.to_svg("A step of FGMix")


DIAGRAMS = {"parts": draw_parts, "protocol": draw_protocol, "run": draw_run, "mixing": draw_mixing, "fgmix": draw_fgmix}
SCHEMES = {"": LIGHT, "-dark": DARK}  # by the end of the file's name


def main() -> None:
    """Write every diagram in both colour schemes."""
    for name, draw in DIAGRAMS.items():
        for end, colours in SCHEMES.items():
            (HERE / f"{name}{end}.svg").write_text(draw(colours))


if __name__ == "__main__":
    main()
