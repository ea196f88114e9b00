"""Colours and markers: one for each algorithm and domain, everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import fgmix.report
from fgmix.figures.kinds import describe
from fgmix.figures.looks import (
    MARKERS,
    MIXED_LOOKS,
    assign_domain_looks,
    assign_looks,
    choose_look,
)
from fgmix.records.rows import Row
from figures import made
from figures.marks import lines, points


def test_a_domain_and_an_algorithm_have_their_colour_in_every_figure() -> None:
    photo = assign_domain_looks(made.DOMAINS.tolist())["photo"].colour
    assert points(describe(made.embedding()))[1].colour == lines(describe(made.curves()))[2].colour == photo
    fgmix = choose_look("fgmix").colour
    assert lines(describe(made.flatness()), 1)[-1].colour == fgmix
    assert points(describe(made.domains()))[1].colour == fgmix
    assert lines(describe(made.surface()), 1)[1].colour == fgmix


def test_algorithms_of_one_figure_look_different_and_keep_their_colours() -> None:
    """No list of algorithms: any forty keys, of plug-ins too, differ; a key has one colour everywhere."""
    keys = ["erm", "fgmix", *(f"fgmix_{variant}" for variant in "abcdefu"), *(f"my_method_{i}" for i in range(31))]
    looks = assign_looks(keys)
    assert len(set(looks.values())) == len(keys)
    assert {key: look.colour for key, look in looks.items()} == {key: choose_look(key).colour for key in keys}
    assert assign_looks(reversed(keys)) == looks
    assert len(assign_looks(f"m{i}" for i in range(500))) == 500  # more than looks


def test_arms_of_an_algorithm_differ_in_their_markers_and_its_folders_look_alike() -> None:
    folders = [Row("fgmix"), Row("fgmix", "γ = 10"), Row("fgmix", origin="x"), Row("fgmix", "γ = 10", origin="y")]
    looks = assign_looks(row.anywhere.key for row in folders)
    assert {look.colour for look in looks.values()} == {choose_look("fgmix").colour}
    assert looks["fgmix"] == choose_look("fgmix")
    assert len(looks) == 2
    assert looks["fgmix"].marker != looks["fgmix (γ = 10)"].marker


def test_every_marker_is_known_to_the_page() -> None:
    """An unknown one would be drawn as a circle."""
    source = (Path(fgmix.report.__file__).parent / "assets" / "charts.js").read_text()
    block = source[source.index("const MARKERS") : source.index("const DRAWN")]
    known = re.findall(r'^  "?(.)"?: "M', block, re.MULTILINE)
    assert {*MARKERS, *(look.marker for look in MIXED_LOOKS.values())} <= set(known)
