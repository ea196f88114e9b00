"""Code that a run depends on: plug-ins, and digests of the sources of methods, datasets and backbones.

Plug-ins are methods, datasets and backbones in other packages (entry points) or in single files (`--plugin FILE`). Each
registry loads the entry points of its group. A file registers what it defines when it is imported; the workers of a
sweep import the files that the sweep has imported.

Runs of an edited method are runs of another method. The digest covers the modules in which a method and its bases are
defined, and what they import from the rooms below and, for a plug-in, from its own package; of a dataset or a backbone
of a plug-in, its own package alone. Of a method in a notebook it covers its functions. Comments, docstrings and layout
do not count.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, resolve_name, spec_from_file_location
from inspect import getsource, isfunction
from os import PathLike
from pathlib import Path
from textwrap import dedent
from typing import Any

from fgmix.errors import UserError
from fgmix.records.digests import digest_of
from fgmix.records.files import check_path

ROOMS = ("fgmix.algorithms", "fgmix.mixing", "fgmix.networks", "fgmix.functional")
_LENGTH = 12  # hex digits of a digest
_FILES: dict[str, Path] = {}  # imported files, by the name of their module
_FAILURES: dict[str, dict[str, str]] = {}  # of the groups that are loaded, by group and name


# Plug-ins


def load_plugin(file: str | PathLike[str]) -> None:
    """Import a Python file that registers methods, datasets or backbones, as `--plugin FILE` does.

    It is imported once, as the module of its name, with what it imports from its own folder. The workers of sweeps
    import it, too, also those that a notebook starts.
    """
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
    """Register once what the entry points of a group load, with a warning for each that fails; return these by name."""
    if group in _FAILURES:
        return _FAILURES[group]
    failures = _FAILURES[group] = {}
    for point in entry_points(group=group):
        try:
            register(point.name, point.load())
        except Exception as error:  # a plug-in may raise anything
            failures[point.name] = (
                f"The plug-in {point.name!r} ({point.value}) cannot be imported: {_explain(error)}. "
                "Repair or uninstall the package that provides it."
            )
            warnings.warn(failures[point.name], stacklevel=3)
    return failures


def import_function(name: str, purpose: str) -> Any:
    """Import a user's function by `module:function`."""
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except Exception as error:  # the module may raise anything
        raise UserError(
            f"Expected a function that {purpose}, as module:function. {name} cannot be imported ({_explain(error)}). "
            "Install its package, or pass its file with --plugin FILE."
        ) from error


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


# Digests of sources


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
            seen[name], _, imports = _examine(name)
            imported = _find_imports(name, imports)
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
def _examine(module: str) -> tuple[str, list[ast.stmt], list[ast.Import | ast.ImportFrom]]:
    """Compute the digest of one module, and find its statements and all of its imports, inside functions, too."""
    tree = ast.parse(keep_source(module))
    if module == "__main__":  # a script: what it does with its method is not the method
        tree.body = [each for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.ImportFrom)]
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return digest_of(repr(_simplify(tree)).encode(errors="surrogatepass")), tree.body, imports


def _simplify(node: Any) -> Any:
    """Turn a syntax tree into tuples and texts without docstrings; equal in all versions of Python."""
    if isinstance(node, list):
        bare = [each for each in node if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)]
        return [_simplify(each) for each in node if each not in bare]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return type(node).__name__, *((name, _simplify(value)) for name, value in fields)


def _find_imports(module: str, nodes: Iterable[ast.AST], wanted: str = "") -> Iterator[str]:
    """Find the modules that define what one module imports, inside functions, too, or only what it calls `wanted`.

    What it imports from a package may be defined in a module that the package has imported it from.
    """
    for node in nodes:
        if isinstance(node, ast.Import) and not wanted:
            yield from (alias.name for alias in node.names)
        if not isinstance(node, ast.ImportFrom):
            continue
        source = node.module or ""
        if node.level:
            source = resolve_name("." * node.level + source, sys.modules[module].__package__)
        for alias in node.names:
            if wanted and (alias.asname or alias.name) != wanted:
                continue
            if f"{source}.{alias.name}" in sys.modules:
                yield f"{source}.{alias.name}"
            elif hasattr(sys.modules.get(source), "__path__"):
                yield next(_find_imports(source, _examine(source)[1], alias.name), source)
            else:
                yield source
