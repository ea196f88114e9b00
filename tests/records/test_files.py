"""Files are whole or absent, and nothing of others is touched."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from fgmix.errors import MachineError, UserError
from fgmix.records import files
from fgmix.records.digests import Damaged, check_zip, digest_of
from fgmix.records.files import Draft, read_bytes, read_json, read_lines, remove_temporaries, write_bytes, write_json

# Atomic writes


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    write_json(path, {"accuracy": 0.5})
    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(MachineError, match=r"Expected to write .*record.json \(100 kB\)\. The disk is full\."):
        write_bytes(path, bytes(100_000))
    assert read_json(path) == {"accuracy": 0.5}
    assert list(tmp_path.iterdir()) == [path]


def no_space(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_name_appears_only_when_the_content_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.pt"
    seen = []
    monkeypatch.setattr(files.os, "fsync", lambda _: seen.append(path.exists()))
    write_bytes(path, b"weights")
    assert seen == [False]
    assert path.read_bytes() == b"weights"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("count", [1, 3, 7])
def test_a_disk_that_fills_up_in_the_middle_of_an_archive_is_reported_with_the_size_of_all_of_it(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(1, 100))

    class Full(io.BufferedWriter):
        def write(self, data: Any) -> int:
            return super().write(data) if next(calls) != count else no_space()

    monkeypatch.setattr(files, "open", lambda path, _: Full(io.FileIO(path, "x")), raising=False)
    with pytest.raises(MachineError, match=r"\(402 kB\)\. The disk is full"):
        Draft(tmp_path / "best.pt", partial(torch.save, {"weight": torch.zeros(100_000)}), seal=True).put()
    assert list(tmp_path.iterdir()) == []


def seal_as_before(content: bytes) -> bytes:
    """Seal an archive as versions before SHA-256 did."""
    comment = f"fgmix {digest_of(content)}".encode()
    return content[:-2] + len(comment).to_bytes(2, "little") + comment


@pytest.mark.parametrize("before", [False, True])
def test_every_change_of_an_archive_is_found(before: bool, tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    if before:
        torch.save({"weight": torch.ones(2)}, packed := io.BytesIO())
        path.write_bytes(seal_as_before(packed.getvalue()))
    else:
        Draft(path, partial(torch.save, {"weight": torch.ones(2)}), seal=True).put()
    with open(path, "rb") as file:
        check_zip(file, "last.pt")
        assert torch.load(file)["weight"].sum() == 2
    whole = path.read_bytes()
    for place in range(len(whole)):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]):
            with pytest.raises(Damaged):
                check_zip(io.BytesIO(damaged), "last.pt")


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary name that a write really uses is one that the clean-up finds."""
    (tmp_path / "keep.json").touch()

    def killed(_: int) -> None:
        (temporary,) = tmp_path.glob(".*")
        os.link(temporary, temporary.with_name(f"{temporary.name}2"))  # survives the write's own clean-up

    monkeypatch.setattr(files.os, "fsync", killed)
    write_bytes(tmp_path / "record.json", b"")
    assert len(list(tmp_path.iterdir())) == 3
    remove_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keep.json", "record.json"]


def test_a_planted_link_is_neither_followed_nor_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even who guesses the temporary name cannot make us write elsewhere."""
    monkeypatch.setattr("fgmix.records.files.secrets.token_hex", lambda _: "guessed")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    planted = tmp_path / ".record.json.guessed.tmp"
    planted.symlink_to(victim)
    with pytest.raises(MachineError, match="File exists"):
        write_json(tmp_path / "record.json", {"x": 1})
    assert victim.read_text() == "mine"
    assert planted.is_symlink()


def test_a_link_at_the_name_itself_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "record.json").symlink_to(victim)
    write_json(tmp_path / "record.json", {"x": 1})
    assert victim.read_text() == "mine"
    assert not (tmp_path / "record.json").is_symlink()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_permissions_are_those_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    """A group that shares a folder reads each other's results."""
    before = os.umask(umask)
    try:
        write_json(tmp_path / "record.json", {"x": 1})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "record.json").stat().st_mode) == mode


def test_equal_contents_are_equal_bytes(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": 1, "y": "λ"})
    write_json(tmp_path / "b.json", {"y": "λ", "x": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_broken_json_file_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("{")
    with pytest.raises(Damaged, match=r"at .*spec\.json"):
        read_json(tmp_path / "spec.json")


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, MachineError), (errno.ESTALE, MachineError), (errno.EACCES, UserError)]
)
def test_a_disk_that_fails_is_told_from_a_file_that_is_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[UserError]
) -> None:
    def failing(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    (tmp_path / "spec.json").touch()
    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(UserError, match=re.escape(os.strerror(number))) as raised:
        read_bytes(tmp_path / "spec.json")
    assert type(raised.value) is kind


def test_notes_are_read_past_half_a_line(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    assert read_lines(file) == []
    file.write_bytes(b'{"a": 1}\n3\n\0\xff\n' + b"[" * 100_000 + b'\n{"a": 2}\n{"a": ')
    assert read_lines(file) == [{"a": 1}, {"a": 2}]
