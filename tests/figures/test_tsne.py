"""Codes in the plane: points, pictures, outlines and names."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from copying import replace
from fgmix.figures.kinds import describe
from fgmix.figures.tsne import PICTURES_PER_ROW, join_pictures, keep_nearest, outline, outline_classes, place_names
from figures import made
from figures.marks import lines, points, words

POINTS = ("points", "panel", "domain", "label", "sample", "thumbnail", "extrapolates")


def test_points_of_a_panel_are_the_arrays_with_their_domains_and_samples() -> None:
    arrays = made.embedding()
    chart = describe(arrays)
    art, _, sketch = points(chart)[:3]
    np.testing.assert_array_equal(art.x, arrays.points[[0, 3, 6], 0])
    assert art.name == "art"
    assert art.text[1] == "cat, art, sample 3"
    assert sketch.name == "sketch (test)"
    mixed = {mark.name: len(mark.x) for mark in points(chart, 1)[3:]}
    assert mixed == {"interpolated": 3, "extrapolated": 1}
    assert chart.panels[1].title == "FGMix (25.0 % extrapolated)"  # of the four that are shown
    assert words(chart) == ["cat"]
    assert len(lines(chart)) == 1  # the outline of its source codes


def test_the_caption_tells_of_mixed_codes_where_there_are_some() -> None:
    arrays = made.embedding()
    assert "weights is below 0" in describe(arrays).caption
    assert "In training it was 6.2 % over the steps" in describe(replace(arrays, trained_share=0.062)).caption
    own = arrays.panel == 0
    bare = replace(arrays, panels=arrays.panels[:1], **{name: getattr(arrays, name)[own] for name in POINTS})
    assert "mixed" not in describe(bare).caption


def test_pictures_lie_where_their_keys_say() -> None:
    n = PICTURES_PER_ROW + 3
    thumbnails = np.zeros((n, 2, 2, 3), dtype=np.uint8)
    thumbnails[:, :, :, 0] = np.arange(n)[:, None, None]
    pictures = join_pictures(thumbnails)
    assert pictures is not None
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(pictures.source.partition(",")[2]))))
    for key in range(n):
        row, column = divmod(key, pictures.columns)
        assert (sheet[2 * row : 2 * row + 2, 2 * column : 2 * column + 2, 0] == key).all()
    assert join_pictures(thumbnails[:0]) is None


def test_points_carry_the_keys_of_their_pictures() -> None:
    chart = describe(made.embedding())
    assert chart.pictures is not None
    assert list(points(chart)[1].key) == list(points(chart, 1)[1].key) == [1, 4, 7]
    assert list(points(describe(made.rows()["Embedding"]), 2)[0].key) == [9, 12, 15]  # nine samples a row
    bare = replace(made.embedding(), thumbnail=np.zeros(0, dtype=np.int64), thumbnails=np.zeros((0, 1, 1, 3), np.uint8))
    chart = describe(bare)
    assert chart.pictures is None
    assert list(points(chart)[1].key) == [-1, -1, -1]


def test_a_region_contains_the_sources_of_its_class_only() -> None:
    regions = outline_classes(made.embedding(), 0)
    assert list(regions) == ["cat"]  # no sample is a dog
    arrays = made.embedding()
    sources = arrays.points[(arrays.panel == 0) & ~arrays.is_test[arrays.domain]]
    assert {tuple(corner) for corner in regions["cat"]} <= {tuple(point) for point in sources}
    np.testing.assert_array_equal(regions["cat"][0], regions["cat"][-1])  # closed


def test_a_name_stands_beside_its_region_where_it_covers_no_code() -> None:
    arrays = made.embedding()
    rng = np.random.default_rng(0)
    cluster = rng.normal(size=(len(arrays.points), 2)).clip(-2, 2)
    cluster[-4:] = [[0.0, 2.6], [0.0, 3.0], [-40.0, -40.0], [40.0, 40.0]]  # two codes above it, and two far away
    (place,) = place_names(replace(arrays, points=cluster), 0).values()
    assert np.abs(place).max() > 2
    assert np.linalg.norm(cluster - place, axis=1).min() > 1
    assert (np.abs(place) < 43).all()


def test_what_is_far_away_is_left_out() -> None:
    cloud = np.concatenate([np.random.default_rng(0).normal(size=(19, 2)), [[100.0, 100.0]]])
    assert keep_nearest(cloud).max() < 10
    assert len(keep_nearest(cloud)) == 18


def test_points_on_a_line_have_no_region() -> None:
    assert len(outline(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))) == 0
