"""Names from other people's files in a terminal, a table and a spreadsheet."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from copying import replace
from fgmix.cli import app
from fgmix.escape import escape_csv, escape_markdown
from fgmix.records.files import write_json
from fgmix.records.schema import RunRecord
from fgmix.terminal import escape_line
from report.folders import write
from results.made import finished

HOSTILE = "x\x1b]0;owned\x07\n# heading | cell\r=1+1\u202e"


@pytest.mark.parametrize(
    "text", ["art_painting", "FGMix (γ = 10) + SWA", "-0.9 [-2.2, +0.5]", "λ₀ ≈ 3", "0.05 < p", "+90%", "a b", "10°"]
)
def test_everyday_names_stay_as_they_are(text: str) -> None:
    assert escape_line(text) == escape_markdown(text) == text
    assert escape_csv(text).lstrip("'") == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# a", r"\# a"),
        ("> a", r"\> a"),
        ("- a", r"\- a"),
        ("1. a", r"1\. a"),
        ("---", r"\---"),
        ("[a](b)", r"[a\](b)"),
        ("*a*", r"\*a\*"),
        ("_a_", r"\_a\_"),
        ("`a`", r"\`a\`"),
        ("a|b", r"a\|b"),
        (r"a\|b", r"a\\\|b"),
        ("<b>", r"\<b>"),
        ("a\n\n# b", "a # b"),
        ("\x1b[31m", r"\x1b[31m"),
    ],
)
def test_markup_in_a_name_is_text(text: str, expected: str) -> None:
    assert escape_markdown(text) == expected


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@sum", "\t=1", "\r=1", " =1", "-1 +cmd|x", "\n=1"])
def test_a_formula_is_text_in_a_spreadsheet(text: str) -> None:
    cell = escape_csv(text)
    assert cell.startswith("'")
    assert "\n" not in cell


def hostile_records() -> list[RunRecord]:
    return [
        replace(finished("a", value, algorithm=name, dataset=HOSTILE, domains="a b"), label=label)
        for name, label, value in (("erm", "ERM", 0.5), ("fgmix", HOSTILE, 0.6))
    ]


@pytest.mark.parametrize("format", ["md", "latex", "csv"])
def test_hostile_names_in_a_report(format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "runs", hostile_records())
    app(["report", str(folder), "--format", format], standalone_mode=False)
    printed = capsys.readouterr().out
    assert "x" in printed
    assert all(line.isprintable() for line in printed.split("\n"))
    if format == "csv":
        rows = list(csv.reader(io.StringIO(printed)))
        assert {len(row) for row in rows} == {10}
        assert not any(cell.startswith(("=", "@")) for row in rows for cell in row)
    elif format == "md":
        headings = [line for line in printed.split("\n") if line.startswith("#")]
        assert all(line.startswith("### ") for line in headings)
        rows = [line.replace(r"\|", "").count("|") for line in printed.split("\n") if line.startswith("| ")]
        assert rows[:4] == [rows[0]] * 4  # the first table: no name adds a cell


def test_hostile_names_in_an_explanation_and_a_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "runs", hostile_records(), waiting=1)
    app(["report", str(folder), "--explain", HOSTILE, "fgmix", "a"], standalone_mode=False)
    (folder / "waiting0").mkdir()
    write_json(folder / "waiting0" / "error.json", {"error": HOSTILE, "traceback": ""})
    app(["status", str(folder)], standalone_mode=False)
    printed = capsys.readouterr().out
    assert printed.count("x\\x1b]0;owned") >= 2
    assert all(line.isprintable() for line in printed.split("\n"))
    assert not any(line.startswith("#") for line in printed.split("\n"))


def test_hostile_file_names_in_a_check_of_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for domain in ("a", "b"):
        folder = tmp_path / domain / "class"
        folder.mkdir(parents=True)
        (folder / "\x1b[2Jx.png").write_bytes(b"no image")
    with pytest.raises(SystemExit):
        app(["data", "check", str(tmp_path), "--quiet"])
    printed = capsys.readouterr().out
    assert "\\x1b[2Jx.png" in printed
    assert "\x1b" not in printed
