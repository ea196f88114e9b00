"""Charts of every kind of arrays: what a reader hovers over is what the arrays say."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fgmix.report
from fgmix.analysis import arrays as kinds
from fgmix.plots.looks import EXTRAPOLATED, INTERPOLATED, MARKERS
from fgmix.report.charts import Band, Cells, Chart, Line, Points, Words, as_data
from fgmix.report.figures import chart, differences
from fgmix.report.figures.tsne import PICTURES_PER_ROW, pictures
from fgmix.results.selection import Method
from fgmix.results.statistics import Comparison
from plots import made
from results.made import LABELS


def points(drawn: Chart, panel: int = 0) -> list[Points]:
    return [mark for mark in drawn.panels[panel].marks if isinstance(mark, Points)]


def lines(drawn: Chart, panel: int = 0) -> list[Line]:
    return [mark for mark in drawn.panels[panel].marks if isinstance(mark, Line)]


def cells(drawn: Chart, panel: int = 0) -> Cells:
    (found,) = (mark for mark in drawn.panels[panel].marks if isinstance(mark, Cells))
    return found


@pytest.mark.parametrize("kind", sorted(kinds.KINDS))
def test_every_kind_is_drawn_and_is_json(kind: str) -> None:
    drawn = chart("x", made.every()[kind], "fgmix plot it")
    assert drawn.panels
    assert all(panel.marks for panel in drawn.panels)
    text = json.dumps(as_data(drawn), allow_nan=False)
    assert json.loads(text)["command"] == "fgmix plot it"


def test_points_of_a_panel_are_the_arrays_with_their_domains_and_samples() -> None:
    arrays = made.embedding()
    drawn = chart("x", arrays)
    art, _, sketch = points(drawn)[:3]
    np.testing.assert_array_equal(art.x, arrays.points[[0, 3, 6], 0])
    assert art.name == "art"
    assert art.text[1] == "cat, art, sample 3"
    assert sketch.name == "sketch (test)"
    mixed = {mark.name: len(mark.x) for mark in points(drawn, 1)[3:]}
    assert mixed == {"interpolated": 3, "extrapolated": 1}
    assert drawn.panels[1].title == "FGMix (25.0 % extrapolated)"
    (names,) = (mark for mark in drawn.panels[0].marks if isinstance(mark, Words))
    assert names.text == ["cat"]


def test_every_marker_is_known_to_the_page() -> None:
    """An unknown one would be drawn as a circle."""
    source = (Path(fgmix.report.__file__).parent / "assets" / "charts.js").read_text()
    block = source[source.index("const MARKERS") : source.index("const DRAWN")]
    known = re.findall(r'^  "?(.)"?: "M', block, re.MULTILINE)
    assert {*MARKERS, INTERPOLATED.marker, EXTRAPOLATED.marker} <= set(known)


def test_pictures_lie_where_their_keys_say() -> None:
    n = PICTURES_PER_ROW + 3
    thumbnails = np.zeros((n, 2, 2, 3), dtype=np.uint8)
    thumbnails[:, :, :, 0] = np.arange(n)[:, None, None]
    found = pictures(thumbnails)
    assert found is not None
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(found.source.partition(",")[2]))))
    for key in range(n):
        row, column = divmod(key, found.columns)
        assert (sheet[2 * row : 2 * row + 2, 2 * column : 2 * column + 2, 0] == key).all()
    assert pictures(thumbnails[:0]) is None


def test_points_carry_the_keys_of_their_pictures() -> None:
    drawn = chart("x", made.embedding())
    assert drawn.pictures is not None
    assert list(points(drawn)[1].key) == list(points(drawn, 1)[1].key) == [1, 4, 7]


def test_without_pictures_points_have_no_key() -> None:
    bare = replace(made.embedding(), thumbnail=np.zeros(0, dtype=np.int64), thumbnails=np.zeros((0, 1, 1, 3), np.uint8))
    drawn = chart("x", bare)
    assert drawn.pictures is None
    assert list(points(drawn)[1].key) == [-1, -1, -1]


def test_flatness_draws_every_direction_and_the_mean() -> None:
    arrays = made.flatness()
    drawn = chart("x", arrays)
    assert len(drawn.panels) == 3
    assert len(lines(drawn)) == 5
    np.testing.assert_allclose(lines(drawn)[-1].y, arrays.gaps[0].mean(0))
    assert [mark.name for mark in lines(drawn, 2)] == ["ERM", "FGMix"]
    bands = [mark for mark in drawn.panels[2].marks if isinstance(mark, Band)]
    np.testing.assert_allclose(bands[0].top, arrays.gaps[0].mean(0) + arrays.gaps[0].std(0, ddof=1) / 2)
    assert len({(panel.y.low, panel.y.high) for panel in drawn.panels}) == 1
    assert [text for _, text in drawn.panels[0].x.ticks or ()] == ["2", "4", "6", "8", "10"]


@pytest.mark.parametrize("kind", made.rows())
def test_rows_stand_below_each_other(kind: str) -> None:
    arrays = made.rows()[kind]
    alone, both = chart("x", arrays.parts[0]), chart("x", arrays)
    assert len(both.panels) == 2 * len(alone.panels)
    assert both.columns == len(alone.panels)
    assert all(panel.title.startswith("sketch: ") for panel in both.panels)


def test_pictures_of_the_second_row_follow_those_of_the_first() -> None:
    drawn = chart("x", made.rows()["Embedding"])
    assert list(points(drawn, 2)[0].key) == [9, 12, 15]  # nine samples a row


def test_score_panels_share_their_axes() -> None:
    panels = chart("x", made.scores()).panels
    assert len({(panel.x.low, panel.x.high, panel.y.low, panel.y.high) for panel in panels}) == 1


def test_captions_speak_of_what_is_there() -> None:
    assert "averaged" in chart("x", made.curves()).caption
    one = made.curves()
    raw = replace(one, models=one.models[:1], accuracy=one.accuracy[:1], loss=one.loss[:1])
    assert "averaged" not in chart("x", raw).caption
    cost = made.cost()
    cost.value[:, 1] = np.nan
    assert "Diamonds" not in chart("x", cost).caption


def test_surface_has_one_scale_for_losses_and_one_for_accuracy() -> None:
    arrays = made.surface()
    drawn = chart("x", arrays)
    assert (cells(drawn, 0).low, cells(drawn, 0).high) == (cells(drawn, 1).low, cells(drawn, 1).high)
    assert cells(drawn, 2).high == arrays.values[2].max()
    assert [mark.name for mark in lines(drawn, 0) if mark.colour != "#ffffff"] == ["ERM", "ERM + SWA"]
    assert (cells(drawn, 0).colours, cells(drawn, 2).colours) == ("magma", "cividis")
    assert [mark.name for mark in points(drawn, 0) if mark.outlined] == [
        "Initial model",
        "ERM + SWA model",
        "FGMix + SWA model",
    ]
    assert points(drawn, 2)[-1].name == "Highest test accuracy"
    assert points(drawn, 0)[0].text[1] == "ERM, step 10"


def test_a_loss_that_is_not_finite_leaves_its_cell_empty() -> None:
    arrays = made.surface()
    arrays.values[0, 0, 0] = np.nan
    drawn = cells(chart("x", arrays))
    assert np.isfinite([drawn.low, drawn.high]).all()
    assert as_data(drawn)["value"][0][0] is None


def test_p_stands_with_the_statistic_it_is_of() -> None:
    drawn = chart("x", made.shift())
    assert all("p " not in text for row in cells(drawn, 0).text for text in row)
    value, p = cells(drawn, 1).written[0][1].split("\n")  # two lines: one would not fit into a cell
    assert float(value) == made.shift().mmd[0, 1]
    assert p.startswith("p ")


def test_the_toy_is_drawn() -> None:
    arrays = made.weight_effect()
    toy = chart("x", arrays)
    names = [mark.name for mark in points(toy, 1 + len(arrays.a))]
    assert names == [""] * len(arrays.gradients) + arrays.update_names.tolist()


def test_shift_leaves_the_diagonal_empty() -> None:
    arrays: Any = made.every()["Shift"]
    value = np.asarray(cells(chart("x", arrays)).value)
    assert np.isnan(np.diag(value)).all()
    np.testing.assert_array_equal(value[0, 1], arrays.accuracy[0, 1])


def test_what_is_not_significant_is_grey() -> None:
    erm = Method("erm")
    same = Comparison(Method("mixup"), erm, 9, 0.5, (-1.0, 2.0), 0.5, 0.5, 0.01)
    better = Comparison(Method("fgmix"), erm, 9, 2.0, (1.0, 3.0), 0.001, 0.002, 0.01)
    alone = Comparison(Method("coral"), erm, 0)
    drawn = differences("x", [same, better, alone], LABELS)
    assert [mark.colour for mark in points(drawn)] == ["#999999", "#D55E00"]
    assert points(drawn)[0].text[0] == "Mixup: +0.5 [-1.0, +2.0] points, 9 pairs; not significant"
    assert points(drawn)[1].text[0].endswith("9 pairs; significant difference")
    assert list(lines(drawn)[2].x) == [1.0, 3.0]
    assert drawn.panels[0].y.ticks == ((0.0, "Mixup"), (1.0, "FGMix"))


def test_accuracies_are_rounded_as_in_tables() -> None:
    arrays = made.sensitivity()
    arrays.value[0] = [6.25, 62.746]
    drawn = cells(chart("x", arrays))
    assert drawn.written[0] == ["6.2", "62.7"]
    assert drawn.text[0][0] == "λ₀ = 1, α = 0.03: 6.2"
    bars = made.ablation()
    bars.value[0], bars.spread[0] = 6.25, 0.25
    assert points(chart("x", bars))[0].text[0] == "ERM, art: 6.2 ± 0.2"


def test_black_is_the_colour_of_the_text() -> None:
    drawn = chart("x", made.flatness())
    assert lines(drawn)[-1].colour == "ink"


def test_what_is_not_finite_is_null() -> None:
    assert as_data([np.nan, np.inf, np.float64(1.0), np.array([[2, 3]])]) == [None, None, 1.0, [[2, 3]]]
