"""The digest of a source: runs of an edited method are runs of another method.

It covers the modules in which a method and its bases are defined, and what they import from the rooms below and, for
a plug-in, from its own package; of a dataset or a backbone of a plug-in, its own package alone. Comments, docstrings
and layout do not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from fgmix.records.digests import digest_of

ROOMS = ("fgmix.algorithms", "fgmix.mixing", "fgmix.networks", "fgmix.functional")
_LENGTH = 12  # hex digits of a digest


def digest_source(cls: type, base: type) -> str:
    """Compute the digest of a class with its bases up to `base`; empty without source, as in a notebook."""
    return digest_modules({each.__module__ for each in cls.__mro__ if issubclass(each, base)}, ROOMS)


def digest_modules(modules: Iterable[str], rooms: tuple[str, ...] = ()) -> str:
    """Compute the digest of modules, with what they import from their own packages and from `rooms`."""
    left = sorted(modules)
    followed = (*rooms, *(name.partition(".")[0] for name in left if not name.startswith("fgmix.")))
    if not all(map(keep_source, left)):
        return ""
    seen: dict[str, str] = {}
    while left:
        name = left.pop()
        if name not in seen and keep_source(name):
            seen[name] = _digest_module(name)
            left += (other for other in _list_imports(name) if is_in(other, followed))
    return digest_of(repr(sorted(seen.items())).encode())[:_LENGTH]


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    """Say whether a module is one of these packages or in one of them."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def keep_sources(packages: tuple[str, ...]) -> None:
    """Read the source of all loaded modules of some packages now: it may be edited while the process runs."""
    for name in [name for name in sys.modules if is_in(name, packages)]:
        keep_source(name)


@cache
def keep_source(module: str) -> bytes:
    """Read the source of a loaded module once; empty if there is none."""
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        return Path(file).read_bytes() if file and file.endswith(".py") else b""
    except OSError:
        return b""


@cache
def _parse(module: str) -> ast.Module:
    tree = ast.parse(keep_source(module))
    if module == "__main__":  # a script: what it does with its method is not the method
        tree.body = [each for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.ImportFrom)]
    return tree


@cache
def _digest_module(module: str) -> str:
    return digest_of(repr(_simplify(_parse(module))).encode(errors="surrogatepass"))


def _simplify(node: Any) -> Any:
    """Turn a syntax tree into tuples and texts without docstrings; equal in all versions of Python."""
    if isinstance(node, list):
        return [_simplify(each) for each in node if not _is_bare_constant(each)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return type(node).__name__, *((name, _simplify(value)) for name, value in fields)


def _is_bare_constant(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _list_imports(module: str) -> Iterator[str]:
    """List the modules that define what a module imports, inside functions, too."""
    for node in ast.walk(_parse(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _find_source(module, node)
            yield from (_find_definition(source, alias.name) for alias in node.names)


def _find_source(module: str, node: ast.ImportFrom) -> str:
    """Return the full name of the module that a statement `from … import` names."""
    if not node.level:
        return node.module or ""
    return resolve_name("." * node.level + (node.module or ""), sys.modules[module].__package__)


def _find_definition(module: str, name: str) -> str:
    """Return the module that defines a name: a package may have imported it from elsewhere."""
    if f"{module}.{name}" in sys.modules:
        return f"{module}.{name}"
    if hasattr(sys.modules.get(module), "__path__"):
        for node in (each for each in _parse(module).body if isinstance(each, ast.ImportFrom)):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _find_definition(_find_source(module, node), alias.name)
    return module
