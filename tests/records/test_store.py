"""A packed file rebuilds every table, and nothing damaged is read."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from fgmix.errors import UserError
from fgmix.records.store import pack, unpack, write_record
from fgmix.results.read import read_runs
from fgmix.results.report import tabulate
from results.made import sweep

RECORDS = sweep({"erm": [[0.5, 0.6, 0.7], [0.4, 0.6, 0.8]], "fgmix": [[0.6, 0.6, 0.7], [0.5, 0.7, 0.8]]})


def test_a_packed_file_gives_the_same_report_as_the_folders(tmp_path: Path) -> None:
    for number, record in enumerate(RECORDS):
        (tmp_path / "runs" / str(number)).mkdir(parents=True)
        write_record(record, tmp_path / "runs" / str(number) / "record.json")
    pack(RECORDS, tmp_path / "a.records.xz")
    assert tabulate(read_runs(tmp_path / "a.records.xz")).to_text() == tabulate(read_runs(tmp_path / "runs")).to_text()
    assert unpack(tmp_path / "a.records.xz")[0].folder is None


def test_the_order_of_the_records_does_not_matter(tmp_path: Path) -> None:
    pack(RECORDS, tmp_path / "a.records.xz")
    pack(RECORDS[::-1], tmp_path / "b.records.xz")
    assert (tmp_path / "a.records.xz").read_bytes() == (tmp_path / "b.records.xz").read_bytes()


def test_what_was_changed_cut_or_never_packed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.records.xz"
    pack(RECORDS, file)
    whole = file.read_bytes()
    changed = lzma.compress(lzma.decompress(whole).replace(b"0.5", b"0.9", 1))
    for content in (whole[:-20], whole[:100], changed, b"", b"no archive"):
        file.write_bytes(content)
        with pytest.raises(UserError, match=r"a\.records\.xz"):
            read_runs(file)


def test_an_existing_file_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.records.xz"
    file.write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        pack(RECORDS, file)
    assert file.read_text() == "mine"
    with pytest.raises(UserError, match=r"ends in \.records\.xz"):
        pack(RECORDS, tmp_path / "records.json")


def test_records_without_the_code_of_their_method_stay_as_they_are(tmp_path: Path) -> None:
    pack(sweep({"erm": [[0.5, 0.6, 0.7]]}), packed := tmp_path / "old.records.xz")
    assert b'"code"' not in lzma.decompress(packed.read_bytes())
    (first, *_) = unpack(packed)
    assert first.code == ""
