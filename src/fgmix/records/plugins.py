"""Plug-ins: methods, datasets and backbones in other packages (entry points) or in single files (`--plugin FILE`).

Each registry loads the entry points of its group. A file registers what it defines when it is imported; the workers of
a sweep import the files that the sweep has imported.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from os import PathLike
from pathlib import Path
from typing import Any

from fgmix.errors import UserError
from fgmix.records.files import check_path
from fgmix.records.source import digest_modules, keep_sources

_FILES: dict[str, Path] = {}  # imported files, by the name of their module


def load_file(file: str | PathLike[str]) -> None:
    """Import a file once, as the module of its name, with what it imports from its own folder."""
    path = check_path("plugin", file).expanduser().absolute()
    name = path.stem
    if _FILES.get(name) == path:
        return
    if path.suffix != ".py" or not path.is_file():
        raise UserError(f"Expected a plug-in, a Python file, at {file}. Found none. Check the path.")
    other = find_spec(name) if name.isidentifier() and name not in sys.modules else None
    if not name.isidentifier() or name in sys.modules or (other is not None and other.origin != str(path)):
        raise UserError(f"Expected a plug-in whose name no other module has. Found {file}. Rename the file.")
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None  # that of files that end in .py
    module = sys.modules[name] = module_from_spec(spec)
    sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a plug-in may raise anything
        del sys.modules[name]
        sys.path.remove(str(path.parent))
        raise UserError(f"The plug-in {file} cannot be imported: {_explain(error)}. Repair it.") from error
    _FILES[name] = path
    keep_sources((name,))


def list_files() -> tuple[str, ...]:
    """List the imported files, for processes that should import them, too."""
    return tuple(map(str, _FILES.values()))


def has_plug_ins(group: str) -> bool:
    """Say whether there may be plug-ins of a group: an installed package that declares one, or an imported file."""
    return bool(_FILES) or bool(entry_points(group=group))


def load_group(group: str, register: Callable[[str, Any], object]) -> dict[str, str]:
    """Register what the entry points of a group load, with a warning for each that fails; return these by name."""
    failures = {}
    for point in entry_points(group=group):
        try:
            register(point.name, point.load())
        except Exception as error:  # a plug-in may raise anything
            failures[point.name] = (
                f"The plug-in {point.name!r} ({point.value}) cannot be imported: {_explain(error)}. "
                "Repair or uninstall the package that provides it."
            )
            warnings.warn(failures[point.name], stacklevel=4)
    return failures


def name_origin(group: str, names: list[str], module: str) -> str:
    """Name where the code of plug-ins is from: the packages with their versions, or the file; empty for our own."""
    packages = [each.dist for each in entry_points(group=group) if each.name in names and each.dist]
    files = [_FILES[module].name] if module in _FILES else []
    return " ".join([*(f"{each.name} {each.version}" for each in packages), *files])


def describe_plug_in(group: str, name: str, made_by: Any) -> str:
    """Describe the code of a dataset or a backbone: the digest of its module, and where it is from.

    Empty for our own, and if there is no source, as in a notebook.
    """
    module = getattr(made_by, "func", made_by).__module__  # of what a partial calls
    digest = "" if module.startswith("fgmix.") else digest_modules([module])
    return f"{digest} {name_origin(group, [name], module)}".strip() if digest else ""


def _explain(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
