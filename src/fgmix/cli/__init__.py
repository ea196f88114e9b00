"""The command line: parse, call the library, print. One command per file; heavy imports wait until a command runs."""

from __future__ import annotations

import os
import sys
import warnings

import typer

from fgmix.cli import bench, data, demo, doctor, export, fit, plan, plot, predict, report, soup, status, sweep, train
from fgmix.cli import list as list_
from fgmix.cli.domainbed import FromDomainBed
from fgmix.errors import UserError, as_sentence
from fgmix.runs.stopping import Stopped

MISTAKE = 2  # exit code of a mistake, as typer's own
STOPPED = 75  # exit code of a run that a signal stopped: sysexits.h's "try again later"
INTERRUPTED = 130  # exit code of Ctrl-C, as in shells

app = typer.Typer(
    name="fgmix",
    help="Domain generalization: train on several domains, predict on domains not seen in training.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
app.add_typer(plot.app, name="plot")
app.command("demo")(demo.demo)
app.command("list")(list_.list_)
app.command("train", cls=FromDomainBed)(train.train)
app.command("sweep", cls=FromDomainBed)(sweep.sweep)
app.command("plan", cls=FromDomainBed)(plan.plan)
app.command("status")(status.status)
app.command("report")(report.report)
app.command("fit", cls=FromDomainBed)(fit.fit)
app.command("soup")(soup.soup)
app.command("predict")(predict.predict)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)


@app.callback(invoke_without_command=True)
def version(show: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if show:
        import fgmix

        print(f"fgmix {fgmix.__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point: a mistake or a failure of the machine is one sentence and exit code 2; no traceback."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # where a terminal lacks a character
    warnings.formatwarning = _one_line
    # Huge pages for tensors on CPUs, here and in workers: the kernel clears every page of a new large tensor, 200,000
    # ordinary pages for 256 images of 64 px in EfficientNet-Lite0, which then takes 4.2 instead of 2.8 ms an image.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        code = _exit_code()
        sys.stdout.flush()  # a full disk shows here
    except Stopped as stopped:
        print(f"fgmix: {stopped}", file=sys.stderr)
        code = STOPPED
    except Exception as error:
        sentence = as_sentence(error)
        if sentence is None:
            raise
        print(f"fgmix: {sentence}", file=sys.stderr)
        code = MISTAKE
    _forget_output()
    sys.exit(code)


def _exit_code() -> int:
    """Run the command."""
    try:
        _refuse_empty(sys.argv[1:])
        app(prog_name="fgmix")  # the name by which a shell completes it
    except SystemExit as stop:  # typer's end of every command
        if stop.code == INTERRUPTED:
            print("fgmix: Interrupted. Rerun the same command to resume.", file=sys.stderr)
        elif isinstance(stop.__context__, BrokenPipeError):  # `fgmix list | head`: that is fine
            return 0
        return int(stop.code or 0)
    return 0


def _refuse_empty(words: list[str]) -> None:
    """Refuse an empty value: a variable that is not set would pass for an option that is not given."""
    for before, word in zip(["fgmix", *words], words):
        if not word or (word.startswith("--") and word.endswith("=")):
            place = word.rstrip("=") or before
            raise UserError(f"Expected a value after {place}. Found an empty one. Check the variable it comes from.")


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    """A warning as the other notes are printed, without the line of code that gave it."""
    return f"note: {' '.join(str(message).split())}\n"


def _forget_output() -> None:
    """Drop what cannot be written: Python would try again at its end, and print a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
