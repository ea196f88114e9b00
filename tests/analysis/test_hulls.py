"""Regions of the source domains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fgmix.analysis.hulls import name_places, nearest, outline, source_regions
from plots import made


def test_a_region_contains_the_sources_of_its_class_only() -> None:
    regions = source_regions(made.embedding(), 0)
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
    (place,) = name_places(replace(arrays, points=cluster), 0).values()
    assert np.abs(place).max() > 2
    assert np.linalg.norm(cluster - place, axis=1).min() > 1
    assert (np.abs(place) < 43).all()


def test_what_is_far_away_is_left_out() -> None:
    cloud = np.concatenate([np.random.default_rng(0).normal(size=(19, 2)), [[100.0, 100.0]]])
    assert nearest(cloud).max() < 10
    assert len(nearest(cloud)) == 18


def test_points_on_a_line_have_no_region() -> None:
    assert len(outline(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))) == 0
