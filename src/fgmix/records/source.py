"""The digest of a source: runs of an edited method are runs of another method.

It covers the modules in which a method and its bases are defined, and what they import from the rooms below and, for
a plug-in, from its own package; of a dataset or a backbone of a plug-in, its own package alone. Of a method in a
notebook it covers its functions. Comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import resolve_name
from inspect import getsource, isfunction
from pathlib import Path
from textwrap import dedent
from typing import Any

from fgmix.records.digests import digest_of

ROOMS = ("fgmix.algorithms", "fgmix.mixing", "fgmix.networks", "fgmix.functional")
_LENGTH = 12  # hex digits of a digest


def digest_source(cls: type, base: type) -> str:
    """Compute the digest of a class with its bases up to `base`; empty if there is no source."""
    classes = [each for each in cls.__mro__ if issubclass(each, base)]
    cells = [each for each in classes if not keep_source(each.__module__)]
    rest = digest_modules({each.__module__ for each in classes if each not in cells}, ROOMS)
    if not cells:
        return rest
    try:
        return digest_of(repr((rest, [_list_functions(each) for each in cells])).encode())[:_LENGTH]
    except (OSError, SyntaxError):  # typed into a shell
        return ""


def _list_functions(cls: type) -> list[tuple[str, Any]]:
    """List the simplified source of the methods of a class in a notebook, and of functions there that they name.

    Its module has no file, but the cells of its functions are known. Numbers and texts of the class are listed, too;
    defaults of settings are in the spec.
    """
    plain = {name: value for name, value in vars(cls).items() if isinstance(value, int | float | str)}
    found: dict[str, Any] = {name: value for name, value in plain.items() if not name.startswith("__")}
    left = [getattr(value, "__func__", value) for value in vars(cls).values()]
    while left:
        function = left.pop()
        if isfunction(function) and function.__module__ == cls.__module__ and function.__qualname__ not in found:
            tree = ast.parse(dedent(getsource(function)))
            found[function.__qualname__] = _simplify(tree)
            named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            left += (function.__globals__.get(name) for name in named)
    return sorted(found.items())


def digest_modules(modules: Iterable[str], rooms: tuple[str, ...] = ()) -> str:
    """Compute the digest of modules, with what they import from their own packages and from `rooms`."""
    left = sorted(modules)
    own = (name.partition(".")[0] for name in left if not name.startswith("fgmix."))
    followed = tuple(f"{package}." for package in (*rooms, *own))
    if not all(map(keep_source, left)):
        return ""
    seen: dict[str, str] = {}
    while left:
        name = left.pop()
        if name not in seen and keep_source(name):
            seen[name], imported = _examine(name)
            left += (other for other in imported if f"{other}.".startswith(followed))
    return digest_of(repr(sorted(seen.items())).encode())[:_LENGTH]


def keep_sources(packages: tuple[str, ...]) -> None:
    """Read the source of all loaded modules of some packages now: it may be edited while the process runs."""
    beginnings = tuple(f"{package}." for package in packages)
    for name in [name for name in sys.modules if f"{name}.".startswith(beginnings)]:
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
def _examine(module: str) -> tuple[str, list[str]]:
    """Compute the digest of one module, and list the modules that define what it imports, inside functions, too."""
    digest = digest_of(repr(_simplify(_parse(module))).encode(errors="surrogatepass"))
    imported = []
    for node in ast.walk(_parse(module)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported += [_find_definition(module, node, alias.name) for alias in node.names]
    return digest, imported


def _simplify(node: Any) -> Any:
    """Turn a syntax tree into tuples and texts without docstrings; equal in all versions of Python."""
    if isinstance(node, list):
        bare = [each for each in node if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)]
        return [_simplify(each) for each in node if each not in bare]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return type(node).__name__, *((name, _simplify(value)) for name, value in fields)


def _find_definition(module: str, node: ast.ImportFrom, name: str) -> str:
    """Return the module that defines a name which a module imports: a package may have imported it from elsewhere."""
    source = node.module or ""
    if node.level:
        source = resolve_name("." * node.level + source, sys.modules[module].__package__)
    if f"{source}.{name}" in sys.modules:
        return f"{source}.{name}"
    if hasattr(sys.modules.get(source), "__path__"):
        for each in (each for each in _parse(source).body if isinstance(each, ast.ImportFrom)):
            for alias in each.names:
                if (alias.asname or alias.name) == name:
                    return _find_definition(source, each, alias.name)
    return source
