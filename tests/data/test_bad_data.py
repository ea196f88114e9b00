"""Bad data of every kind: one sentence each, within a moment and without taking memory."""

from __future__ import annotations

import gzip
import io
import os
import re
import socket
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data.pictures import make_folder, picture, truncate, two_domains
from data.test_images import png16
from fgmix.data import LoadOptions, from_arrays, load
from fgmix.data.checks import check_images
from fgmix.data.image_dataset import prepare_images
from fgmix.data.images import try_decode
from fgmix.data.mnist import read_idx
from fgmix.errors import MachineError, UserError

pytestmark = pytest.mark.usefixtures("image_cache")

X = np.arange(24, dtype=np.float64).reshape(8, 3)
Y = np.array(["cat", "dog"] * 4)
D = np.array([1, 1, 1, 1, 0, 0, 0, 0])
Make = Callable[[Path], Any]


def load_quietly(path: Any) -> object:
    return load(str(path), LoadOptions(image_size=8, progress=False))


@dataclass(frozen=True)
class Case:
    """One bad input.

    Args:
        name: of the case.
        value: the name or value that the message should contain.
        make: makes the fixture in an empty folder; returns what `call` gets.
        call: what a user does with it.
    """

    name: str
    value: str
    make: Make
    call: Callable[[Any], object] = load_quietly


# How the fixtures are made


def in_class(spoil: Callable[[Path], object]) -> Make:
    """A sound folder with one more file, art/cat/x.png, that `spoil` makes."""

    def make(folder: Path) -> Path:
        root = two_domains(folder / "pets")
        spoil(root / "art" / "cat" / "x.png")
        return root

    return make


def listen(path: Path) -> None:
    """A socket; its path may be short only, so it is made from within its folder."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)


def npz(**arrays: Any) -> Make:
    def make(folder: Path) -> Path:
        np.savez(folder / "a.npz", **{"X": X, "y": Y, "domain": D, **arrays})
        return folder / "a.npz"

    return make


def only(**arrays: Any) -> Make:
    def make(folder: Path) -> Path:
        np.savez(folder / "a.npz", **arrays)
        return folder / "a.npz"

    return make


def raw_npz(
    header: str | bytes, body: bytes = b"", *, version: bytes = b"\x01\x00", announced: int | None = None
) -> Make:
    """An .npz file whose array X has this header; `announced` is what the archive says of its length."""

    def make(folder: Path) -> Path:
        text = header.encode() if isinstance(header, str) else header
        length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
        data = b"\x93NUMPY" + version + length + text + body
        np.savez(folder / "a.npz", y=Y, domain=D)
        with zipfile.ZipFile(folder / "a.npz", "a") as archive:
            archive.writestr("X.npy", data)
        if announced is not None:
            written = (folder / "a.npz").read_bytes()
            real, lie = struct.pack("<I", len(data)), struct.pack("<I", announced)
            assert written.count(real) >= 2
            (folder / "a.npz").write_bytes(written.replace(real, lie))
        return folder / "a.npz"

    return make


def dict_header(shape: str, descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


def cut_npz(keep: float) -> Make:
    def make(folder: Path) -> Path:
        path: Path = npz()(folder)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])
        return path

    return make


def flipped_npz(folder: Path) -> Path:
    path: Path = npz()(folder)
    data = bytearray(path.read_bytes())
    data[data.index(X.tobytes()) + 5] ^= 1
    path.write_bytes(data)
    return path


def locked_npz(folder: Path) -> Path:
    """The bit that says: encrypted."""
    path: Path = npz()(folder)
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            data[at + offset] |= 1
    path.write_bytes(data)
    return path


def twice_npz(folder: Path) -> Path:
    path: Path = npz()(folder)
    packed = io.BytesIO()
    np.save(packed, X)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("X.npy", packed.getvalue())
    return path


def file(name: str, content: bytes) -> Make:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def csv(text: str, encoding: str = "utf-8") -> Make:
    """A manifest beside a folder `pets`; LINES stands for the lines that list it."""

    def make(folder: Path) -> Path:
        root = two_domains(folder / "pets")
        files = sorted(path.relative_to(folder) for path in root.rglob("*.png"))
        lines = "\n".join(f"{path},{path.parts[2]},{path.parts[1]}" for path in files)
        (folder / "list.csv").write_bytes(text.replace("LINES", lines).encode(encoding, "surrogateescape"))
        return folder / "list.csv"

    return make


def piped(name: str) -> Make:
    def make(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return make


def linked(name: str, target: str) -> Make:
    def make(folder: Path) -> Path:
        (folder / name).symlink_to(target)
        return folder / name

    return make


def folder_of(layout: dict[str, Any]) -> Make:
    return lambda folder: make_folder(folder / "pets", layout)


def named_class(name: str) -> Make:
    return folder_of({"art": {name: ["1.png"]}, "photo": {name: ["1.png"]}})


def sized(size: Any) -> Callable[[Any], object]:
    return lambda path: load(str(path), LoadOptions(image_size=size, progress=False))


def from_values(name: str, value: str, x: Any = X, **others: Any) -> Case:
    """A case of `from_arrays`."""
    return Case(name, value, lambda _: None, lambda _: from_arrays(x, **{"y": Y, "domain": D, **others}))


class Sparse:
    def toarray(self) -> np.ndarray:
        return X


IDX = bytes([0, 0, 8, 3]) + struct.pack(">III", 2, 2, 2) + bytes(8)

CASES = [
    # paths
    Case("empty name", "''", lambda _: ""),
    Case("NUL in a path", "cannot be read", lambda _: "a/b\0c"),
    Case("a path that is too long", "too long", lambda _: "x/" * 10 + "y" * 5000),
    Case("home of nobody", "nothing there", lambda _: "~no_such_user_here/data"),
    Case("a link to itself", "symbolic links", linked("loop", "loop")),
    Case("a link to nothing", "a link to nothing", linked("gone", "nowhere")),
    Case("a device", "a device", lambda _: "/dev/zero"),
    Case("a pipe", "a named pipe", piped("pipe")),
    Case("a pipe called .npz", "a named pipe", piped("pipe.npz")),
    Case("a pipe called .csv", "a named pipe", piped("pipe.csv")),
    Case("an endless .npz", "a device", linked("a.npz", "/dev/zero")),
    Case("an endless .csv", "a device", linked("a.csv", "/dev/zero")),
    Case("a single array", "a.npy", file("a.npy", b"")),
    Case("a text", "notes.txt", file("notes.txt", b"hello")),
    # folders
    Case("an empty folder", ".webp", lambda folder: folder),
    Case(
        "gif alone",
        "2 .gif",
        folder_of({"art": {"cat": ["1.gif"]}, "photo": {"cat": ["1.gif"]}}),
    ),
    Case("one domain", "'art'", folder_of({"art": {"cat": ["1.png"]}})),
    Case("no classes", "cat, dog", lambda folder: two_domains(folder / "pets") / "art"),
    Case("a newline in a class", "'a\\nb'", named_class("a\nb")),
    Case("a blank class", "' '", named_class(" ")),
    Case("bytes that are no text", "UTF-8", named_class(os.fsdecode(b"\xff"))),
    # sizes
    Case("image size 0", "image_size", two_domains, sized(0)),
    Case("image size -5", "image_size", two_domains, sized(-5)),
    Case("image size of a planet", "image_size", two_domains, sized(10**9)),
    Case("image size 2.5", "image_size", two_domains, sized(2.5)),
    Case("image size true", "image_size", two_domains, sized(True)),
    Case("image size in words", "image_size", two_domains, sized("big")),
    # files in folders
    Case("a pipe among images", "x.png", in_class(os.mkfifo)),
    Case("a device among images", "x.png", in_class(lambda path: path.symlink_to("/dev/zero"))),
    Case("a socket among images", "x.png", in_class(listen)),
    Case("a link to itself among images", "x.png", in_class(lambda path: path.symlink_to(path.name))),
    Case("an absent image", "x.png", in_class(lambda path: path.symlink_to("absent"))),
    Case("an empty image", "x.png", in_class(Path.touch)),
    Case("a text for an image", "x.png", in_class(lambda path: path.write_text("hello"))),
    Case("half an image", "x.png", in_class(lambda path: picture(0, 99, 99).save(path) or truncate(path))),
    Case("16-bit colour", "8 bits", in_class(lambda path: png16(path, 2, 3))),
    Case(
        "32-bit grey",
        "8 bits",
        in_class(lambda path: Image.fromarray(np.zeros((4, 4), np.int32)).save(path, "TIFF")),
    ),
    Case(
        "ten billion pixels",
        "pixels",
        in_class(lambda path: path.write_bytes(b"P6 100000 100000 255\n")),
    ),
    Case("no pixels", "x.png", in_class(lambda path: path.write_bytes(b"P6 0 10 255\n"))),
    Case("a pipe to check", "a named pipe", piped("pipe"), check_images),
    Case(
        "a pipe to prepare",
        "a named pipe",
        piped("pipe"),
        lambda path: prepare_images(path, LoadOptions()),
    ),
    # manifests
    Case("a manifest without lines", "list.csv", csv("path,label,domain\n")),
    Case("an empty manifest", "a header", csv("")),
    Case("other columns", "'file'", csv("file,class,domain\nLINES")),
    Case("one column more", "'patient'", csv("path,label,domain,patient\na,b,c,d")),
    Case("a column twice", "'label', 'domain', 'label'", csv("path,label,domain,label\n")),
    Case("semicolons", "path;label;domain", csv("path;label;domain\na;b;c")),
    Case("tabs", "commas", csv("path\tlabel\tdomain\na\tb\tc")),
    Case("a blank label", "label in line 2", csv("path,label,domain\na.png, ,art\n")),
    Case("no domain", "domain in line 3", csv("path,label,domain\na.png,cat,art\nb.png,cat,\n")),
    Case("a cell too many", "line 2", csv("path,label,domain\na.png,cat,art,x\n")),
    Case("a cell too few", "line 2", csv("path,label,domain\na.png,cat\n")),
    Case("missing files", "'a.png' (line 10)", csv("path,label,domain\nLINES\na.png,cat,art\n")),
    Case("NUL in a manifest", "line 2", csv("path,label,domain\na\0.png,cat,art\n")),
    Case("a path twice", "2 and 10", csv("path,label,domain\nLINES\npets/../pets/art/cat/1.png,cat,art\n")),
    Case("Latin-1", "position 18", csv("path,label,domain\n\udce9.png,cat,art\n")),
    Case("UTF-16", "UTF-8", csv("path,label,domain\n", "utf-16")),
    Case("an open quote", "list.csv", csv('path,label,domain\n"a.png,cat,art\n')),
    Case("an endless cell", "field limit", csv(f"path,label,domain\n{'x' * 200_000},cat,art\n")),
    Case(
        "a manifest of one domain",
        "'a'",
        csv("path,label,domain\npets/art/cat/1.png,c,a\n"),
    ),
    Case(
        "a split called test",
        "'test' in line 2",
        csv("path,label,domain,split\npets/art/cat/1.png,cat,art,test\n"),
    ),
    Case("a blank split", "split in line 2", csv("path,label,domain,split\npets/art/cat/1.png,cat,art,\n")),
    # .npz files
    Case("an empty .npz", "a.npz", file("a.npz", b"")),
    Case("a text called .npz", "a.npz", file("a.npz", b"hello, world")),
    Case("a .npy called .npz", "numpy.save", file("a.npz", b"\x93NUMPY\x01\x00v\x00")),
    Case("half an .npz", "damaged", cut_npz(0.5)),
    Case("an .npz without its end", "damaged", cut_npz(0.98)),
    Case("a bit flipped", "CRC", flipped_npz),
    Case("a password", "damaged", locked_npz),
    Case("wrong keys", "features, target", only(features=X, target=Y)),
    Case("no domain array", "X, y", only(X=X, y=Y)),
    Case("X and x", "X and x", npz(x=X)),
    Case("y and Y", "y and Y", npz(Y=Y)),
    Case("X twice", "X and X", twice_npz),
    Case("objects in X", "'X'", npz(X=np.array([{}] * 8))),
    Case("objects in y", ".astype(str)", npz(y=Y.astype(object))),
    Case("names of no kind", "classes", npz(y=D, classes=np.zeros((2, 2)))),
    Case("a name for nobody", "domains", npz(domains=np.array("ct"))),
    Case(
        "1.6 TB announced",
        "(400000000000,)",
        raw_npz(dict_header("(400000000000,)"), b"\0" * 64),
    ),
    Case("a shape below zero", "(-1,)", raw_npz(dict_header("(-1, -4)"), b"\0" * 16)),
    Case("fewer values than announced", "damaged", raw_npz(dict_header("(8, 3)"), b"\0" * 60)),
    Case(
        "an archive that lies, too",
        "shape (1000000000,)",
        raw_npz(dict_header("(1000000000, 1)"), announced=4_000_000_000 + 10 + len(dict_header("(1000000000, 1)"))),
    ),
    Case("a header that is code", "damaged", raw_npz("__import__('os').getcwd()\n")),
    Case("a deep header", "damaged", raw_npz("(" * 9000 + ")" * 9000 + "\n", version=b"\x02\x00")),
    Case("a header without an end", "damaged", raw_npz(b"{'descr': ")),
    Case("another version", "version", raw_npz(dict_header("(8, 3)"), version=b"\x09\x00")),
    Case("a dtype of nobody", "damaged", raw_npz(dict_header("(8, 3)", "'<q9'"))),
    # arrays
    from_values("labels with blanks", "' ' in row 2", y=["a", "b", " ", "a"] * 2),
    from_values("an empty label", "'' in row 0", y=["", "b"] * 4),
    from_values("labels that blanks tell apart", "['cat', 'cat ']", y=["cat", "cat "] * 4),
    from_values("a missing label as text", "'nan' in row 1", y=np.array(["cat", np.nan] * 4)),
    from_values("a missing label", "nan in row 1", y=np.array(["cat", np.nan] * 4, dtype=object)),
    from_values("labels of no kind", "None in row 1", y=np.array(["cat", None] * 4)),
    from_values("NaN labels", "nan in row 3", y=[0.0, 1, 0, np.nan, 1, 0, 1, 0]),
    from_values("fractions for labels", "0.5 in row 1", y=[0, 0.5] * 4),
    from_values("infinite labels", "inf in row 1", y=[0, np.inf] * 4),
    from_values("dates for labels", "datetime64", y=np.zeros(8, "M8[s]")),
    from_values("complex labels", "complex", y=np.zeros(8, complex)),
    from_values("bytes that are no UTF-8", "UTF-8", y=np.array([b"\xff", b"a"] * 4)),
    from_values("a newline in a label", "printable", y=["a\nb", "c"] * 4),
    from_values("blank domains", "domain", domain=["", "b"] * 4),
    from_values("labels beyond the names", "0…2", y=[0, 1, 2, 0] * 2, classes=["a", "b"]),
    from_values("labels without a name", "dog", classes=["cat", "cow"]),
    from_values("names twice", "a, a", y=D, classes=["a", "a"]),
    from_values("labels in a column", "(8, 1)", y=Y[:, None]),
    from_values("one label for all", "y ()", y="cat"),
    from_values("one domain for all", "domain ()", domain=1),
    from_values("labels missing at the end", "(7,)", y=Y[:7]),
    from_values("no samples", "(0, 3)", X[:0], y=Y[:0], domain=D[:0]),
    from_values("no features", "(8, 0)", X[:, :0]),
    from_values("images without rows", "(8, 3, 0, 4)", np.zeros((8, 3, 0, 4))),
    from_values("five axes", "(8, 1, 1, 3, 4)", np.zeros((8, 1, 1, 3, 4))),
    from_values("a number", "()", 3.0),
    from_values("ragged rows", "list", [[1], [2, 3]]),
    from_values("sparse rows", "x.toarray()", Sparse()),
    from_values("masked rows", "masked", np.ma.masked_equal(X, 5)),
    from_values("texts in x", "<U", X.astype(str)),
    from_values("objects in x", "object", X.astype(object)),
    from_values("times in x", "timedelta", X.astype("m8[s]")),
    from_values("NaN in x", "row 1", np.where(X == 5, np.nan, X)),
    # MNIST's files
    Case("half an idx file", "/a", file("a", IDX[:-4]), lambda path: read_idx(path, 3)),
    Case(
        "an idx file with a tail",
        "/a",
        file("a", IDX + b"x"),
        lambda path: read_idx(path, 3),
    ),
    Case("no idx file", "/a", file("a", b"hello"), lambda path: read_idx(path, 3)),
    Case(
        "an idx file of 10^27 bytes",
        "/a",
        file("a", IDX[:4] + b"\xff" * 12),
        lambda path: read_idx(path, 3),
    ),
    Case(
        "a packed idx file that is cut",
        "a.gz",
        file("a.gz", gzip.compress(IDX)[:-9]),
        lambda path: read_idx(path, 3),
    ),
    Case("a pipe for an idx file", "/a", piped("a"), lambda path: read_idx(path, 3)),
]


def test_the_table_is_long_and_names_every_case_once() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_data_gives_one_sentence(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    given = case.make(folder)
    with pytest.raises(UserError, match=re.escape(case.value)) as caught:
        case.call(given)
    assert str(caught.value)[-1] in ".?"
    assert "\n" not in str(caught.value)


def test_arrays_beyond_memory_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fgmix.data.arrays.free_memory", lambda: 1000)
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(UserError, match=r"fit into memory, 0\.0 GB"):
        load_quietly(npz(X=np.zeros((8, 30)))(tmp_path))


def test_lengths_of_arrays_are_compared_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(UserError, match=r"Expected y and domain of shape \(9,\)"):
        load_quietly(npz(X=np.zeros((9, 3)))(tmp_path))


def test_a_forbidden_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing below it may be left out in silence. Patched, because root may read everything."""
    root = two_domains(tmp_path)
    scandir = os.scandir

    def guarded(path: Any) -> Any:
        if Path(path) == root / "art" / "dog":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(UserError, match=r"art/dog.*Permission denied"):
        load_quietly(root)


@pytest.mark.parametrize("number", [5, 116], ids=["EIO", "ESTALE"])
def test_a_failing_disk_is_no_broken_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """--skip-unreadable must not leave out half a dataset because a mount is gone."""
    root = two_domains(tmp_path)

    def failing(path: Path) -> Any:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("fgmix.data.images.open_file", failing)
    with pytest.raises(MachineError, match=r"Expected to read .*1\.png.*then rerun"):
        load(str(root), LoadOptions(image_size=8, progress=False, skip_unreadable=True))
    with pytest.raises(MachineError):
        try_decode(root / "art" / "cat" / "1.png")


def test_data_that_is_gone_is_the_machines_fault() -> None:
    """A sweep's worker on a node without the mount must not fail the run."""
    with pytest.raises(MachineError):
        load("/no/such/folder")
    with pytest.raises(MachineError):
        load("PACS", LoadOptions(root=Path("/no/such/root")))


def test_without_a_home_the_cache_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("FGMIX_CACHE")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UserError, match="Set FGMIX_CACHE"):
        load("digits")
