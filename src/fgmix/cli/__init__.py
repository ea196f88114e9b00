"""The command line: parse, call the library, print. Heavy imports wait until a command runs."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

import typer

from fgmix.cli import data, fit, model, plot, report, sweep, train
from fgmix.cli import list as list_
from fgmix.cli.help import Command, Group
from fgmix.cli.options import accept_plugins
from fgmix.errors import to_user_error
from fgmix.terminal import escape_line, print_error
from fgmix.training.memory import keep_freed_memory
from fgmix.training.signals import Stopped

MISTAKE = 2  # exit code of an error, as typer's
STOPPED = 75  # exit code of a run stopped by a signal: EX_TEMPFAIL of sysexits.h
INTERRUPTED = 130  # exit code of Ctrl-C, as in shells

app = typer.Typer(
    cls=Group,
    name="fgmix",
    help="Train classifiers on several domains for use on domains not seen in training (domain generalization).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)
app.add_typer(data.app, name="data")
plots = typer.Typer(cls=Group, help="Draw figures of finished runs and sweeps.", no_args_is_help=True)
app.add_typer(plots, name="plot")
READERS = {"demo", "status", "report", "doctor", "weights", "cd", "results"}  # run no code of a user's


def doctor() -> None:
    """Print versions, devices and folders, and what is missing.

    Example: fgmix doctor
    """
    from fgmix.doctor import diagnose

    print("\n".join(diagnose()))


def _add(group: typer.Typer, *commands: Callable[..., None]) -> None:
    for command in commands:
        name = command.__name__.rstrip("_")
        group.command(name, cls=Command)(command if name in READERS else accept_plugins(command))


_add(app, sweep.demo, list_.list_, train.train, sweep.sweep, sweep.plan, sweep.status, report.report, fit.fit)
_add(app, model.soup, model.predict, model.monitor, model.compare, model.export, doctor)
_add(plots, plot.weights, plot.cd, plot.results, plot.tsne, plot.flatness, plot.surface, plot.scores)


@app.callback(invoke_without_command=True)
def version(show: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if show:
        import fgmix

        print(f"fgmix {fgmix.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; expected errors are printed as one sentence, without a traceback, with exit code 2."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell (`>&-`): another file would get its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        getattr(sys, name).reconfigure(errors="backslashreplace")  # where a terminal lacks a character
    warnings.formatwarning = _format_warning
    keep_freed_memory()  # before the first tensor
    try:
        code = _run_command()
        sys.stdout.flush()  # raises an error if the disk is full
    except (Stopped, Exception) as error:
        sentence = str(error) if isinstance(error, Stopped) else to_user_error(error)
        if sentence is None:
            raise
        print_error(str(sentence))
        code = STOPPED if isinstance(error, Stopped) else MISTAKE
        _drop_output()
    sys.exit(code)


def _run_command() -> int:
    """Run the command and return its exit code."""
    try:
        app(prog_name="fgmix")  # the name for shell completion
    except SystemExit as stop:  # typer raises it at the end of every command
        if stop.code == INTERRUPTED:
            resumes = {"train", "sweep", "demo", "fit", "data"} & {*sys.argv[1:2]}
            print_error(f"Interrupted.{' Rerun the same command to resume.' if resumes else ''}")
        elif isinstance(stop.__context__, BrokenPipeError):  # `fgmix list | head`: not an error
            return 0
        return int(stop.code or 0)
    return 0


def _format_warning(message: Warning | str, *_: object, **__: object) -> str:
    """Write a warning like a note, without its line of code."""
    return f"note: {escape_line(' '.join(str(message).split()))}\n"


def _drop_output() -> None:
    """Drop output that cannot be written: Python would try again at exit, and print a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
