"""fgmix report: tables and statistics from finished runs. No torch is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fgmix.cli.options import ACCEPT_CODE, Checked, Flags, declare, flags, forbid, split_names
from fgmix.errors import UserError
from fgmix.terminal import print_lines, print_markdown, print_notes

if TYPE_CHECKING:
    from fgmix.results.runs import Runs

Selection = Annotated[str, typer.Option(help="training_domain, last_evaluations, leave_one_out or oracle")]
Baseline = Annotated[str, typer.Option(metavar="ROW", help="method (or its label with arm) to compare with")]


@dataclass(frozen=True, kw_only=True)
class Shown(Checked):
    """How results are selected and shown."""

    selection: Literal["training_domain", "last_evaluations", "leave_one_out", "oracle", "all"] = declare(
        "training_domain", help="selection rule, or all side by side"
    )
    spread: Literal["stderr", "std"] = declare("stderr", help="what ± is")
    published: bool = declare(False, help="add the numbers of the FGMix paper")
    baseline: str = declare("erm", help="method (or its label with arm) to compare with", metavar="ROW")
    margin: float | None = declare(None, help="test whether differences are within ±X percentage points")


@dataclass(frozen=True, kw_only=True)
class Output(Checked):
    """What is written, and where."""

    format: Literal["md", "latex", "csv", "html", "runs"] = declare("md", help="runs is CSV with a line per run")
    out: str = declare("", help="the HTML file; by default report.html in the first folder", metavar="FILE")
    title: str = declare("", help="heading of the HTML report; by default the names of the folders")
    serve: bool = declare(False, help="serve the report, updated while a sweep runs", flag="--serve")
    port: int = declare(8321, help="port of --serve; 0 for any free port", ge=0, le=65535)


@dataclass(frozen=True, kw_only=True)
class Which(Checked):
    """Which runs are read: the arguments of `read_runs`."""

    from_domainbed: tuple[str, ...] = declare((), help="folder of a DomainBed sweep; repeat for several")
    accept_code: bool = declare(False, help=ACCEPT_CODE, flag="--accept-code")
    where: Mapping[str, Any] = declare(help="only runs with this option or setting; repeatable")
    datasets: tuple[str, ...] = declare((), help="only these datasets, comma-separated")
    algorithms: tuple[str, ...] = declare((), help="only these methods, comma-separated")
    test_domains: tuple[str, ...] = declare((), help="only these test domains, comma-separated")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("datasets", "algorithms", "test_domains"):
            object.__setattr__(self, name, split_names(getattr(self, name)))


@flags(shown=Flags(Shown), output=Flags(Output), which=Flags(Which))
def report(
    context: typer.Context,
    shown: dict[str, Any],
    output: dict[str, Any],
    which: dict[str, Any],
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDERS", help="folders of runs; several are put into one table"),
    ] = None,
    to_domainbed: Annotated[Path | None, typer.Option(help="also write the records as a DomainBed sweep")] = None,
    pack: Annotated[
        Path | None, typer.Option(help="also write all records to one small file, which `fgmix report` reads")
    ] = None,
    explain: Annotated[tuple[str, str, str] | None, typer.Option(help="list the runs behind a number")] = None,
) -> None:
    """Report accuracies, differences, intervals and tests.

    Example: fgmix report runs --format html --title "FGMix on PACS"
    """
    from fgmix.records.rows import collect_labels
    from fgmix.results.explain import explain_number
    from fgmix.results.report import Choices, tabulate
    from fgmix.results.statistics import check_baseline

    how, to, only = {**vars(Shown(**shown))}, Output(**output), vars(Which(**which))
    rule = how.pop("selection")
    every_rule = rule == "all" and explain is None
    choices = Choices("training_domain" if every_rule else rule, **how, every_rule=every_rule)
    _forbid_others(context, "--serve" if to.serve else "--explain" if explain is not None else f"--format {to.format}")
    if to.serve:
        from fgmix.report.serve import serve_folders  # here: the page imports figures, which Markdown does not need

        serve_folders(folders or [], choices, to.port, to.title, only)
        return
    if pack is not None:
        forbid(context, ("accept_code",), "with --pack, which keeps the code of every run")
    runs = read_folders(folders, **only)
    if "baseline" in shown:
        check_baseline(collect_labels(runs.records), choices.baseline)
    if to_domainbed is not None:
        from fgmix.results.domainbed import to_domainbed as write_sweep

        for apart, records in runs.groups():
            write_sweep(records, to_domainbed, apart)
    if pack is not None:
        _write_packed(runs, pack)
    if explain is not None:
        print_lines(explain_number(runs, *explain, rule=choices.rule))
    elif to.format == "html":
        from fgmix.report.page import write_report

        print(write_report(runs, to.out or None, title=to.title, **vars(choices)))
    elif to.format == "runs":
        print(runs.to_csv(), end="")
    elif "format" in output:  # also Markdown, which a terminal would show as aligned tables
        print(tabulate(runs, **vars(choices)).to_text(to.format), end="")
    else:
        print_markdown(tabulate(runs, **vars(choices)).to_text(to.format))


def _forbid_others(context: typer.Context, mode: str) -> None:
    """Raise an error for options that have no effect in a mode: --serve, --explain, or a format."""
    page = ("out", "title")
    if context.params["out"] and mode.startswith("--format") and mode != "--format html":
        raise UserError("--out works only with --format html. Redirect the other formats: fgmix report … > FILE")
    no_effect = {
        "--serve": ("format", "out", "from_domainbed", "to_domainbed", "pack", "explain"),
        "--explain": ("format", "spread", "published", "baseline", "margin", "port", *page),
        "--format html": ("port",),
    }
    forbid(context, no_effect.get(mode, ("port", *page)), f"with {mode}")


def read_folders(folders: list[Path] | None, from_domainbed: Sequence[Path | str] | None, **how: Any) -> Runs:
    """Read the runs in folders, all or some, and print notes on skipped runs; `how` are arguments of `read_runs`."""
    from fgmix.results.read import read_runs

    runs = read_runs(*folders or (), from_domainbed=from_domainbed or (), **how)
    print_notes(*runs.notes)
    return runs


def _write_packed(runs: Runs, file: Path) -> None:
    """Write all records to one file."""
    from fgmix.records.store import pack

    if runs.grids:
        raise UserError(
            "Expected runs without a grid to pack. Found runs of a grid, which records alone do not tell apart. "
            "Pack folders without a grid, or run each setting as an arm: `fgmix sweep --set lam=3 --arm LABEL`."
        )
    pack(runs.records, file)
