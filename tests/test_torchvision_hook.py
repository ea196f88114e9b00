"""The hook that lets every program of an environment import torchvision."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fgmix.torchvision_hook import install


def test_the_hook_waits_until_torchvision_is_imported(tmp_path: Path) -> None:
    install(tmp_path)
    code = (
        f"import site, sys; site.addsitedir({str(tmp_path)!r})\n"
        "print(type(sys.meta_path[0]).__module__, 'torch' in sys.modules)\n"
        "import torchvision\n"
        "print(torchvision.transforms.Resize(8).size, any(type(f).__name__ == 'Finder' for f in sys.meta_path))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["fgmix.torchvision_hook False", "8 False"]


def test_fgmix_imports_torchvision_where_the_hook_is_installed(tmp_path: Path) -> None:
    """The hook is asked while fgmix looks for torchvision: the operators are declared once."""
    install(tmp_path)
    code = (
        f"import site; site.addsitedir({str(tmp_path)!r})\n"
        "from fgmix.networks._torchvision import ensure_torchvision\n"
        "ensure_torchvision()\n"
        "import timm; print(len(timm.list_models('resnet18')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"
