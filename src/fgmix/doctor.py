"""`fgmix doctor`: versions, devices, folders and extras of this installation, for bug reports."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

from fgmix.errors import UserError

_REQUIREMENT = re.compile(r"""([\w.-]+)[^;]*(?:;.*extra == ["']([\w-]+)["'])?""")
_DEVELOPMENT = "dev"  # the extra that users do not need


def diagnose() -> list[str]:
    """List versions, devices, folders and extras, with how to get what is missing."""
    return [*_list_versions(), "", *_list_devices(), "", *_list_folders(), "", *_list_extras()]


def _list_versions() -> Iterator[str]:
    import fgmix

    yield f"fgmix {fgmix.__version__} at {Path(__file__).parent}"
    yield f"Python {platform.python_version()} at {sys.executable}, {platform.platform()}"
    for name in _read_requirements().get("", []):
        yield _describe_package(name, "a dependency of fgmix: install fgmix again")


def _list_devices() -> Iterator[str]:
    threads = os.environ.get("OMP_NUM_THREADS")
    yield f"CPU: {os.cpu_count()} cores" + (f", OMP_NUM_THREADS={threads}" if threads else "")
    if not _supports_gpus():
        yield "GPU: none used (torch is built without GPU support); runs use the CPU"
        return
    import torch

    count = torch.cuda.device_count()
    for number in range(count):
        gpu = torch.cuda.get_device_properties(number)
        yield f"GPU cuda:{number}: {gpu.name}, {gpu.total_memory / 1e9:.0f} GB"
    if torch.backends.mps.is_available():
        yield "GPU mps: Apple silicon"
    elif not count:
        built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
        yield f"GPU: none found ({built}); runs use the CPU"


def _supports_gpus() -> bool:
    """Say whether torch may find a GPU, by the file that its build wrote: importing torch takes most of a second."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    build = run_path(str(Path(spec.origin).with_name("version.py")))
    return sys.platform == "darwin" or any(build.get(platform) for platform in ("cuda", "hip"))


def _list_folders() -> Iterator[str]:
    from fgmix.records.files import cache_dir

    try:
        yield _describe_folder("cache", cache_dir(), "FGMIX_CACHE")
    except UserError as error:
        yield f"cache: {error}"
    root = os.environ.get("FGMIX_DATA")
    if not root:
        yield "data root: not set; pass --data-root or set FGMIX_DATA for benchmarks such as PACS"
    else:
        yield _describe_folder("data root", Path(root).expanduser(), "FGMIX_DATA")


def _describe_folder(what: str, path: Path, variable: str) -> str:
    """Describe a folder: its path and free space, and whether it is missing or not writable."""
    there = next(each for each in (path, *path.absolute().parents) if os.path.exists(each))
    free = f"{shutil.disk_usage(there).free / 1e9:.0f} GB free"
    if not os.access(there, os.W_OK):
        return f"{what}: {path}, not writable; set {variable} to another folder"
    return f"{what}: {path}, {free}" if there == path else f"{what}: {path}, not made yet, {free}"


def _list_extras() -> Iterator[str]:
    for extra, packages in _read_requirements().items():
        if extra in ("", _DEVELOPMENT):
            continue
        for name in packages:
            yield f"extra {extra}: " + _describe_package(name, f"install it with `pip install 'fgmix[{extra}]'`")


def _describe_package(package: str, advice: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} is missing; {advice}"


def _read_requirements() -> dict[str, list[str]]:
    """Read the names of the packages that fgmix declares, by extra; the required dependencies under ""."""
    packages: dict[str, list[str]] = {"": []}
    for text in requires("fgmix") or ():
        match = _REQUIREMENT.fullmatch(text)
        if match:
            packages.setdefault(match[2] or "", []).append(match[1])
    return packages
