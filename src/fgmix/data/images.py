"""Decode an image file to 8-bit RGB. Changes are recorded; files that cannot be converted faithfully are rejected.

- The image is rotated or flipped by its EXIF orientation.
- Transparent pixels are composited on a background colour, white by default.
- CMYK is converted without its colour profile.
- Of several frames or pages the first is used.
- A JPEG of at least four times the size that is needed is decoded at a half, a quarter or an eighth of its size.
- Grey values of more than 8 bits (PNG, TIFF, DICOM) are shown in a window of intensity (`grey`).
- More than 8 bits per channel of a colour are rejected: Pillow would drop the lower bits.

The loader of ImageFolder, which DomainBed uses, ignores orientation and transparency: only such files look different
here.
"""

from __future__ import annotations

import enum
import hashlib
import io
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor, UnidentifiedImageError

from fgmix.data.files import StrPath, open_file, raise_failure
from fgmix.data.grey import OWN, Grey, NotSupported, parse_window, read_dicom, read_size
from fgmix.errors import UserError, bad_value

BACKGROUND = "white"
IMAGE_SIZE = 224
LARGEST = 4096  # side in pixels: a batch of 32 such images takes 6 GB
SMALLEST_CROP = 0.7  # smallest share of the area that the augmentation keeps
# A JPEG that is decoded at a fraction of its size keeps at least this many times the pixels per side that are needed:
# it then differs by 0.4 to 1.0 grey levels on average from one that is decoded whole (docs/speed.md).
MARGIN = 2
# Recognised by content, not by extension. Others are excluded: some decoders of Pillow start programs (EPS) or do not
# report the bit depth.
FORMATS = ("BMP", "DIB", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_DICOM = 128, b"DICM"  # what a DICOM file has at this byte
_MAY_BE_DEEP = re.compile(rb"II|MM|\x89PNG.{20}\x10\x00|.{128}DICM", re.DOTALL)  # TIFF, PNG of 16 bits, DICOM
_ORIENTATION = 0x0112
_BITS_PER_SAMPLE = 258
_DEEP_GREY = ("I;16", "I;16L", "I;16B", "I")  # modes of grey images of up to 16 bits in PNG and TIFF files
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Change(enum.IntFlag):
    """Changes that decoding made to an image."""

    TURNED = 1
    COMPOSITED = 2
    CMYK = 4
    FIRST_FRAME = 8
    WINDOWED = 16
    FRACTION = 32
    LOST = 64


@dataclass(frozen=True)
class Picture:
    """A decoded image, 8-bit RGB, and what decoding changed."""

    image: Image.Image
    changes: Change


@dataclass(frozen=True)
class Unreadable:
    """Why a file could not be decoded."""

    reason: str


def decode(path: StrPath, background: str = BACKGROUND, window: str = "", image_size: int | None = None) -> Picture:
    """Decode an image file to RGB.

    Args:
        path: the file.
        background: colour behind transparent pixels.
        window: of grey values of more than 8 bits, LOW:HIGH or dicom; empty if such files are rejected.
        image_size: side of the input images for which the result is then reduced; None if it is needed whole.
    """
    with open_file(path) as file:
        image, changes = _decode_dicom(file) if is_dicom(file) else _decode_with_pillow(file, image_size)
        if isinstance(image, Grey):
            shown = _show(image, window)
            is_lost = np.ptp(image.values) > 0 and np.ptp(np.asarray(shown)) == 0
            return Picture(shown, changes | Change.WINDOWED | (Change.LOST if is_lost else Change(0)))
        flat, is_composited = _flatten(image, background)
    return Picture(flat, changes | Change.COMPOSITED if is_composited else changes)


def read_grey(path: StrPath) -> Grey | None:
    """Read a grey image of more than 8 bits; None for any other file, readable or not."""
    if str(path).lower().endswith((".jpg", ".jpeg", ".webp", ".bmp")):  # which have 8 bits
        return None
    with suppress(Exception), quiet_decoding(), open_file(path) as file:  # `try_decode` gives the reason
        if is_dicom(file):
            image, _ = _decode_dicom(file)
            return image if isinstance(image, Grey) else None
        with Image.open(file, formats=FORMATS) as opened:
            return _read_values(opened) if _is_deep_grey(opened) else None
    return None


def _decode_dicom(file: io.BufferedReader) -> tuple[Image.Image | Grey, Change]:
    content, has_more = read_dicom(file, Image.MAX_IMAGE_PIXELS or math.inf)
    image = content if isinstance(content, Grey) else Image.fromarray(content)
    return image, Change.FIRST_FRAME if has_more else Change(0)


def _decode_with_pillow(file: io.BufferedReader, image_size: int | None) -> tuple[Image.Image | Grey, Change]:
    changes = Change(0)
    with Image.open(file, formats=FORMATS) as opened:
        _require_faithful(opened)
        if opened.format != "MPO" and getattr(opened, "n_frames", 1) > 1:  # MPO: a photo with previews of itself
            changes |= Change.FIRST_FRAME
        turned_by_pillow = opened.format == "TIFF" and _read_orientation(opened) in _TURNS
        image: Image.Image = opened
        if image_size and (reduced := _decode_fraction(opened, image_size)):
            image, changes = reduced, changes | Change.FRACTION
        opened.load()
        if (turn := _TURNS.get(_read_orientation(opened))) is not None:
            image = image.transpose(turn)
        if turned_by_pillow or turn is not None:
            changes |= Change.TURNED
        if image.mode == "CMYK":
            changes |= Change.CMYK
        return Grey(np.asarray(image)) if _is_deep_grey(opened) else image, changes


def _decode_fraction(opened: Image.Image, image_size: int) -> Image.Image | None:
    """Decode a large JPEG at a fraction of its size, and reduce it to its stored size; None for any other image."""
    whole, stored = opened.size, stored_size(*opened.size, image_size)
    drafted = opened.draft(None, (MARGIN * stored[0], MARGIN * stored[1]))  # None for other formats
    if drafted is None or opened.size == whole:
        return None
    return opened.resize(stored, Image.Resampling.LANCZOS, box=drafted[1])  # the last pixels may be partly outside


def _show(grey: Grey, window: str) -> Image.Image:
    """Convert grey values to RGB in a window."""
    chosen = grey.own if window == OWN else parse_window(window)
    if chosen is None:
        lacks = "it names no linear window of its own" if window else "it has more than 8 bits per channel"
        raise NotSupported(f"{lacks}; choose one: --window LOW:HIGH")
    return Image.fromarray(grey.show(chosen)).convert("RGB")


def try_decode(
    path: StrPath, background: str = BACKGROUND, window: str = "", image_size: int | None = None
) -> Picture | Unreadable:
    """Decode an image file, or return the reason why it fails. Call it inside `quiet_decoding`."""
    try:
        return decode(path, background, window, image_size)
    except (MemoryError, UserError):  # not caused by the file, which must not be skipped
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return Unreadable(f"it announces more than {Image.MAX_IMAGE_PIXELS:,} pixels; reduce it first")
    except UnidentifiedImageError:
        return Unreadable(f"it is none of {', '.join(FORMATS)} and DICOM")
    except NotSupported as error:
        return Unreadable(str(error))
    except OSError as error:
        raise_failure(error, path)
        return Unreadable(error.strerror or str(error))
    except Exception as error:  # Pillow's plugins raise anything on a broken file: struct.error, SyntaxError, …
        return Unreadable(" ".join(f"{type(error).__name__}: {error}".split()))


class Inspected(NamedTuple):
    """What a file shows without being decoded."""

    digest: bytes  # of its content; a constant for a file that cannot be opened, which decoding reports
    size: tuple[int, int] | None = None  # (width, height) in its header, before any rotation, if wanted and readable
    may_be_deep: bool = False  # whether its first bytes allow grey values of more than 8 bits, which need a window


def inspect_file(path: StrPath, with_size: bool = False) -> Inspected:
    """Open a file once for a digest of its content and what its header says."""
    try:
        with open_file(path) as file:
            may_be_deep = _MAY_BE_DEEP.match(file.peek(132)) is not None
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
            if with_size:
                file.seek(0)
                with suppress(Exception):  # `try_decode` gives the reason
                    return Inspected(digest, _read_size(file), may_be_deep)
            return Inspected(digest, None, may_be_deep)
    except OSError as error:
        raise_failure(error, path)
        return Inspected(b"unreadable")


def is_dicom(file: io.BufferedReader) -> bool:
    """Say whether an open file is a DICOM file, by its content; the position in it stays."""
    start, mark = _DICOM
    return file.peek(start + len(mark))[start:].startswith(mark)


def _read_size(file: io.BufferedReader) -> tuple[int, int]:
    if is_dicom(file):
        return read_size(file)
    with Image.open(file, formats=FORMATS) as image:
        return image.size


def check_size(image_size: int | None) -> int:
    """Return S, the side of the square input images; UserError if it is not valid."""
    if image_size is None:
        return IMAGE_SIZE
    if isinstance(image_size, bool) or not isinstance(image_size, int | np.integer) or not 1 <= image_size <= LARGEST:
        raise bad_value("image_size", f"a number of pixels from 1 to {LARGEST}", image_size)
    return int(image_size)


def reduce_image(image: Image.Image, image_size: int) -> Image.Image:
    """Reduce an image to the resolution that S×S inputs need.

    Its shorter side becomes at most ⌈S/√0.7⌉: the augmentation crops to at least 0.7 of the area, so that a square crop
    of a square image still has S pixels per side. Images are never enlarged and keep their aspect ratio.
    """
    size = stored_size(*image.size, image_size)
    # Lanczos, because a bilinear resize follows: compared with a single resize, the two differ by 0.65 grey levels on
    # photos at 224 px; bilinear twice, by 1.0
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def read_image(path: StrPath, image_size: int, window: str = "") -> Image.Image | Unreadable:
    """Decode and reduce an image file, or return why it cannot be used. Call it inside `quiet_decoding`."""
    picture = try_decode(path, window=window, image_size=image_size)
    if isinstance(picture, Unreadable):
        return picture
    if picture.changes & Change.LOST:
        return Unreadable(f"its grey values lie outside the window {window}: it is black or white throughout")
    return reduce_image(picture.image, image_size)


def stored_size(width: int, height: int, image_size: int) -> tuple[int, int]:
    """Compute the (width, height) of a reduced image.

    >>> stored_size(640, 480, 224), stored_size(227, 227, 224)
    ((357, 268), (227, 227))
    """
    shorter = ceil(image_size / sqrt(SMALLEST_CROP))
    scale = shorter / min(width, height)
    return (round(width * scale), round(height * scale)) if scale < 1 else (width, height)


@contextmanager
def quiet_decoding() -> Iterator[None]:
    """Make Pillow's warning about decompression bombs an error within the block, and ignore other warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def parse_colour(background: str) -> str:
    """Convert a colour to #rrggbb.

    >>> parse_colour("white")
    '#ffffff'
    """
    try:
        rgb = ImageColor.getcolor(background, "RGB")
    except (ValueError, AttributeError, TypeError) as error:  # AttributeError: not a text
        raise bad_value("background", "a colour such as white or #808080", background) from error
    return "#" + bytes(rgb).hex()


def change_notes(changes: npt.NDArray[np.uint8], background: str = BACKGROUND, window: str = "") -> list[str]:
    """Write a note for every kind of change that occurs, with the number of images."""
    shown_in = "the window of each file" if window == OWN else f"the window {window}"
    colour = "white" if parse_colour(background) == parse_colour("white") else parse_colour(background)
    sentences = {
        Change.TURNED: "Images turned as their EXIF orientation says",
        Change.COMPOSITED: f"Images with transparent pixels, composited on {colour}",
        Change.CMYK: "CMYK images, converted to RGB without their colour profile",
        Change.FIRST_FRAME: "Images of several frames or pages, of which the first is used",
        Change.FRACTION: "Large JPEG images, decoded at a fraction of their size",
        Change.WINDOWED: f"Grey images of more than 8 bits, shown in {shown_in}",
        Change.LOST: f"Grey images outside {shown_in}, black or white throughout (choose another --window)",
    }
    counts = {change: int(np.count_nonzero(changes & change)) for change in sentences}
    return [f"{sentence}: {counts[change]}." for change, sentence in sentences.items() if counts[change]]


def _require_faithful(image: Image.Image) -> None:
    """Check size and depth in the header, which determine the memory needed, before any pixel is decoded."""
    width, height = image.size
    if width < 1 or height < 1:
        raise NotSupported(f"its size is {width}×{height} pixels")
    if width * height > (Image.MAX_IMAGE_PIXELS or math.inf):  # Pillow only warns outside of `quiet_decoding`
        raise Image.DecompressionBombError
    if _is_deep_grey(image):
        return
    is_deep = image.mode[0] in "IF"  # more than 8 bits per channel; the mode shows this only for grey images
    if image.format == "TIFF":
        is_deep |= max(image.tag_v2.get(_BITS_PER_SAMPLE, (1,))) > 8  # type: ignore[attr-defined]
    else:
        for tile in getattr(image, "tile", ()):
            raw_mode, *more = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
            if image.format == "PPM" and more and isinstance(more[0], int):
                is_deep |= more[0] > 255  # the largest value
            is_deep |= bool(re.match(r"(L|LA|RGB|RGBA|CMYK);16", str(raw_mode)))  # not BGR;16 of BMP: 5, 6 and 5 bits
    if is_deep:
        raise NotSupported("it has more than 8 bits per channel; save it with 8, or as grey PNG or TIFF of 16")


def _is_deep_grey(image: Image.Image) -> bool:
    """Say whether an image has one channel of more than 8 and at most 16 bits."""
    if image.format == "TIFF":
        (bits, *others) = image.tag_v2.get(_BITS_PER_SAMPLE, (1,))  # type: ignore[attr-defined]
        return image.mode in _DEEP_GREY and not others and 8 < bits <= 16
    return image.format == "PNG" and image.mode in _DEEP_GREY


def _read_values(image: Image.Image) -> Grey:
    image.load()
    return Grey(np.asarray(image))


def _read_orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # broken metadata of an otherwise valid image
        return 1
    return value if isinstance(value, int) else 1


def _flatten(image: Image.Image, background: str) -> tuple[Image.Image, bool]:
    """Convert an image to RGB; also return whether transparent pixels were composited."""
    if image.has_transparency_data:
        straight = image.convert("LA") if image.mode == "La" else image
        rgba = straight.convert("RGBA")
        if rgba.getchannel("A").getextrema()[0] < 255:  # type: ignore[operator]  # one channel: (lowest, highest)
            canvas = Image.new("RGBA", rgba.size, background)
            canvas.alpha_composite(rgba)
            return canvas.convert("RGB"), True
    return image.convert("RGB"), False
