"""Flags from declarations: a command gets a flag for each declared field of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fgmix.errors import UserError
from fgmix.fields import Field, fields_of
from fgmix.records.schema import flag_of

Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="name=value of a setting of the method; may be repeated", rich_help_panel="Method"),
]
TestDomains = Annotated[
    list[str],
    typer.Option("--test-domain", help="domain to hold out; repeat for several", rich_help_panel="Data"),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps")]
Targets = Annotated[
    list[str] | None,
    typer.Option("--log", help="also log evaluations to tensorboard, wandb or mlflow; may be repeated"),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="hide progress bars")]
Command = Callable[..., None]


def flags(cls: type, parameter: str, omit: Collection[str] = ()) -> Callable[[Command], Command]:
    """Decorator: adds a flag for each declared field of `cls`; the command gets their values as a dictionary.

    Args:
        cls: a dataclass with declared fields.
        parameter: the command's parameter for the dictionary.
        omit: fields without a flag.
    """
    declared = {name: field for name, field in fields_of(cls).items() if name not in omit}

    def expand(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in declared}
            command(**given, **{parameter: values})

        own = inspect.signature(command, eval_str=True).parameters.values()
        added = [_parameter(field) for field in declared.values()]
        parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name != parameter]
        run.__signature__ = inspect.Signature([*added, *parameters])  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {p.name: p.annotation for p in (*added, *parameters)}
        return run

    return expand


def _parameter(field: Field) -> inspect.Parameter:
    """A flag for typer; bounds and choices are checked by the field, when the values are used."""
    shown = f"{field.help} ({', '.join(field.choices)})" if field.choices else field.help
    kind = str if field.choices else field.kind
    info = typer.Option(
        help=shown,
        rich_help_panel=field.metadata.get("group"),
        envvar=field.metadata.get("envvar"),
        show_default=field.default not in (None, "", MISSING),
    )
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


class JoinsLists(TyperCommand):
    """A command whose options of comma-separated names may be repeated; all names are used."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # click's context, which typer keeps to itself
        lists = {o for p in self.params for o in p.opts if "comma-separated" in (getattr(p, "help", None) or "")}
        return super().parse_args(ctx, joined(args, lists))


def joined(words: list[str], lists: Collection[str]) -> list[str]:
    """The words of a command, with repeated options of `lists` joined into one.

    >>> joined(["--algorithms", "erm", "--trials", "1", "--algorithms=coral,sd"], ["--algorithms"])
    ['--algorithms', 'erm,coral,sd', '--trials', '1']
    """
    found: list[str] = []
    places: dict[str, int] = {}
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        names = value if equals else next(rest, None) if option in lists else None
        if option not in lists or names is None:
            found.append(word)
        elif option in places:
            found[places[option]] += f",{names}"
        else:
            found += [option, names]
            places[option] = len(found) - 1
    return found


def refuse(context: typer.Context, names: Iterable[str], where: str) -> None:
    """Raise an error for flags that were given but have no effect.

    Args:
        context: of the command.
        names: of its parameters.
        where: when these have no effect, such as "without --serve".
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UserError(f"Option {flag_of(name.rstrip('_'))} has no effect {where}. Drop it.")


def settings_of(algorithm: str, texts: list[str] | None) -> dict[str, Any]:
    """The settings of a method from the texts of `--set name=value`."""
    from fgmix.algorithms import get

    pairs = pairs_of(texts or [])
    if "steps" in pairs:
        raise UserError("The number of steps is given with --steps, not with --set.")
    return get(algorithm).Config.parse(pairs)


def pairs_of(texts: list[str], option: str = "--set") -> dict[str, str]:
    """["gamma=10"] → {"gamma": "10"}; `option` is the flag, for error messages."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"Expected {option} name=value. Found {text!r}.")
        if name.strip() in pairs:
            raise UserError(f"Expected {option} {name.strip()}=… once. Found it several times. Drop all but one.")
        pairs[name.strip()] = value
    return pairs


def listed(text: str | None) -> tuple[str, ...]:
    """ "a, b" → ("a", "b"); None and "" → ()."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
