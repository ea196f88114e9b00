"""`unpack`: what it writes, and what it refuses, of archives made to harm."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fgmix.data.fetch import BadArchive, unpack
from fgmix.errors import UserError

MOST = 100_000  # bytes
FILES = {"kfold/photo/dog/1.jpg": b"one", "kfold/photo/Real World/2.jpg": b"", "notes.txt": b"x" * 3000}

Pack = Callable[[Path, dict[str, bytes]], Path]


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kfold/empty/", b"")
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


def make_tar(path: Path, files: dict[str, bytes]) -> Path:
    mode = "w:gz" if path.suffix == ".gz" else "w:"
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        archive.addfile(tar_info("kfold/empty", type=tarfile.DIRTYPE))
        for name, content in files.items():
            archive.addfile(tar_info(name, size=len(content)), io.BytesIO(content))
    return path


def tar_info(name: str, **values: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in values.items():
        setattr(info, key, value)
    return info


def tar_of(path: Path, info: tarfile.TarInfo, content: bytes = b"") -> Path:
    """A good file, then the member `info`."""
    with tarfile.open(path, "w") as archive:
        archive.addfile(tar_info("good.txt", size=2), io.BytesIO(b"ok"))
        archive.addfile(info, io.BytesIO(content))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


KINDS = [("a.zip", make_zip), ("a.tar", make_tar), ("a.tar.gz", make_tar)]
every_kind = pytest.mark.parametrize(("name", "pack"), KINDS, ids=["zip", "tar", "tar.gz"])


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "inside" / "target"
    folder.mkdir(parents=True)
    return folder


@every_kind
def test_every_kind_is_unpacked_whatever_its_name(tmp_path: Path, target: Path, name: str, pack: Pack) -> None:
    archive = pack(tmp_path / name, FILES).rename(tmp_path / "archive")
    assert unpack(archive, target, MOST, progress=False) == 3003
    assert contents(target) == FILES
    assert (target / "kfold" / "empty").is_dir()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE], ids=str
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, target: Path, kind: bytes) -> None:
    archive = tar_of(tmp_path / "a.tar", tar_info("link", type=kind, linkname="/etc"))
    with pytest.raises(BadArchive, match="'link'"):
        unpack(archive, target, MOST, progress=False)
    assert contents(target) == {"good.txt": b"ok"}


def test_modes_of_the_archive_are_ignored(tmp_path: Path, target: Path) -> None:
    unpack(tar_of(tmp_path / "a.tar", tar_info("run", size=1, mode=0o6777), b"x"), target, MOST, progress=False)
    assert not (target / "run").stat().st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IXUSR)


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path: Path, target: Path) -> None:
    """100 kB announced as 10 bytes, in both headers."""
    archive = make_zip(tmp_path / "a.zip", {"bomb": bytes(100_000)})
    data = archive.read_bytes()
    assert data.count(struct.pack("<I", 100_000)) == 2
    archive.write_bytes(data.replace(struct.pack("<I", 100_000), struct.pack("<I", 10)))
    with pytest.raises(BadArchive):
        unpack(archive, target, 200_000, progress=False)
    assert sum(map(len, contents(target).values())) <= 10


@every_kind
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_half_an_archive_is_refused(tmp_path: Path, target: Path, name: str, pack: Pack, share: float) -> None:
    noise = {f"{i}.jpg": np.random.default_rng(i).bytes(4000) for i in range(3)}
    archive = pack(tmp_path / name, noise)
    data = archive.read_bytes().rstrip(b"\0")  # a tar is padded with kilobytes of zeros
    archive.write_bytes(data[: int(share * len(data))])
    with pytest.raises(BadArchive, match="Expected a whole zip"):
        unpack(archive, target, MOST, progress=False)


@pytest.mark.parametrize(("name", "pack"), [KINDS[0], KINDS[2]], ids=["zip", "tar.gz"])
def test_a_flipped_bit_is_found(tmp_path: Path, target: Path, name: str, pack: Pack) -> None:
    noise = np.random.default_rng(0).bytes(4000)
    archive = pack(tmp_path / name, {"1.jpg": noise})
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 0x10
    archive.write_bytes(data)
    with pytest.raises(BadArchive):
        unpack(archive, target, MOST, progress=False)


@pytest.mark.parametrize("content", [b"\n<!doctype html><html>", b"Rar!\x1a\x07", b""])
def test_what_is_no_archive(tmp_path: Path, target: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(BadArchive, match=r"a\.zip"):
        unpack(tmp_path / "a.zip", target, MOST, progress=False)


def test_a_password_is_reported(tmp_path: Path, target: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"secret": b"x"})
    data = bytearray(archive.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1  # the flag of the last entry in the directory
    archive.write_bytes(data)
    with pytest.raises(BadArchive, match="'secret'"):
        unpack(archive, target, MOST, progress=False)


def test_an_unknown_packing_is_reported(tmp_path: Path, target: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"odd": b"x"})
    data = bytearray(archive.read_bytes())
    for header, offset in ((b"PK\x01\x02", 10), (b"PK\x03\x04", 8)):
        data[data.rindex(header) + offset] = 97  # WavPack
    archive.write_bytes(data)
    with pytest.raises(BadArchive, match="Expected a whole zip"):
        unpack(archive, target, MOST, progress=False)


@every_kind
def test_what_macos_adds_is_left_out(tmp_path: Path, target: Path, name: str, pack: Pack) -> None:
    litter = {"__MACOSX/photo/1.jpg": b"a", "photo/._1.jpg": b"b", "photo/.DS_Store": b"c", "photo/1.jpg": b"d"}
    unpack(pack(tmp_path / name, litter), target, MOST, progress=False)
    assert contents(target) == {"photo/1.jpg": b"d"}


def test_a_name_too_long_for_the_disk_is_one_sentence(tmp_path: Path, target: Path) -> None:
    with pytest.raises(UserError, match=r"Expected to write .*File name too long"):
        unpack(make_zip(tmp_path / "a.zip", {"n" * 300: b"x"}), target, MOST, progress=False)


@every_kind
@pytest.mark.parametrize("bad", ["../evil", "a/../../../evil", "/tmp/evil", "//evil", ".."])
def test_nothing_is_written_outside(tmp_path: Path, target: Path, name: str, pack: Pack, bad: str) -> None:
    archive = pack(tmp_path / name, {**FILES, bad: b"evil"})
    with suppress(UserError):
        unpack(archive, target, MOST, progress=False)
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(target)]
    assert outside == [archive]
    assert not Path("/tmp/evil").exists()
    assert not Path("/evil").exists()


def test_a_link_in_a_zip_becomes_a_file(tmp_path: Path, target: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc")
    unpack(tmp_path / "a.zip", target, MOST, progress=False)
    assert not (target / "link").is_symlink()


@every_kind
def test_a_bomb_is_refused_before_it_is_written(tmp_path: Path, target: Path, name: str, pack: Pack) -> None:
    large = pack(tmp_path / name, {"1": bytes(60_000), "2": bytes(60_000)})
    with pytest.raises(UserError, match=r"at most 0\.1 MB.*--max-gb"):
        unpack(large, target, MOST, progress=False)
    assert list(contents(target)) == ["1"]
