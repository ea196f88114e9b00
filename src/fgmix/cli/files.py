"""Runs and sweeps as files: `run.toml`, `sweep.toml`, and the `spec.json` of any run's folder."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.errors import UserError, bad_value
from fgmix.records.files import read_bytes, read_json
from fgmix.records.store import SPEC

RunFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        show_default=False,
        help="run.toml, or the folder or spec.json of a run to repeat; flags override it",
    ),
]
SweepFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", show_default=False, help="sweep.toml with these options; flags override it"),
]


def read_run(path: Path | None, known: Collection[str]) -> dict[str, Any]:
    """Read the options of a run from a TOML file, or from the spec.json of a run or of a run's folder.

    Paths in a file are relative to the current folder. The run of a folder is repeated, or resumed, in that folder
    unless `out` is overridden.

    Args:
        path: of the file; None for no file.
        known: names of options, as keys of the file.
    """
    if path is None:
        return {}
    if os.path.isdir(path):
        path = path / SPEC
    if path.suffix != ".json":
        return read_toml(path, known)
    spec = read_json(path).get("spec")
    if not isinstance(spec, dict):
        raise UserError(f"Expected the {SPEC} of a run at {path}. Found another file. Name a run's folder.")
    return {"out": str(path.absolute().parent.parent)} | {name: value for name, value in spec.items() if name in known}


def read_toml(path: Path | None, known: Collection[str]) -> dict[str, Any]:
    """Read a TOML file whose keys are among `known`; None for no file."""
    if path is None:
        return {}
    if not os.path.lexists(path):
        raise UserError(f"Expected a TOML file at {path}. Found none. Options are given as --name value.")
    try:
        values = tomllib.loads(read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"Expected a TOML file at {path}. Found an error in it: {error}.") from error
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            guess = f" Did you mean `{near[0]}`?" if near else " Keys are the names of options, with _ for -."
            raise UserError(f"Unknown key `{name}` in {path}.{guess}")
    return values


def take_table(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Remove a table from the values of a file and return it; an empty one if there is none."""
    table = values.pop(name, {})
    if not isinstance(table, dict):
        raise UserError(f"Expected a table [{name}] in the file. Found {table!r}. Write name = value below [{name}].")
    return table


def take_names(values: dict[str, Any], name: str) -> list[str]:
    """Remove a list of names from the values of a file and return it; a single name is a list of one."""
    names = values.pop(name, [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise UserError(f'Expected `{name}` in the file as a list of names, such as ["a", "b"]. Found {names!r}.')
    return names


def take_path(values: dict[str, Any], name: str) -> Path | None:
    """Remove a path from the values of a file and return it; None if there is none."""
    path = values.pop(name, None)
    if path is not None and not isinstance(path, str):
        raise bad_value(name, "a path", path)
    return None if path is None else Path(path)
