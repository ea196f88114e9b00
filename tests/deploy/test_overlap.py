"""Which question an estimate answers: new objects, or a new style of known ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from fgmix import fit
from fgmix.data import LoadOptions, from_arrays, load
from fgmix.data.dataset import join_datasets
from fgmix.deploy.overlap import describe_question, measure_overlap
from fgmix.records.model import Overlap


def test_groups_in_several_domains_are_counted_by_sample() -> None:
    x, y, d = np.zeros((8, 2)), np.arange(8) % 2, np.arange(8) // 4
    shared = from_arrays(x, y, d, group=["p", "p", "q", "r", "p", "s", "s", "s"])
    assert measure_overlap(shared) == Overlap(3 / 8, None)
    assert measure_overlap(from_arrays(x, y, d, group=list("pqqrstuu"))) == Overlap(0.0, None)
    assert measure_overlap(from_arrays(x, y, d)) == Overlap(None, None)


def test_twins_of_different_groups_are_counted() -> None:
    rng = np.random.default_rng(0)
    x, y, d = rng.normal(size=(200, 100)), np.arange(200) % 2, np.arange(200) // 100
    x[[105, 106, 107]] = x[[5, 6, 7]]
    data, few = from_arrays(x, y, d), from_arrays(x[5:], y[5:], d[5:])
    assert measure_overlap(data, data).twins == 6
    assert measure_overlap(few, few).twins is None  # among few images, those that are only alike are twins
    named = from_arrays(x, y, d, group=[*range(105), 5, *range(106, 200)])
    assert measure_overlap(named, named).twins == 4


def test_images_of_another_style_are_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for domain in ("plain", "inverted"):
        for label in ("cat", "dog"):
            (tmp_path / domain / label).mkdir(parents=True)
    for i in range(12):
        image = Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8))
        image.save(tmp_path / "plain" / ("cat" if i % 2 else "dog") / f"{i}.png")
        other = ImageOps.invert(image) if i < 3 else Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8))
        other.save(tmp_path / "inverted" / ("cat" if i % 2 else "dog") / f"{i}.png")
    dataset = load(str(tmp_path), LoadOptions(image_size=32, cache=tmp_path / "cache", progress=False))
    assert measure_overlap(dataset).near_duplicates == 6


def test_no_object_is_new_if_a_domain_has_no_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y, d = rng.normal(size=(120, 5)), np.arange(120) % 2, np.arange(120) // 40
    named = from_arrays(x[:80], y[:80], d[:80], group=np.arange(80) % 40)
    data = join_datasets(named, from_arrays(x[80:], y[80:], d[80:]))
    model = fit(data, tmp_path / "model", recipes=["logistic"], progress=False)
    assert model.info.estimate is not None
    assert model.info.estimate.new_objects is None


def test_new_objects_are_held_out_of_all_domains(tmp_path: Path) -> None:
    """Labels are noise that belongs to objects: known objects are recognised in a new domain, new ones are not."""
    rng = np.random.default_rng(0)
    objects, y = rng.normal(size=(200, 40)), rng.integers(0, 2, 200)
    x = np.concatenate([objects + 0.3 * rng.normal(size=objects.shape) + style for style in (0, 1, 2)])
    data = from_arrays(x, np.tile(y, 3), np.repeat([*"abc"], 200), group=np.tile(np.arange(200), 3))
    model = fit(data, tmp_path / "model", recipes=["svm"], progress=False)
    assert model.info.estimate is not None
    found = model.info.estimate.new_objects
    assert found is not None
    assert found.groups == 40
    assert found.known > 0.85
    assert found.value < 0.65
    assert f"{100 * found.value:.1f} %" in describe_question(model.info.overlap, found)


@pytest.mark.parametrize(
    ("overlap", "words"),
    [
        (Overlap(0.0, None), ["new objects in a new domain"]),
        (Overlap(0.25, None), ["25.0 %", "partly known"]),
        (Overlap(None, 6), ["6 images with near-duplicates", "partly known"]),
        (Overlap(None, 0), ["do not say", "No image has"]),
        (Overlap(None, 0, 0), ["do not say", "No image has"]),
        (Overlap(None, 1, 1234), ["1 image with near-duplicates and 1,234 images with twins", "--features"]),
        (Overlap(0.0, 6, 1234), ["new objects in a new domain"]),
        (Overlap(None, None), ["do not say"]),
    ],
)
def test_the_question_is_named(overlap: Overlap, words: list[str]) -> None:
    assert all(word in describe_question(overlap) for word in words)
