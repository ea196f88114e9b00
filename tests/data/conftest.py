"""Fixtures of the data tests."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from fgmix.networks._torchvision import ensure_torchvision


@pytest.fixture
def image_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for this test alone."""
    path = tmp_path / "cache"
    monkeypatch.setenv("FGMIX_CACHE", str(path))
    monkeypatch.delenv("FGMIX_DECODED_GB", raising=False)
    return path


@pytest.fixture(scope="session")
def v2() -> ModuleType:
    """torchvision's transforms, which ours are compared with."""
    ensure_torchvision()
    from torchvision.transforms import v2

    return v2
