"""The renderer of papers: every mark of a description becomes an artist with its place and colour."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from copying import replace
from fgmix.errors import UserError
from fgmix.figures.description import Axis, Band, Cells, Chart, Line, Panel, Points, Words, list_names
from fgmix.figures.draw import Style, draw, render, save_figure
from fgmix.figures.kinds import KINDS, describe, load_arrays
from fgmix.results.rounding import typeset
from figures import made

PANEL = Panel("Title", Axis("x", low=0.0, high=1.0), Axis("y", low=0.0, high=2.0), [Line("", [0, 1], [0, 2], "ink")])


def get_legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def draw_panel(panel: Panel) -> Axes:
    (ax,) = draw(Chart("", "", [panel])).axes
    return ax


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_with_all_its_marks(kind: str) -> None:
    before = dict(matplotlib.rcParams)
    chart = describe(made.every()[kind])
    for ax, panel in zip(draw(chart).axes, chart.panels):
        title = re.sub(r"\$(.)_\{\\mathrm\{(.+?)\}\}\$", r"\1_\2", ax.get_title().replace("\n", " "))
        assert title == typeset(panel.title)
        assert len(ax.lines) == sum(isinstance(mark, Line | Points) for mark in panel.marks)
        count = sum(len(mark.text) for mark in panel.marks if isinstance(mark, Words))
        count += sum(len(row) for mark in panel.marks if isinstance(mark, Cells) for row in mark.written)
        assert len(ax.texts) == count
        assert len(ax.collections) >= sum(isinstance(mark, Band | Cells) for mark in panel.marks)
    assert dict(matplotlib.rcParams) == before


def test_only_symbols_are_set_as_formulas() -> None:
    titles = [draw_panel(replace(PANEL, title=title)).title for title in ("Norm of A_ω", "A_ω of $5, $6", "art_flat")]
    assert [title.get_parse_math() for title in titles] == [True, False, False]
    assert titles[0].get_text() == r"Norm of $A_{\mathrm{ω}}$"


def test_a_figure_is_saved_for_screen_and_paper_with_its_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fgmix.figures.draw.DPI", 30)
    arrays = made.sensitivity()
    figure = draw(describe(arrays))
    png, pdf, svg, npz = save_figure(figure, tmp_path / "new" / "v1.2", arrays)
    assert [path.name for path in (png, pdf, svg, npz)] == ["v1.2.png", "v1.2.pdf", "v1.2.svg", "v1.2.npz"]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")
    assert b"<svg" in svg.read_bytes()
    assert load_arrays(npz).value[1, 1] == 49.2
    assert render(figure, "svg") == svg.read_bytes()  # equal figures are equal files


def test_axes_have_their_limits_names_and_direction() -> None:
    ax = draw_panel(replace(PANEL, y=list_names(["a", "$b"], "names", flipped=True)))
    assert ax.get_xlim() == (0, 1)
    assert ax.get_ylim() == (1.5, -0.5)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "names")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "$b"]
    assert not ax.get_yticklabels()[1].get_parse_math()  # a $ in a name is no formula


def test_titles_and_labels_break_where_their_parts_end() -> None:
    chart = Chart("", "", [replace(PANEL, title="fonts → mnist, ρ = 0.12 [−0.02, 0.26]", x=Axis("γ (% of a norm)"))])
    (ax,) = draw(chart, Style(width=2)).axes
    assert (ax.get_title(), ax.get_xlabel()) == ("fonts → mnist,\nρ = 0.12 [−0.02, 0.26]", "γ (% of a norm)")
    (ax,) = draw(chart, Style(width=0.9)).axes
    assert ax.get_xlabel() == "γ\n(% of a norm)"


def test_many_rows_fit_on_a_page() -> None:
    few, many = (draw(Chart("", "", [replace(PANEL, y=list_names(["name"] * n))])) for n in (10, 47))
    assert few.get_size_inches()[1] > 2.4 > many.get_size_inches()[1] / 4


def test_an_axis_reaches_over_values_that_are_missing() -> None:
    panel = Panel("", Axis("step"), Axis(), [Line("", [0, 50, 100], [np.nan, 1.0, 2.0], "ink")])
    low, high = draw_panel(panel).get_xlim()
    assert low < 0 < 100 < high


def test_marks_have_their_colours_widths_and_markers() -> None:
    marks = [
        Line("", [0, 1], [0, 1], "#ff0000", dashed=True, width=5),
        Points("", [0.5], [0.5], "ink", "^", faint=True),
        Points("", [0.5], [0.5], "#ffffff", "*", outlined=True),
        Words([0.1], [0.2], ["word"], "start", "#00ff00"),
    ]
    ax = draw_panel(replace(PANEL, marks=marks))
    line, faint, outlined = ax.lines
    assert (to_hex(line.get_color()), line.get_linestyle(), line.get_linewidth()) == ("#ff0000", "--", 3)
    assert (to_hex(faint.get_color()), faint.get_marker(), faint.get_alpha()) == ("#000000", "^", 0.35)
    assert (to_hex(outlined.get_markerfacecolor()), outlined.get_markeredgecolor()) == ("#ffffff", "black")
    assert (ax.texts[0].get_position(), ax.texts[0].get_ha(), ax.texts[0].get_color()) == (
        (0.1, 0.2),
        "left",
        "#00ff00",
    )


def test_numbers_in_cells_can_be_read_on_their_colour() -> None:
    value = [[0.0, 1.0], [np.nan, 0.4]]
    mark = Cells([0, 1], [0, 1], value, [["", ""]] * 2, 0.0, 1.0, written=[["0", "1"], ["–", "0.4"]])
    expected = {"cividis": ["white", "black", "black", "white"], "Blues": ["black", "white", "black", "black"]}
    for colours, texts in expected.items():
        ax = draw_panel(Panel("", list_names("ab"), list_names("ab"), [replace(mark, colours=colours)]))
        assert [text.get_color() for text in ax.texts] == texts


def test_contours_share_levels_and_one_colour_bar() -> None:
    figure = draw(describe(made.surface()))
    losses = [next(c for c in ax.collections if hasattr(c, "levels")).levels for ax in figure.axes[:2]]
    assert np.array_equal(*losses)
    assert (np.diff(losses[0]) > 0).all()
    bars = [bar for ax in figure.axes for bar in ax.child_axes]
    assert [bar.get_ylabel() for bar in bars] == ["Train loss", "Test accuracy (%)"]


def test_an_axis_like_that_of_the_neighbour_is_labelled_once() -> None:
    chart = Chart("", "", [PANEL, PANEL, PANEL, replace(PANEL, y=Axis("other"))], columns=2)
    axes = draw(chart).axes
    assert [ax.get_ylabel() for ax in axes] == ["y", "", "y", "other"]
    assert [ax.get_xlabel() for ax in axes] == ["", "", "x", "x"]


def test_title_legend_and_the_first_paragraph_of_the_caption_are_around_the_panels() -> None:
    figure = draw(describe(made.embedding()))
    assert get_legend(figure) == ["art", "photo", "sketch (test)", "interpolated", "extrapolated"]
    assert figure.legends[0].get_title().get_text() == "Latent codes, test domain sketch"
    note = figure.get_supxlabel().replace("\n", " ")
    assert "weights is below 0" in note
    assert "Hover" not in note
    alone = draw(Chart("Alone", "", [PANEL]))
    assert alone.get_suptitle() == "Alone"
    assert not alone.legends


def test_one_long_name_does_not_set_a_legend_in_one_column() -> None:
    def measure(*names: str) -> float:
        lines = [Line(name, [0, 1], [0, 1], "ink") for name in names]
        return draw(Chart("", "", [replace(PANEL, marks=lines)] * 3)).get_figheight()

    short = [f"short {i}" for i in range(8)]
    two_lines = measure(*short, "nine names of this length: two lines")
    assert measure(*short[:2]) < two_lines < measure(*[name.ljust(40, "…") for name in short])


def test_a_style_for_papers_sets_width_font_and_title() -> None:
    chart = describe(made.ranks())
    figure = draw(chart, Style(width=3.5, titled=False, font="serif"))
    assert figure.get_size_inches()[0] == 3.5
    assert not figure.get_suptitle()
    assert figure.axes[0].get_xticklabels()[0].get_fontfamily() == ["serif"]
    with pytest.raises(UserError, match="width"):
        Style(width=0.1)
