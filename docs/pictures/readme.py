"""Draw the first picture of the README from the records of the study on frozen features, for light and dark pages.

python docs/pictures/readme.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import fgmix
from fgmix.records.rows import label_row
from fgmix.results.statistics import Comparison

HERE = Path(__file__).resolve().parent
RECORDS = HERE.parent / "records" / "pacs-features.records.xz"
ROWS = 12  # what is readable at 800 pixels; FGMix and the methods with the highest means
LOOKS = {  # file → text, better, undecided, FGMix
    "readme.png": ("#1f2328", "#0072b2", "#8c959f", "#d55e00"),
    "readme-dark.png": ("#e6edf3", "#56b4e9", "#7d8590", "#e69f00"),
}


def main() -> None:
    """Compare every method with ERM, keep the highest, draw them twice."""
    selection = fgmix.select(fgmix.read_runs(RECORDS), "training_domain")
    ordered = sorted(fgmix.compare(selection), key=lambda each: -(each.difference or 0.0))
    others = [each for each in ordered if each.row.algorithm != "fgmix"][: ROWS - 1]
    shown = [each for each in reversed(ordered) if each in others or each.row.algorithm == "fgmix"]
    for name, colours in LOOKS.items():
        figure = draw({label_row(selection.labels, each.row): each for each in shown}, *colours)
        figure.savefig(HERE / name, dpi=200, transparent=True)


def draw(shown: dict[str, Comparison], text: str, better: str, rest: str, ours: str) -> plt.Figure:
    """Draw a row with mean and interval for each comparison, in colour where the corrected test finds a difference."""
    figure, axes = plt.subplots(figsize=(7.2, 3.1), layout="constrained")
    for y, each in enumerate(shown.values()):
        colour = ours if each.row.algorithm == "fgmix" else better if each.significant else rest
        axes.plot(each.interval or (), (y, y), color=colour, linewidth=2.5, solid_capstyle="butt")
        axes.plot(each.difference, y, "o", color=colour, markersize=6)
    axes.axvline(0, color=text, linewidth=1)
    axes.set_yticks(range(len(shown)), list(shown), fontsize=11, color=text)
    axes.set_xlabel("accuracy on the test domain minus ERM's (points), 95 % interval", fontsize=11, color=text)
    axes.tick_params(colors=text, length=0, labelsize=11)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(text)
    return figure


if __name__ == "__main__":
    main()
