"""The command line: parse, call the library, print. A command a file; heavy imports wait until a command runs."""

from __future__ import annotations

import sys

import typer

from fgmix.cli import bench, data, demo, export, fit, plan, plot, predict, report, status, sweep, train
from fgmix.cli import list as list_
from fgmix.errors import UserError

INTERRUPTED = 130  # exit code of Ctrl-C, as in shells

app = typer.Typer(
    name="fgmix",
    help="Domain generalization: train on several domains, work on one never seen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
app.add_typer(plot.app, name="plot")
app.command("demo")(demo.demo)
app.command("list")(list_.list_)
app.command("train")(train.train)
app.command("sweep")(sweep.sweep)
app.command("plan")(plan.plan)
app.command("status")(status.status)
app.command("report")(report.report)
app.command("fit")(fit.fit)
app.command("predict")(predict.predict)
app.command("export")(export.export)


@app.callback(invoke_without_command=True)
def version(show: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if show:
        import fgmix

        print(f"fgmix {fgmix.__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point: a user's mistake is one sentence and exit code 2, an interruption says how to go on."""
    try:
        app()
    except UserError as error:
        print(f"fgmix: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as stop:  # what typer makes of an interruption and of a reader that is gone
        if stop.code == INTERRUPTED:
            print("fgmix: stopped. Run the same command again: it goes on where it can.", file=sys.stderr)
        elif isinstance(stop.__context__, BrokenPipeError):  # `fgmix list | head`: that is fine
            sys.exit(0)
        raise
