"""`fgmix doctor` names what is there, and what is missing with its remedy."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fgmix import __version__, doctor


def test_versions_devices_folders_and_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FGMIX_DATA", str(tmp_path))
    lines = doctor.diagnose()
    assert lines[0].startswith(f"fgmix {__version__} at ")
    assert f"torch {torch.__version__}" in lines
    assert any(line.startswith(f"cache: {tmp_path / 'cache'}, not made yet, ") for line in lines)
    assert any(line.startswith(f"data root: {tmp_path}, ") for line in lines)
    assert any(line.startswith("extra export: onnx ") for line in lines)
    assert not any(line.startswith("extra dev") for line in lines), "tools of developers are no concern of users"


def test_what_is_missing_stands_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", missing)
    assert "extra ray: ray is missing; install it with `pip install 'fgmix[ray]'`" in doctor.diagnose()


def test_gpus_are_named_with_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_supports_gpus", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = SimpleNamespace(name="NVIDIA A100", total_memory=80e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    assert "GPU cuda:1: NVIDIA A100, 80 GB" in doctor.diagnose()


def test_a_folder_that_cannot_be_written_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    monkeypatch.setenv("FGMIX_CACHE", "/closed")
    assert "cache: /closed, not writable; set FGMIX_CACHE to another folder" in doctor.diagnose()
