"""Fixtures of the data tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def image_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for this test alone."""
    path = tmp_path / "cache"
    monkeypatch.setenv("FGMIX_CACHE", str(path))
    return path
