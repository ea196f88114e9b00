"""ARCHITECTURE.md names files and rooms that exist, and all rooms."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "fgmix"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_every_file_that_it_names_exists() -> None:
    named = re.findall(r"`([\w/.]+\.(?:py|js|html|md)|[\w/]+/)`", TEXT)
    assert len(named) > 60
    assert [name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()] == []


def test_every_room_is_named() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert {room for room in rooms if f"`{room}/`" not in TEXT} == set()
