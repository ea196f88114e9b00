"""One image file as RGB: what decoding changes, what it refuses, and that it says so."""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from data.pictures import picture
from fgmix.data.images import (
    Change,
    Picture,
    Unreadable,
    change_notes,
    decode,
    parse_colour,
    quiet_decoding,
    reduce_image,
    try_decode,
)
from fgmix.errors import UserError

Pixels = npt.NDArray[np.uint8]


def pixels(path: Path, background: str = "white") -> Pixels:
    return np.asarray(decode(path, background).image)


def refusal(path: Path) -> str:
    with quiet_decoding():
        found = try_decode(path)
    assert isinstance(found, Unreadable)
    return found.reason


@pytest.mark.parametrize(
    ("mode", "name"),
    [("L", "grey.png"), ("P", "palette.png"), ("1", "bits.png"), ("YCbCr", "y.jpg"), ("RGB", "x.webp")],
)
def test_ordinary_images_are_as_pillow_converts_them(tmp_path: Path, mode: str, name: str) -> None:
    path = tmp_path / name
    picture(0, mode=mode).save(path)
    with Image.open(path) as image:
        expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(pixels(path), expected)
    assert decode(path).changes == Change(0)


# orientation


def corners(image: Pixels) -> list[int]:
    """Red at top left, top right, bottom left, bottom right, as 0 or 1."""
    return [int(image[y, x, 0] > 127) for y, x in ((0, 0), (0, -1), (-1, 0), (-1, -1))]


@pytest.mark.parametrize("name", ["x.png", "x.jpg", "x.tif", "x.webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int, name: str) -> None:
    """EXIF numbers where row 0 and column 0 of the stored image are shown: 6 means right and top."""
    shown = np.zeros((16, 32, 3), np.uint8)
    shown[:8, :16] = 255  # bright at the top left
    stored = {
        1: shown,
        2: shown[:, ::-1],
        3: shown[::-1, ::-1],
        4: shown[::-1],
        5: shown.transpose(1, 0, 2),
        6: shown.transpose(1, 0, 2)[::-1],
        7: shown.transpose(1, 0, 2)[::-1, ::-1],
        8: shown.transpose(1, 0, 2)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / name, exif=exif)
    found = decode(tmp_path / name)
    assert np.asarray(found.image).shape == (16, 32, 3)
    assert corners(np.asarray(found.image)) == [1, 0, 0, 0]
    assert found.changes == (Change.TURNED if orientation > 1 else Change(0))


@pytest.mark.parametrize(("mode", "orientation"), [("RGB", 1), ("RGB", 6), ("L", 2), ("CMYK", 1)])
def test_large_jpegs_are_decoded_at_a_fraction_of_their_size(tmp_path: Path, mode: str, orientation: int) -> None:
    """The result has the size and, within a grey level on average, the pixels of an image that is decoded whole."""
    path, exif = tmp_path / "x.jpg", Image.Exif()
    exif[0x0112] = orientation
    small = np.random.default_rng(0).integers(0, 256, (13, 17, 3)).astype(np.uint8)
    photo = Image.fromarray(small).resize((701, 525), Image.Resampling.BICUBIC)  # no multiple of 2, 4 or 8
    photo.convert(mode).save(path, quality=95, exif=exif)
    whole, reduced = decode(path), decode(path, image_size=64)  # 525 ≥ 2 · 2 · 77
    assert reduced.changes == whole.changes | Change.FRACTION
    expected = np.asarray(reduce_image(whole.image, 64), dtype=float)
    assert np.asarray(reduced.image).shape == expected.shape
    assert 0 < np.abs(np.asarray(reduced.image) - expected).mean() < 1
    assert reduce_image(reduced.image, 64).size == reduced.image.size


@pytest.mark.parametrize(("name", "size"), [("x.jpg", 307), ("x.png", 700)])
def test_other_images_are_decoded_whole(tmp_path: Path, name: str, size: int) -> None:
    picture(0, size, size).save(tmp_path / name)
    found, whole = decode(tmp_path / name, image_size=64), decode(tmp_path / name)
    assert found.changes == Change(0)
    np.testing.assert_array_equal(np.asarray(found.image), np.asarray(whole.image))


def test_broken_metadata_does_not_cost_the_image(tmp_path: Path) -> None:
    picture(0).save(tmp_path / "x.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff garbage")
    with quiet_decoding():
        assert isinstance(try_decode(tmp_path / "x.jpg"), Picture)


# transparency


def half_transparent() -> Image.Image:
    image = picture(0, mode="RGBA")
    alpha = np.zeros((image.height, image.width), np.uint8)
    alpha[:, :6] = 255
    alpha[0, 0] = 128
    image.putalpha(Image.fromarray(alpha))
    return image


@pytest.mark.parametrize(("background", "value"), [("white", 255), ("black", 0), ("#808080", 128)])
@pytest.mark.parametrize("name", ["x.png", "x.tif"])
def test_transparent_pixels_are_composited(tmp_path: Path, name: str, background: str, value: int) -> None:
    half_transparent().save(tmp_path / name)
    found = decode(tmp_path / name, background)
    assert found.changes == Change.COMPOSITED
    image, opaque = np.asarray(found.image), np.asarray(picture(0)).astype(float)
    np.testing.assert_array_equal(image[1:, :6], opaque[1:, :6])
    assert (image[:, 6:] == value).all()
    np.testing.assert_allclose(image[0, 0], (128 * opaque[0, 0] + 127 * value) / 255, atol=1)


@pytest.mark.parametrize("mode", ["LA", "PA", "P"])
def test_every_kind_of_transparency_is_seen(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "x.png"
    if mode == "P":
        image = Image.new("P", (4, 4), 1)
        image.putpalette([0, 0, 0, 10, 20, 30])
        image.putpixel((0, 0), 0)
        image.save(path, transparency=0)
    else:
        image = Image.new("LA", (4, 4), (10, 255))
        image.putpixel((0, 0), (10, 0))
        image.save(path)
    found = decode(path)
    assert found.changes == Change.COMPOSITED
    assert np.asarray(found.image)[0, 0].tolist() == [255, 255, 255]
    assert np.asarray(found.image)[1, 1].max() < 40


def test_an_opaque_alpha_channel_changes_nothing(tmp_path: Path) -> None:
    picture(0, mode="RGBA").save(tmp_path / "x.png")
    np.testing.assert_array_equal(pixels(tmp_path / "x.png"), np.asarray(picture(0)))
    assert decode(tmp_path / "x.png").changes == Change(0)


def test_colours_have_one_spelling() -> None:
    assert parse_colour("White") == parse_colour("#FFF") == parse_colour("#ffffff") == "#ffffff"
    for bad in ("whit", "", "#12", "#gggggg"):
        with pytest.raises(UserError, match="`background` should be a colour"):
            parse_colour(bad)


# other kinds


def test_cmyk_and_several_frames_are_recorded(tmp_path: Path) -> None:
    picture(0, mode="CMYK").save(tmp_path / "x.jpg")
    assert decode(tmp_path / "x.jpg").changes == Change.CMYK
    for name in ("x.tif", "x.gif", "x.webp", "x.png"):
        picture(0).save(tmp_path / name, save_all=True, append_images=[picture(1), picture(2)])
        assert decode(tmp_path / name).changes == Change.FIRST_FRAME, name
    np.testing.assert_array_equal(pixels(tmp_path / "x.tif"), np.asarray(picture(0)))


def png16(path: Path, colour_type: int, channels: int) -> None:
    """A PNG of 16 bits per channel, which Pillow cannot write in colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 4, 4, 16, colour_type, 0, 0, 0)
    rows = b"".join(b"\0" + b"\1\2" * 4 * channels for _ in range(4))
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def tiff16(path: Path, *, planar: bool) -> None:
    """An uncompressed RGB TIFF of 16 bits per channel."""
    strips = 3 if planar else 1
    after = 8 + 2 + 9 * 12 + 4  # where the values that do not fit into their entries begin
    values = struct.pack("<HHH", 16, 16, 16) + struct.pack("<III", *(after + 30 + 32 * i for i in range(3)))
    values += struct.pack("<III", 32, 32, 32)
    entries = [
        (256, 3, 1, 4),  # width
        (257, 3, 1, 4),  # height
        (258, 3, 3, after),  # bits per sample
        (259, 3, 1, 1),  # no compression
        (262, 3, 1, 2),  # RGB
        (273, 4, strips, after + 6 if planar else after + 30),  # where the strips are
        (277, 3, 1, 3),  # samples per pixel
        (279, 4, strips, after + 18 if planar else 96),  # their lengths
        (284, 3, 1, 2 if planar else 1),
    ]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8) + directory + bytes(4) + values + b"\1\2" * 48)


def deep_files(folder: Path) -> list[Path]:
    """Images of more than 8 bits per channel, of every kind that Pillow opens."""
    grey = np.arange(16, dtype=np.uint16).reshape(4, 4) * 200
    Image.fromarray(grey).save(folder / "grey.png")
    Image.fromarray(grey).save(folder / "grey.tif")
    Image.fromarray(grey.astype(np.float32)).save(folder / "float.tif")
    Image.fromarray(grey.astype(np.int32)).save(folder / "int.tif")
    png16(folder / "rgb.png", 2, 3)
    png16(folder / "rgba.png", 6, 4)
    png16(folder / "grey_alpha.png", 4, 2)
    tiff16(folder / "rgb.tif", planar=False)
    tiff16(folder / "planar.tif", planar=True)
    (folder / "rgb.ppm").write_bytes(b"P6 4 4 65535\n" + b"\1\2" * 48)
    (folder / "plain.ppm").write_text("P3 1 1 1000\n1 2 3\n")
    (folder / "grey.pgm").write_bytes(b"P5 4 4 4095\n" + b"\1\2" * 16)
    return sorted(folder.iterdir())


def test_more_than_eight_bits_are_refused_in_colour_as_in_grey(tmp_path: Path) -> None:
    files = deep_files(tmp_path)
    assert len(files) == 12
    for path in files:
        assert "more than 8 bits per channel" in refusal(path), path


def test_a_bitmap_of_sixteen_bits_per_pixel_is_no_deep_image(tmp_path: Path) -> None:
    """5, 6 and 5 bits for a pixel."""
    masks = struct.pack("<III", 0xF800, 0x07E0, 0x001F)
    header = struct.pack("<IiiHHIIiiII", 40, 2, 2, 1, 16, 3, 8, 0, 0, 0, 0)
    offset = 14 + len(header) + len(masks)
    body = struct.pack("<HH", 0xF800, 0xF800) * 2
    path = tmp_path / "x.bmp"
    path.write_bytes(b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, offset) + header + masks + body)
    assert pixels(path)[0, 0].tolist() == [255, 0, 0]


# what is no image, or a dangerous one


def test_sizes_are_checked_before_memory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "huge.ppm").write_bytes(b"P6 100000 100000 255\n")
    assert "announces more than" in refusal(tmp_path / "huge.ppm")


def test_postscript_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would hand an EPS file, whatever its ending, to Ghostscript."""
    monkeypatch.setattr(subprocess, "check_call", lambda *_, **__: pytest.fail("a program was started"))
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    assert "none of BMP" in refusal(tmp_path / "x.png")


def test_notes_count_each_change() -> None:
    changes = np.array([0, Change.TURNED, Change.TURNED | Change.COMPOSITED, Change.CMYK, Change.FIRST_FRAME], np.uint8)
    assert change_notes(changes) == [
        "Images turned as their EXIF orientation says: 2.",
        "Images with transparent pixels, composited on white: 1.",
        "CMYK images, converted to RGB without their colour profile: 1.",
        "Images of several frames or pages, of which the first is used: 1.",
    ]
    assert change_notes(changes, "#808080")[1] == "Images with transparent pixels, composited on #808080: 1."
    assert change_notes(np.zeros(3, np.uint8)) == []
