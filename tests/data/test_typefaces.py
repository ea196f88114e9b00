"""The embedded letters: 30 typefaces, always the same, with their sources named."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from fgmix.data import DomainDataset, load, typefaces
from fgmix.seeding import numpy_generator

# Depends on typefaces.py, on the embedded glyphs and on numpy's random numbers: no font, FreeType or Pillow.
FINGERPRINT = "8508c77b5bc1cd113e0b4b2e32fec11e"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "data" / "typefaces.md"


@pytest.fixture(scope="module")
def dataset() -> DomainDataset:
    return load("typefaces")


@pytest.fixture(scope="module")
def sources() -> list[dict[str, str]]:
    with typefaces.SOURCES.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_fingerprint_is_pinned(dataset: DomainDataset) -> None:
    assert dataset.fingerprint == FINGERPRINT


def test_domains_classes_and_shapes(dataset: DomainDataset) -> None:
    assert len(dataset.domains) == 30
    assert (dataset.classes, dataset.input_shape, dataset.kind) == (tuple("ABEGKMQRSX"), (1, 28, 28), "small_images")
    for domain in dataset.domains:
        x = domain.inputs.x  # type: ignore[attr-defined]
        assert (x.shape, x.dtype, domain.y.dtype) == ((400, 1, 28, 28), np.uint8, np.int64)
        assert (np.bincount(domain.y) == 40).all()
        assert len({image.tobytes() for image in x}) == 400


def test_every_domain_has_a_source_with_a_licence_on_the_page(
    dataset: DomainDataset, sources: list[dict[str, str]]
) -> None:
    assert tuple(row["typeface"] for row in sources) == dataset.domain_names
    page = PAGE.read_text()
    for row in sources:
        assert (
            f"| `{row['typeface']}` | {row['file']} | {row['package']} | {row['licence']} | {row['copyright']} |"
            in page
        )


def test_every_typeface_has_ten_different_glyphs_within_the_margin() -> None:
    assert typefaces.GLYPHS.stat().st_size < 500_000
    for glyphs in typefaces.read_glyphs().values():
        assert glyphs.shape == (10, 48, 48)
        assert len({glyph.tobytes() for glyph in glyphs}) == 10
        ink = glyphs.max((1, 2))
        assert ink.min() > 0.5
        assert ink.max() == 1
        assert not glyphs[:, :6].any()
        assert not glyphs[:, :, -6:].any()


def test_a_placed_glyph_keeps_its_mass_and_centre() -> None:
    """A square of side 18 at the centre, placed 400 times: area by scale² and widening, centre by the shift."""
    glyph = np.zeros((400, 48, 48))
    glyph[:, 15:33, 15:33] = 1
    placed = typefaces.place(glyph, numpy_generator("test"))
    rng = numpy_generator("test")
    size, widening, _ = rng.uniform(17, 24, 400), rng.uniform(0.8, 1.2, 400), rng.uniform(-0.2, 0.2, 400)
    x, y = rng.uniform(-1.5, 1.5, (2, 400))
    mass = placed.sum((1, 2))
    np.testing.assert_allclose(mass, (18 * size / 36) ** 2 * widening, rtol=0.02)
    at = np.arange(28) - 13.5
    np.testing.assert_allclose((placed.sum(1) * at).sum(1) / mass, x, atol=0.05)
    np.testing.assert_allclose((placed.sum(2) * at).sum(1) / mass, y, atol=0.05)


def test_only_one_size() -> None:
    with pytest.raises(ValueError, match="28, the one size of typefaces"):
        load("typefaces", typefaces.LoadOptions(image_size=32))
