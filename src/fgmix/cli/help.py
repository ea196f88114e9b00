"""Help of a command: everyday options by group, one or two lines each; `--help-all` lists all of them."""

from __future__ import annotations

import difflib
import re
from typing import Any

from typer.core import TyperCommand, TyperGroup

from fgmix.cli.domainbed import advise
from fgmix.errors import UserError, unknown

ALL = "fgmix.all"  # key in `context.meta` while `--help-all` prints
WIDEST = 28  # characters of the column of names
ARGUMENTS = "Arguments"
REQUIRED = "Required, here or in FILE"
OTHERS = "Other options"
_VALUES = {  # what stands for the value of an option in the help, where it is not NAME
    "DATA": "dataset",
    "DATASET ALGORITHM DOMAIN": "explain",
    "DIGEST": "sha256",
    "FILE": "archive pack plugin records weights",
    "FOLDER": "cache data_root from_domainbed out to_domainbed",
    "GB": "max_gb",
    "N": "directions image_size mixed pairs port resolution samples seed steps trial_seed",
    "NAME=A,B,…": "grid",
    "NAME=VALUE": "set_ settings slurm where",
    "NAMES": "algorithms datasets test_domains",
    "RULE": "selection",
    "RUN": "beside",
    "SECONDS": "every",
    "TEXT": "arm intended_use licence title",
    "TIME": "budget",
}
VALUES = {name: value for value, names in _VALUES.items() for name in names.split()}
VALUES |= {name: name.upper() for name in ("address", "device", "format", "scope", "url")}


class Command(TyperCommand):
    """A command whose help has a section for each group of options, without the names of Python types."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command; an option that fgmix does not have is an error that names ours."""
        if "--help-all" in args and any(parameter.name == "help_all" for parameter in self.params):
            ctx.meta[ALL] = True
            args = ["--help"]
        words = [self.name or "", *args]
        for before, word in zip(words, args):
            if not word or (word.startswith("--") and word.endswith("=")):  # such as of a variable that is not set
                place = word.rstrip("=") or before
                raise UserError(
                    f"Expected a value after {place}. Found an empty one. Check the variable it comes from."
                )
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # click's, which typer keeps to itself
            advise(words)
            if hasattr(error, "format_message"):  # no end, as after --help
                raise UserError(_describe_misuse(error, ctx.command_path)) from error
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments as the help does; typer would put required ones in braces."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *(_write_name(each) + ("..." if each.nargs == -1 else "") for each in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # click's, which typer keeps to itself
        """Write the sections: what is required first, options without a group last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if not getattr(parameter, "hidden", False) or ctx.meta.get(ALL):
                is_argument = parameter.param_type_name == "argument"
                section = ARGUMENTS if is_argument else getattr(parameter, "rich_help_panel", None) or OTHERS
                sections.setdefault(section, []).append((_write_name(parameter), _write_help(parameter)))
        for section in sorted(
            sections, key=lambda name: (name != ARGUMENTS, not name.startswith("Required"), name == OTHERS)
        ):
            with formatter.section("Options" if section == OTHERS and len(sections) <= 2 else section):
                formatter.write_dl(sections[section], col_max=WIDEST)


class Group(TyperGroup):
    """A group of commands, of which an unknown one is an error with the closest name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


def _describe_misuse(error: Any, command: str) -> str:
    """Write an error of typer like ours: one sentence, the option that may have been meant, and where the help is."""
    possible = getattr(error, "possibilities", None) or ()
    near = difflib.get_close_matches(error.option_name, possible, n=1) if possible else []
    what = (error.message if near else error.format_message()).rstrip(".")
    what = re.sub(r"Input should be (a valid \w+), unable to .*", r"Expected \1", what)
    return f"{what}.{f' Did you mean {near[0]}?' if near else ''} See `{command} --help`."


def _write_name(parameter: Any) -> str:
    """Write `FILE`, `--steps N` or `--[no-]frozen`."""
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
        return name if parameter.required else f"[{name}]"
    name = max(parameter.opts, key=len)
    if parameter.secondary_opts:
        return f"--[no-]{name.removeprefix('--')}"
    return name if parameter.is_flag else f"{name} {parameter.metavar or VALUES.get(parameter.name, 'NAME')}"


def _write_help(parameter: Any) -> str:
    """Write the help with the default value and the environment variable, if there are any."""
    default = parameter.default if getattr(parameter, "show_default", False) else None
    notes = [] if isinstance(default, bool) or default in (None, "", [], ()) else [f"default: {default}"]
    notes += [f"or ${parameter.envvar}"] if parameter.envvar else []
    return " ".join([parameter.help or "", *(f"[{note}]" for note in notes)])
