"""Grey images of more than 8 bits: PNG, TIFF and DICOM files in a window of intensity."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data.pictures import save_dicom
from fgmix.data import LoadOptions, load
from fgmix.data.grey import Window, parse_window
from fgmix.data.image_dataset import choose_window
from fgmix.data.images import (
    Change,
    Unreadable,
    change_notes,
    decode,
    inspect_file,
    quiet_decoding,
    read_grey,
    read_image,
    try_decode,
)
from fgmix.errors import UserError

RAMP = np.arange(64, dtype=np.uint16).reshape(8, 8) * 64  # 0 … 4032


def grey_of(path: Path, window: str = "") -> np.ndarray:
    picture = decode(path, window=window)
    pixels = np.asarray(picture.image)
    assert pixels.shape[-1] == 3
    assert (pixels == pixels[..., :1]).all()
    return pixels[..., 0]


def reason(path: Path, window: str = "") -> str:
    with quiet_decoding():
        found = try_decode(path, window=window)
    assert isinstance(found, Unreadable)
    return found.reason


@pytest.mark.parametrize("name", ["grey.png", "grey.tif"])
def test_grey_of_sixteen_bits_is_shown_in_the_window(name: str, tmp_path: Path) -> None:
    Image.fromarray(RAMP).save(tmp_path / name)
    assert decode(tmp_path / name, window="1000:3000").changes == Change.WINDOWED
    expected = [round(255 * min(max((v - 1000) / 2000, 0), 1)) for v in RAMP.reshape(-1).tolist()]
    assert grey_of(tmp_path / name, "1000:3000").reshape(-1).tolist() == expected
    assert "more than 8 bits" in reason(tmp_path / name)
    assert "no linear window" in reason(tmp_path / name, "dicom")


def test_a_grey_image_of_sixteen_bits_is_turned_by_its_orientation(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(RAMP).save(tmp_path / "turned.png", exif=exif)
    expected = Window(0, 4032).apply(RAMP)[::-1, ::-1]
    assert (grey_of(tmp_path / "turned.png", "0:4032") == expected).all()


def test_slope_and_intercept_of_a_dicom_file_are_applied(tmp_path: Path) -> None:
    path = save_dicom(tmp_path / "ct.dcm", RAMP, RescaleSlope=2, RescaleIntercept=-1024)
    grey = read_grey(path)
    assert grey is not None
    assert (grey.values == 2.0 * RAMP - 1024).all()
    assert (grey_of(path, "-1024:976") == Window(-1024, 976).apply(2.0 * RAMP - 1024)).all()
    assert inspect_file(path, with_size=True)[1] == (8, 8)


@pytest.mark.parametrize(
    ("function", "low", "high"), [("LINEAR", 39.5 - 199.5, 39.5 + 199.5), ("LINEAR_EXACT", -160, 240)]
)
def test_the_own_window_of_a_dicom_file(function: str, low: float, high: float, tmp_path: Path) -> None:
    tags = {"WindowCenter": [40, 300], "WindowWidth": [400, 1500], "VOILUTFunction": function}
    path = save_dicom(tmp_path / "ct", RAMP, RescaleSlope=1, RescaleIntercept=-1000, **tags)
    assert (grey_of(path, "dicom") == Window(low, high).apply(RAMP - 1000.0)).all()


def test_a_window_that_is_not_linear_is_refused(tmp_path: Path) -> None:
    tags = {"WindowCenter": 40, "WindowWidth": 400, "VOILUTFunction": "SIGMOID"}
    assert "no linear window" in reason(save_dicom(tmp_path / "ct.dcm", RAMP, **tags), "dicom")


def test_high_values_of_monochrome1_are_dark(tmp_path: Path) -> None:
    path = save_dicom(tmp_path / "x-ray.dcm", RAMP, PhotometricInterpretation="MONOCHROME1")
    assert (grey_of(path, "0:4032") == 255 - Window(0, 4032).apply(RAMP)).all()


def test_dicom_of_eight_bits_needs_no_window(tmp_path: Path) -> None:
    values = RAMP.astype(np.uint8)
    assert (grey_of(save_dicom(tmp_path / "us.dcm", values)) == values).all()
    assert (
        grey_of(save_dicom(tmp_path / "dark.dcm", values, PhotometricInterpretation="MONOCHROME1")) == 255 - values
    ).all()
    colour = np.random.default_rng(0).integers(0, 256, (8, 6, 3), dtype=np.uint8)
    assert (np.asarray(decode(save_dicom(tmp_path / "rgb.dcm", colour)).image) == colour).all()


def test_padding_does_not_widen_the_window(tmp_path: Path) -> None:
    values = (RAMP.astype(np.int16) - 1000).copy()
    values[:2] = -2000
    path = save_dicom(tmp_path / "ct.dcm", values, PixelPaddingValue=-2000)
    grey = read_grey(path)
    assert grey is not None
    assert grey.values.min() == values[2:].min()


def test_the_first_of_several_frames_is_used(tmp_path: Path) -> None:
    frames = np.stack([RAMP, RAMP[::-1]])
    path = save_dicom(tmp_path / "cine.dcm", RAMP, NumberOfFrames=2, PixelData=frames.tobytes())
    assert decode(path, window="0:4032").changes == Change.WINDOWED | Change.FIRST_FRAME
    assert (grey_of(path, "0:4032") == Window(0, 4032).apply(RAMP)).all()


def test_an_image_outside_the_window_is_reported(tmp_path: Path) -> None:
    """As with files in other units, or of MONOCHROME1, whose stored values are inverted."""
    changes = decode(save_dicom(tmp_path / "far.dcm", RAMP), window="9000:9999").changes
    assert changes == Change.WINDOWED | Change.LOST
    *_, note = change_notes(np.array([int(changes)], np.uint8), window="9000:9999")
    assert "9000:9999" in note
    assert "--window" in note
    assert isinstance(read_image(tmp_path / "far.dcm", 8, "9000:9999"), Unreadable)
    assert not isinstance(read_image(tmp_path / "far.dcm", 8, "0:4032"), Unreadable)
    flat = decode(save_dicom(tmp_path / "flat.dcm", np.full_like(RAMP, 7)), window="9000:9999").changes
    assert flat == Change.WINDOWED  # nothing was lost


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "PALETTE COLOR"),
        ({"Rows": 60_000, "Columns": 60_000}, "more than"),
        ({"Rows": 100}, "ValueError"),
    ],
)
def test_a_dicom_file_that_cannot_be_shown_gives_the_reason(tags: dict[str, Any], why: str, tmp_path: Path) -> None:
    assert why in reason(save_dicom(tmp_path / "x.dcm", RAMP, **tags), "0:100")


def test_deep_colours_of_a_dicom_file_are_refused(tmp_path: Path) -> None:
    assert "RGB of 16 bits" in reason(save_dicom(tmp_path / "x.dcm", np.zeros((4, 4, 3), np.uint16)), "0:100")


def test_the_window_of_a_dataset_covers_every_domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = time.time_ns() + 60 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)  # the files are old: the window is remembered
    for domain, offset in (("a", 0), ("b", 500)):
        for label in ("x", "y"):
            (tmp_path / domain / label).mkdir(parents=True)
            for i in range(3):
                Image.fromarray(RAMP + np.uint16(offset + i)).save(tmp_path / domain / label / f"{i}.png")
    dataset = load(str(tmp_path), LoadOptions(image_size=8, progress=False, cache=tmp_path / "cache"))
    files = [sorted((tmp_path / domain).rglob("*.png")) for domain in ("a", "b")]
    values = [np.concatenate([np.asarray(Image.open(path)).reshape(-1) for path in each]) for each in files]
    low, high = np.quantile(values[0], 0.005), np.quantile(values[1], 0.995)
    assert dataset.window == f"{np.floor(low):g}:{np.ceil(high):g}" == choose_window(files)
    assert any("12" in note and dataset.window in note for note in dataset.notes)
    (kept,) = (path for path in (tmp_path / "cache" / "windows").rglob("*") if path.is_file() and path.stat().st_size)
    kept.write_bytes(kept.read_bytes()[:-9])  # a damaged file is not believed
    again = load(str(tmp_path), LoadOptions(image_size=8, progress=False, cache=tmp_path / "cache"))
    assert (again.window, again.fingerprint) == (dataset.window, dataset.fingerprint)
    given = load(str(tmp_path), LoadOptions(image_size=8, progress=False, cache=tmp_path / "cache", window="0:9000"))
    assert given.window == "0:9000"
    assert given.fingerprint != dataset.fingerprint


@pytest.mark.parametrize("text", ["400", "400:-1000", "a:b", "1:1", "0:inf", "1:2:3"])
def test_a_bad_window_is_an_error(text: str) -> None:
    with pytest.raises(UserError, match="LOW:HIGH"):
        parse_window(text)


def test_files_of_scanners() -> None:
    """CT and MR images that pydicom brings, uncompressed and compressed."""
    pydicom = pytest.importorskip("pydicom")
    from pydicom.data import get_testdata_file

    ct, plain, packed = (
        Path(str(get_testdata_file(name, download=False)))
        for name in ("CT_small.dcm", "MR_small.dcm", "MR_small_RLE.dcm")
    )
    raw = pydicom.dcmread(ct)
    stored = np.frombuffer(raw.PixelData, np.int16).reshape(raw.Rows, raw.Columns)
    grey = read_grey(ct)
    assert grey is not None
    assert (grey.values == float(raw.RescaleSlope) * stored + float(raw.RescaleIntercept)).all()
    assert (grey_of(plain, "dicom") == grey_of(packed, "dicom")).all()
    assert len(np.unique(grey_of(plain, "dicom"))) > 100
