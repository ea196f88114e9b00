"""Flags from declarations: a command gets a flag for each declared option of a class; a TOML file may give the same.

The only module of the command line that reads declarations. Shared flags are declared here.
"""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fgmix.cli.domainbed import advise, advise_setting
from fgmix.cli.help import REQUIRED
from fgmix.errors import UserError, unknown
from fgmix.records.code import load_plugin
from fgmix.records.digests import Damaged
from fgmix.records.files import read_bytes, read_json
from fgmix.records.options import Option, check_options, options_of
from fgmix.records.options import declare as declare  # for the options of commands, declared likewise
from fgmix.records.schema import flag_of
from fgmix.records.schema import options as options_of_run
from fgmix.records.store import SPEC

Set = Annotated[
    list[str] | None, typer.Option("--set", help="setting of the method; may be repeated", rich_help_panel="Method")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps")]
Quiet = Annotated[bool, typer.Option("--quiet", help="hide progress bars and notes")]
ACCEPT_CODE = "accept runs of other code of their method"
# Shown by `--help-all`: errors and notes name it where it is needed.
AcceptCode = Annotated[bool, typer.Option("--accept-code", help=ACCEPT_CODE, hidden=True)]
PLUGIN = "plugin"  # key of a file, like the flag of `accept_plugins`


HelpAll = Annotated[bool, typer.Option("--help-all", help="Show all options and exit.")]
LOG = "also log to tensorboard, wandb or mlflow; may be repeated"

K = TypeVar("K", bound=str)
Command = Callable[..., None]
Table = Mapping[str, Any]  # an option of values by name: a table in a file, and flags `name=value`
Names = tuple[str, ...]
# Options of a run that `--help` shows; `--help-all` shows the others, too.
EVERYDAY = (
    *("data_root", "image_size"),
    *("backbone", "pretrained", "weights", "frozen"),
    *("steps", "batch_size", "seed", "keep"),
    *("protocol", "averaging", "metric"),
)


class Checked:
    """Base class of a command's declared options, which are checked."""

    def __post_init__(self) -> None:
        check_options(self)


INDEPENDENT = {"seed", "trial_seed", "hparams_seed", "arm"}  # options of a run on which no default of another depends


@dataclass(frozen=True)
class Flags:
    """Which declared options of a class become flags."""

    cls: type  # the class
    omit: Collection[str] = ()  # options that are not the command's
    ignored: Collection[str] = ()  # options without a flag that a file may have, for another command
    everyday: Collection[str] | None = None  # options that `--help` shows; None for all
    required: Collection[str] = ()  # options that are listed first, as required
    section: str | None = None  # of the help, for all of them; None for each option's own group
    defaults: bool = True  # whether the help shows default values

    @cached_property
    def fields(self) -> dict[str, Option]:
        """The options that become flags, by name."""
        without = {*self.omit, *self.ignored}
        return {name: field for name, field in options_of(self.cls).items() if name not in without}

    def parameter(self, field: Option) -> inspect.Parameter:
        """Build a flag for typer; bounds and choices are checked by the declaration, when the values are used."""
        info = typer.Option(
            *([field.extra["flag"]] if "flag" in field.extra else []),
            help=f"{field.help} ({', '.join(field.choices)})" if field.choices else field.help,
            metavar="N" if int in field.types else "X" if float in field.types else field.extra.get("metavar"),
            rich_help_panel=REQUIRED if field.name in self.required else self.section or field.about.group or None,
            envvar=field.about.envvar,
            show_default=self.defaults,
            hidden=self.everyday is not None and field.name not in {*self.everyday, *self.required},
        )
        is_plain = field.kind not in (Table, Names)
        kind = field.plain_type if is_plain else list[str]
        if field.accepts_names:  # typer has no unions: a number in the text is parsed when the value is checked
            kind = str
        default = None if field.default is MISSING or not is_plain else field.default
        return _make_parameter(field.name, Annotated[kind | None if default is None else kind, info], default)

    def merge(self, context: typer.Context, values: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that the user has given: the command line overrides the file, it the environment.

        Flags of a table add to the file's.
        """
        merged: dict[str, Any] = {}
        for name, field in self.fields.items():
            if field.kind == Table:
                merged[name] = _read_table(file, name) if name in file else {}
                if values[name]:
                    merged[name] |= parse_pairs(values[name], field.extra.get("flag", flag_of(name)))
            elif field.kind == Names:
                in_file = _read_names(file, name) if name in file else ()
                merged[name] = tuple(values[name] or in_file)
            elif name in file and not is_given(context, name, ("COMMANDLINE",)):
                merged[name] = file[name]
            elif is_given(context, name):
                merged[name] = values[name]
        return merged


def flags(file: str = "", /, **groups: Flags) -> Callable[[Command], Command]:
    """Add a flag for each declared option of the groups, and `--help-all` if some are hidden.

    Args:
        file: help of the argument FILE, which may give the same options; empty for no such argument.
        groups: by the command's parameter, which gets a dictionary of the values that the user has given.
    """

    def expand(command: Command) -> Command:
        @wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            known = {name for group in groups.values() for name in (*group.fields, *group.ignored)}
            path = values.get("file")
            in_file: dict[str, Any] = {}
            if path:
                in_file = read_file(path, {*known, PLUGIN})
                for plugin in _read_names(in_file, PLUGIN):
                    load_plugin(plugin)
                if is_run(path):
                    forbid_defaults(context, in_file)
            merged = {name: group.merge(context, values, in_file) for name, group in groups.items()}
            rest = {name: values[name] for name in own if name in values}
            command(**merged, **rest, **({"context": context} if "context" in own else {}))

        hides = any(group.everyday is not None for group in groups.values())
        argument = typer.Argument(metavar="FILE", show_default=False, help=file)
        own = inspect.signature(command, eval_str=True).parameters
        kept = [p.replace(kind=p.KEYWORD_ONLY) for p in own.values() if p.name not in {*groups, "context"}]
        parameters = [
            _make_parameter("context", typer.Context, inspect.Parameter.empty),
            *([_make_parameter("file", Annotated[Path | None, argument], None)] if file else []),
            *(group.parameter(field) for group in groups.values() for field in group.fields.values()),
            *kept,
            *([_make_parameter("help_all", HelpAll, False)] if hides else []),  # `Command.parse_args` obeys it
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return expand


def accept_plugins(command: Command) -> Command:
    """Add a flag for files of Python that a command imports first."""

    @wraps(command)
    def run(**values: Any) -> None:
        for plugin in values.pop(PLUGIN) or ():
            load_plugin(plugin)
        command(**values)

    own = [p.replace(kind=p.KEYWORD_ONLY) for p in inspect.signature(command, eval_str=True).parameters.values()]
    shown = command.__name__ in ("list_", "train", "sweep", "fit")  # others: errors name it where it is needed
    text = "Python file that registers methods, datasets or backbones; repeatable"
    info = typer.Option("--plugin", help=text, hidden=not shown)
    parameters = [*own, _make_parameter(PLUGIN, Annotated[list[str] | None, info], None)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _make_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def is_given(context: typer.Context, name: str, sources: Collection[str] = ("COMMANDLINE", "ENVIRONMENT")) -> bool:
    """Tell whether a parameter was given, on the command line or by an environment variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in sources


def forbid(context: typer.Context, names: Iterable[str], where: str) -> None:
    """Raise an error for flags that were given but have no effect; `where` says when, such as "without --serve"."""
    written = {parameter.name: max(parameter.opts, key=len) for parameter in context.command.params}
    for name in names:
        if is_given(context, name, ("COMMANDLINE",)):
            raise UserError(f"Option {written[name]} has no effect {where}. Drop it.")


def require(**options: Any) -> None:
    """Raise an error for a required option that neither a flag nor a file has given."""
    for name, value in options.items():
        if not value:
            raise UserError(f"Missing option '{flag_of(name)}'. Pass it, or name a file that has it.")


def check_choice(kind: str, value: str, known: Collection[K]) -> K:
    """Return `value` if it is one of `known`; otherwise raise an error that names the closest one."""
    for each in known:
        if each == value:
            return each
    raise unknown(kind, value, known)


def parse_settings(algorithm: str, pairs: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the settings of a method that are texts; the others are checked with the run."""
    from fgmix.algorithms import get

    if "steps" in pairs:
        raise UserError("The number of steps is given with --steps, not with --set.")
    for name in pairs:
        advise_setting(algorithm, name)
    texts = {name: value for name, value in pairs.items() if isinstance(value, str)}
    return {**pairs, **(get(algorithm).Config.parse(texts) if texts else {})}


def parse_pairs(texts: Iterable[str], option: str = "--set") -> dict[str, str]:
    """Parse ["gamma=10"] into {"gamma": "10"}; `option` is the flag, for error messages."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"Expected {option} name=value. Found {text!r}.")
        if name.strip() in pairs:
            raise UserError(f"Expected {option} {name.strip()}=… once. Found it several times. Drop all but one.")
        pairs[name.strip()] = value
    return pairs


def parse_shares(texts: Iterable[str], option: str) -> dict[str, float]:
    """Parse ["ill=0.95"] into {"ill": 0.95}; `option` is the flag, for error messages."""
    shares = {}
    for name, text in parse_pairs(texts, option).items():
        try:
            shares[name] = float(text)
        except ValueError as error:
            raise UserError(f"Expected {option} {name}=… as a share, such as 0.95. Found {text!r}.") from error
    return shares


def split_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Split comma-separated names.

    >>> split_names(["erm", "coral, sd"])
    ('erm', 'coral', 'sd')
    """
    names = []
    for text in texts:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if text and not parts:  # all of them would be meant
            raise UserError(f"Expected names separated by commas. Found {text!r}. Name one, or drop the option.")
        names += parts
    return tuple(names)


def read_file(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Read options from a TOML file; those of a run also from its spec.json or its folder.

    Paths in a file are relative to the current folder. The run of a folder is repeated, or resumed, in that folder
    unless `out` is overridden.
    """
    if "dataset" in known and is_run(path):
        path = path / SPEC if os.path.isdir(path) else path
        try:
            spec = read_json(path).get("spec")
        except Damaged as error:
            raise UserError(
                f"Expected the {SPEC} that a run wrote at {path}. Found another text, edited or written by hand. "
                "Write the options to a file run.toml instead, or give them as flags."
            ) from error
        if not isinstance(spec, dict):
            raise UserError(f"Expected the {SPEC} of a run at {path}. Found another file. Name a run's folder.")
        given = {name: value for name, value in spec.items() if name in known}
        return {"out": str(path.absolute().parent.parent), **given}
    if not os.path.lexists(path):
        advise(sys.argv[1:])  # the word may be one of DomainBed's, or the second value of an option
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


def is_run(path: Path) -> bool:
    """Tell whether FILE is a run's folder or its spec.json."""
    return os.path.isdir(path) or path.suffix == ".json"


def forbid_defaults(context: typer.Context, spec: Mapping[str, Any]) -> None:
    """Raise an error for flags on which other options of a run depend: its spec has their defaults filled in."""
    dependent = {name for name, option in options_of_run(INDEPENDENT).items() if not option.about.place}
    for name in dependent & spec.keys():
        if is_given(context, name, ("COMMANDLINE",)):
            raise UserError(
                f"Option {flag_of(name)} cannot change a finished description: other options of the run depend on it. "
                "Write the run as a TOML file, or as flags."
            )


def _read_table(file: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a copy of a table of a file."""
    table = file[name]
    if not isinstance(table, dict):
        raise UserError(f"Expected a table [{name}] in the file. Found {table!r}. Write name = value below [{name}].")
    return {**table}


def _read_names(file: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of names of a file; a single name is a list of one."""
    names = file.get(name, [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise UserError(f'Expected `{name}` in the file as a list of names, such as ["a", "b"]. Found {names!r}.')
    return names
