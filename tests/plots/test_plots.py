"""What figures show: axes, labels, artists. Their looks are for the eye."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fgmix.analysis.arrays import KINDS
from fgmix.analysis.arrays_file import load_arrays, save_arrays
from fgmix.plots.draw import draw
from fgmix.plots.looks import domain_looks, method_look, method_looks
from fgmix.plots.style import save_figure
from fgmix.plots.surface import loss_levels
from plots import made

POINTS = ("points", "panel", "domain", "label", "sample", "thumbnail", "extrapolates")


def pixels(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def note(figure: Figure) -> str:
    """The words below a figure."""
    return figure.get_supxlabel().replace("\n", " ")


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_every_kind_is_drawn() -> None:
    assert made.every().keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_drawn_again_from_its_file(kind: str, tmp_path: Path) -> None:
    arrays = made.every()[kind]
    before = dict(matplotlib.rcParams)
    save_arrays(tmp_path / "figure.npz", arrays)
    assert np.array_equal(pixels(draw(arrays)), pixels(draw(load_arrays(tmp_path / "figure.npz"))))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("kind", made.rows())
def test_rows_are_drawn_below_each_other_and_again_from_their_file(kind: str, tmp_path: Path) -> None:
    arrays = made.rows()[kind]
    save_arrays(tmp_path / "figure.npz", arrays)
    figure = draw(load_arrays(tmp_path / "figure.npz"))
    alone = len([ax for ax in draw(arrays.parts[0]).axes if ax.get_label() != "<colorbar>"])
    shown = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    assert len(shown) == 2 * alone
    assert sum(ax.get_ylabel().startswith("Test domain sketch") for ax in shown) == 2


def test_a_figure_is_saved_for_screen_and_paper_with_its_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fgmix.plots.style.DPI", 50)
    arrays = made.cost()
    png, pdf, npz = save_figure(draw(arrays), tmp_path / "new" / "v1.2", arrays)
    assert [path.name for path in (png, pdf, npz)] == ["v1.2.png", "v1.2.pdf", "v1.2.npz"]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")
    assert load_arrays(npz).value[2, 0] == 1.2


def test_neither_torch_nor_pyplot() -> None:
    code = "import sys, fgmix.plots.draw; print(sorted({'torch', 'matplotlib.pyplot'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_tsne() -> None:
    figure = draw(made.embedding())
    left, right = figure.axes
    assert left.get_title() == "Original codes"
    assert right.get_title() == "FGMix (25.0 % extrapolated)"  # of the four that are shown
    assert [len(points.get_offsets()) for points in left.collections] == [3, 3, 3]
    assert [len(points.get_offsets()) for points in right.collections] == [3, 3, 3, 3, 1]
    assert legend(figure) == ["art", "photo", "sketch (test)", "interpolated", "extrapolated"]
    assert "cat" in texts(left)  # the class, in the outline of its source codes
    assert len(left.lines) == 1
    assert "weights is below 0" in note(figure)
    assert "In training it was 6.2 % over the steps" in note(draw(replace(made.embedding(), trained_share=0.062)))


def test_without_mixed_codes_nothing_is_said_of_them() -> None:
    arrays = made.embedding()
    own = arrays.panel == 0
    bare = replace(arrays, panels=arrays.panels[:1], **{name: getattr(arrays, name)[own] for name in POINTS})
    assert "mixed" not in note(draw(bare))


def test_flatness() -> None:
    figure = draw(made.flatness())
    assert [len(ax.lines) for ax in figure.axes] == [5, 5, 2]  # four directions and their mean; then both means
    assert figure.axes[0].get_title() == "ERM\n(original)"
    assert figure.axes[1].get_title() == "FGMix\n(original + mixed)"
    assert len({ax.get_ylim() for ax in figure.axes}) == 1
    np.testing.assert_allclose(figure.axes[0].lines[-1].get_ydata(), 2.5 * np.arange(1, 11) ** 4 / 1e4)
    assert figure.axes[0].get_xlabel() == "Distance γ"
    assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())
    assert len(figure.axes[2].collections) == 2  # bands


def test_an_outlier_does_not_flatten_the_others() -> None:
    arrays = made.flatness()
    three = replace(
        arrays,
        methods=np.array(["ERM", "FGMix", "wild"]),
        algorithms=np.array(["erm", "fgmix", "wild"]),
        data=np.array(["original"] * 3),
        gaps=np.concatenate([arrays.gaps, 1000 * arrays.gaps[:1]]),
    )
    figure = draw(three)
    assert 4 < figure.axes[0].get_ylim()[1] < 20
    assert "cut: wild" in note(figure)
    assert "cut" not in note(draw(arrays))


def test_small_differences_take_out_a_power_of_ten() -> None:
    figure = draw(made.flatness(scale=1e-5))
    assert "10^{-5}" in figure.axes[0].get_ylabel()
    np.testing.assert_allclose(figure.axes[0].lines[-1].get_ydata(), 2.5 * np.arange(1, 11) ** 4 / 1e4)


def test_surface() -> None:
    figure = draw(made.surface())
    first, second, test = figure.axes[:3]
    assert [len(ax.lines) for ax in (first, second, test)] == [2, 2, 4]  # paths
    assert first.get_xlim() == second.get_xlim() == test.get_xlim()
    assert first.get_ylim() == second.get_ylim() == test.get_ylim()
    levels = [next(c for c in ax.collections if hasattr(c, "levels")).levels for ax in (first, second)]
    assert np.array_equal(*levels)
    maps = [next(c for c in ax.collections if hasattr(c, "levels")).get_cmap().name for ax in (first, test)]
    assert maps == ["magma", "cividis"]  # a loss does not look like an accuracy
    assert set(legend(figure)) == {
        *("Initial", "ERM + SWA", "FGMix + SWA"),
        *("ERM path", "ERM + SWA path", "FGMix path", "FGMix + SWA path"),
        "Highest test accuracy",
    }
    assert test.collections[-1].get_offsets().tolist() == [pytest.approx([1, 0])]


def test_levels_rise_also_over_a_flat_surface() -> None:
    for losses in (np.ones((2, 3, 3)), np.arange(18.0).reshape(2, 3, 3)):
        levels = loss_levels(losses)
        assert levels[0] == losses.min()
        assert (np.diff(levels) > 0).all()


@pytest.mark.parametrize(("pairs", "shown"), [(2, 2), (6, 6), (4, 4)])
def test_scores(pairs: int, shown: int) -> None:
    figure = draw(made.scores(pairs))
    drawn = [ax for ax in figure.axes if ax.collections]
    assert len(drawn) == shown
    assert drawn[0].get_title() == "d0 → d1\nρ = 0.35 [-0.12, 0.69]"
    assert figure.get_suptitle() == "Source domains of test domain sketch"
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in drawn}) == 1
    assert drawn[-1].get_xlabel() == "Cosine of gradients"
    assert len(drawn[0].collections[0].get_offsets()) == 20


def test_weights() -> None:
    figure = draw(made.weight_effect())
    surfaces, first, second, toy = figure.axes
    assert surfaces.get_title() == "(a) Losses of three samples and their gradients"
    assert {"$z_1$", "$-g_3$", "φ"} <= set(texts(surfaces))
    assert first.get_title() == "(b) a = (0.1, 0.6, 0.3)"
    assert first.get_ylim() == second.get_ylim()
    np.testing.assert_allclose(first.lines[0].get_ydata()[-1], 2 * 0.1 - 1 / 3)
    assert "$g_1$\na = 0.70" in texts(toy)
    assert "two gradients" in toy.get_title()
    inside(figure)
    names = [text.get_text().split(" (")[0] for text in toy.get_legend().get_texts()]
    assert names == ["FGMix", "AND-Mask", "ERM"]


def inside(figure: Figure) -> None:
    """Every text of a panel lies in its axes."""
    pixels(figure)
    for ax in figure.axes:
        for text in ax.texts:
            box = text.get_window_extent()
            assert ax.bbox.padded(2).contains(box.x0, box.y0), text
            assert ax.bbox.padded(2).contains(box.x1, box.y1), text


def test_curves_of_a_mixing_run() -> None:
    arrays = made.curves()
    arrays.metric_values[arrays.metrics == "λ", 0] = np.nan  # before mixing starts
    figure = draw(arrays)
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels[:3] == ["Holdout accuracy (%)", "Holdout loss", "Training terms"]
    assert labels[3:7] == ["Entropy of the weights a", "Extrapolated share", "L_flat", "λ"]
    assert [len(ax.lines) for ax in figure.axes] == [6, 6, 2, 1, 1, 1, 1, 0, 0]
    assert np.isnan(figure.axes[6].lines[0].get_ydata()[0])
    assert "sketch (test), SWA" in legend(figure)


def test_curves_of_another_run() -> None:
    figure = draw(made.curves(mixes=False))
    assert [len(ax.lines) for ax in figure.axes] == [6, 6, 1]


def test_sensitivity() -> None:
    ax = draw(made.sensitivity()).axes[0]
    assert texts(ax) == ["47.9", "48.2", "–", "49.2"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("α", "λ₀")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.03", "0.1"]


def test_accuracies_are_rounded_as_in_tables() -> None:
    arrays = made.sensitivity()
    arrays.value[0] = [6.25, 62.746]
    assert texts(draw(arrays).axes[0])[:2] == ["6.2", "62.7"]


def test_ablation_is_dots_with_their_spread() -> None:
    figure = draw(made.ablation())
    art, average = figure.axes
    assert (art.get_title(), average.get_title()) == ("art", "Avg")
    assert not art.patches
    erm, fgmix, paper = art.containers
    assert [text.get_text() for text in art.get_yticklabels()] == ["ERM", "FGMix", "FGMix (paper)"]
    assert erm.lines[0].get_xydata().tolist() == [[50, 0]]
    assert [segment[:, 0].tolist() for segment in erm.lines[2][0].get_segments()] == [[49, 51]]
    assert np.isnan(fgmix.lines[0].get_xdata()[0])
    assert paper.lines[0].get_markerfacecolor() == "white"
    assert np.ptp(art.get_xlim()) == pytest.approx(np.ptp(average.get_xlim()))  # differences can be compared
    assert note(figure).startswith("Lines: ± standard error, 3 trials. ")
    assert note(figure).endswith("Hollow: the paper.")


def test_cost_has_each_value_beside_its_mark() -> None:
    ax = draw(made.cost()).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ERM", "FGMix", "Fish"]
    assert [bar.get_width() for bar in ax.patches] == [1, 1.2, 3]
    shown = [(text.get_text(), text.xy[0]) for text in ax.texts]
    assert shown == [("1.00", 1), ("1.20", 1.2), ("3.00", 3), ("1.00", 1), ("1.10", 1.1)]
    assert len({bar.get_facecolor() for bar in ax.patches}) == 1  # "measured here", whatever the method


def test_cd() -> None:
    ax = draw(made.ranks()).axes[0]
    shown = texts(ax)
    for name in ("FGMix + SWA (1.20)", "FGMix (2.00)", "CORAL (3.10)", "ERM (3.70)", "CD = 1.80"):
        assert name in [text.strip() for text in shown]
    bars = [line for line in ax.lines if line.get_linewidth() == 3]
    assert len(bars) == 2
    low, high = bars[1].get_xdata()
    assert low < 2.0 < 3.7 < high
    assert "p < 0.001" in ax.get_title()


def test_shift() -> None:
    figure = draw(made.shift())
    left, right = figure.axes[:2]
    assert "0.90" in texts(left)
    assert "0.400\np = 0.002" in texts(right)
    assert "0.200\np = 0.030" in texts(right)
    assert len(texts(left)) == 6  # a domain is not compared with itself
    assert "sketch (test)" in [label.get_text() for label in left.get_yticklabels()]


def test_a_domain_has_its_colour_in_every_figure() -> None:
    expected = domain_looks(made.DOMAINS.tolist())["photo"].colour
    points = draw(made.embedding()).axes[0].collections[1].get_facecolor()[0]
    line = draw(made.curves()).axes[0].lines[2].get_color()
    assert to_hex(points).lower() == to_hex(line).lower() == expected.lower()


def test_a_method_has_its_colour_in_every_figure() -> None:
    expected = to_hex(method_look("fgmix").colour)
    found: list[Any] = [
        draw(made.flatness()).axes[1].lines[-1].get_color(),
        draw(made.ablation()).axes[0].containers[1].lines[0].get_color(),
        draw(made.surface()).axes[1].lines[0].get_color(),
    ]
    assert {to_hex(colour) for colour in found} == {expected}


def test_methods_of_one_figure_look_different_and_keep_their_colours() -> None:
    """No list of methods: any forty keys, of plug-ins too, differ from each other; a key has one colour everywhere."""
    keys = ["erm", "fgmix", *(f"fgmix_{variant}" for variant in "abcdef"), *(f"my_method_{i}" for i in range(32))]
    looks = method_looks(keys)
    assert len(set(looks.values())) == len(keys)
    assert {key: look.colour for key, look in looks.items()} == {key: method_look(key).colour for key in keys}
    assert method_looks(reversed(keys)) == looks


def test_arms_of_a_method_differ_in_their_markers_and_its_folders_look_alike() -> None:
    looks = method_looks(["fgmix", "fgmix (γ = 10)", "fgmix @ DomainBed: x", "fgmix (γ = 10) @ y"])
    assert {look.colour for look in looks.values()} == {method_look("fgmix").colour}
    assert looks["fgmix"] == looks["fgmix @ DomainBed: x"] == method_look("fgmix")
    assert looks["fgmix (γ = 10)"] == looks["fgmix (γ = 10) @ y"]
    assert looks["fgmix"].marker != looks["fgmix (γ = 10)"].marker


def test_more_methods_than_looks_are_still_drawn() -> None:
    assert len(method_looks(f"m{i}" for i in range(500))) == 500
