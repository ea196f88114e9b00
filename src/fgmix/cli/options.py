"""Flags from declarations: a command gets a flag for each declared option of a class. Shared flags are declared here.

The only module of the command line that reads declarations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from fgmix.cli.domainbed import advise_setting
from fgmix.cli.help import REQUIRED, HelpAll
from fgmix.errors import UserError, unknown
from fgmix.records.options import Option, options_of
from fgmix.records.options import check_options as check_options  # for the options of commands, declared likewise
from fgmix.records.options import declare as declare
from fgmix.records.schema import RunSpec, flag_of

Set = Annotated[
    list[str] | None, typer.Option("--set", help="setting of the method; may be repeated", rich_help_panel="Method")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps")]
Targets = Annotated[
    list[str] | None, typer.Option("--log", help="also log to tensorboard, wandb or mlflow; may be repeated")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="hide progress bars")]

K = TypeVar("K", bound=str)
Command = Callable[..., None]
# Options of a run that `--help` shows; `--help-all` shows the others, too.
EVERYDAY = (
    *("data_root", "image_size", "trial_seed"),
    *("backbone", "pretrained", "weights", "frozen"),
    *("steps", "batch_size", "seed", "precision", "keep"),
    *("protocol", "eval_every", "averaging", "metric"),
)
WITHOUT_FLAG = ("bf16",)  # `--precision bf16` says the same


@dataclass(frozen=True)
class Flags:
    """Which declared options of a class become flags.

    Args:
        cls: the class.
        omit: options without a flag.
        everyday: options that `--help` shows; None for all.
        required: options that are listed first, as required.
        section: of the help, for all of them; None for each option's own group.
        defaults: whether the help shows default values.
    """

    cls: type
    omit: Collection[str] = ()
    everyday: Collection[str] | None = None
    required: Collection[str] = ()
    section: str | None = None
    defaults: bool = True

    @property
    def fields(self) -> dict[str, Option]:
        """The options that become flags, by name."""
        return {name: field for name, field in options_of(self.cls).items() if name not in {*self.omit, *WITHOUT_FLAG}}

    def parameter(self, field: Option) -> inspect.Parameter:
        """Build a flag for typer; bounds and choices are checked by the declaration, when the values are used."""
        info = typer.Option(
            help=f"{field.help} ({', '.join(field.choices)})" if field.choices else field.help,
            metavar="N" if int in field.types else "X" if float in field.types else None,
            rich_help_panel=REQUIRED if field.name in self.required else self.section or field.about.group or None,
            envvar=field.about.envvar,
            show_default=self.defaults,
            hidden=self.everyday is not None and field.name not in {*self.everyday, *self.required},
        )
        is_required = field.default is MISSING
        kind = field.plain_type
        return inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if is_required else field.default,
            annotation=Annotated[kind | None if is_required else kind, info],
        )


def flags(**groups: Flags) -> Callable[[Command], Command]:
    """Add a flag for each declared option of the groups, and `--help-all`.

    Args:
        groups: by the command's parameter, which gets a dictionary of the values that the user has given.
    """

    def expand(command: Command) -> Command:
        @wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            del values["help_all"]  # its callback has printed
            given: dict[str, Any] = {"context": context} if "context" in own else {}
            for parameter, group in groups.items():
                every = {name: values.pop(name) for name in group.fields}
                given[parameter] = {name: value for name, value in every.items() if is_given(context, name)}
            command(**given, **values)

        own = inspect.signature(command, eval_str=True).parameters
        first = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        added = [group.parameter(field) for group in groups.values() for field in group.fields.values()]
        kept = [p.replace(kind=p.KEYWORD_ONLY) for p in own.values() if p.name not in {*groups, "context"}]
        last = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HelpAll)
        parameters = [first, *added, *kept, last]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return expand


def option_names(cls: type) -> list[str]:
    """List the names of a class's declared options."""
    return list(options_of(cls))


def check_run_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options of a run, and return them in their declared types."""
    return {name: options_of(RunSpec)[name].check(value) for name, value in options.items()}


def check_setting(config: type, name: str, value: Any) -> Any:
    """Check a setting of a method, a text by parsing it, and return it in its declared type."""
    declared = options_of(config)[name]
    return declared.parse(value) if isinstance(value, str) else declared.check(value)


def is_given(context: typer.Context, name: str, sources: Collection[str] = ("COMMANDLINE", "ENVIRONMENT")) -> bool:
    """Tell whether a parameter was given, on the command line or by an environment variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in sources


def override(context: typer.Context, file: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the values of a file with those given: the command line overrides the file, it the environment."""
    typed = {name: value for name, value in given.items() if is_given(context, name, ("COMMANDLINE",))}
    return {**given, **file, **typed}


def forbid(context: typer.Context, names: Iterable[str], where: str) -> None:
    """Raise an error for flags that were given but have no effect.

    Args:
        context: of the command.
        names: of its parameters.
        where: when these have no effect, such as "without --serve".
    """
    for name in names:
        if is_given(context, name, ("COMMANDLINE",)):
            raise UserError(f"Option {flag_of(name.rstrip('_'))} has no effect {where}. Drop it.")


def check_choice(kind: str, value: str, known: Collection[K]) -> K:
    """Return `value` if it is one of `known`; otherwise raise an error that names the closest one."""
    for each in known:
        if each == value:
            return each
    raise unknown(kind, value, known)


def parse_settings(algorithm: str, texts: Iterable[str] | None) -> dict[str, Any]:
    """Parse the settings of a method from the texts of `--set name=value`."""
    from fgmix.algorithms import get

    pairs = parse_pairs(texts or [])
    if "steps" in pairs:
        raise UserError("The number of steps is given with --steps, not with --set.")
    for name in pairs:
        advise_setting(algorithm, name)
    return get(algorithm).Config.parse(pairs)


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


def split_names(texts: str | Iterable[str] | None) -> tuple[str, ...]:
    """Split comma-separated names, of one text or several.

    >>> split_names(["erm", "coral, sd"]), split_names(None)
    (('erm', 'coral', 'sd'), ())
    """
    texts = [texts] if isinstance(texts, str) else texts or []
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
