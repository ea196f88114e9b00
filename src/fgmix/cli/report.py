"""fgmix report: tables and statistics from finished runs. No torch is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fgmix.cli.options import ACCEPT_CODE, check_choice, forbid, is_given, parse_pairs, split_names
from fgmix.errors import UserError
from fgmix.terminal import print_lines, print_markdown, print_notes

if TYPE_CHECKING:
    from fgmix.results.runs import Runs

Selection = Annotated[str, typer.Option(help="training_domain, last_evaluations, leave_one_out or oracle")]
Baseline = Annotated[str, typer.Option(metavar="ROW", help="method (or its label with arm) to compare with")]
FromDomainbed = Annotated[list[Path] | None, typer.Option(help="folder of a DomainBed sweep; repeat for several")]
ALL_RULES = "all"


def report(
    context: typer.Context,
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDERS", help="folders of runs; several are put into one table, marked by folder"),
    ] = None,
    selection: Annotated[
        str, typer.Option(help="training_domain, last_evaluations, leave_one_out, oracle; or all, side by side")
    ] = "training_domain",
    format: Annotated[str, typer.Option(help="md, latex, csv, html, or runs: CSV with a line per run")] = "md",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the HTML file; by default report.html in the first folder")
    ] = None,
    title: Annotated[str, typer.Option(help="heading of the HTML report; by default the names of the folders")] = "",
    serve: Annotated[bool, typer.Option("--serve", help="serve the report, updated while a sweep runs")] = False,
    port: Annotated[int, typer.Option(help="port of --serve; 0 for any free port", min=0, max=65535)] = 8321,
    spread: Annotated[str, typer.Option(help="what ± is: stderr or std")] = "stderr",
    published: Annotated[bool, typer.Option(help="add the numbers of the FGMix paper")] = False,
    baseline: Baseline = "erm",
    margin: Annotated[
        float | None, typer.Option(metavar="POINTS", help="test whether differences are within ±POINTS")
    ] = None,
    from_domainbed: FromDomainbed = None,
    to_domainbed: Annotated[Path | None, typer.Option(help="also write the records as a DomainBed sweep")] = None,
    pack: Annotated[
        Path | None, typer.Option(help="also write all records to one small file, which `fgmix report` reads")
    ] = None,
    explain: Annotated[tuple[str, str, str] | None, typer.Option(help="list the runs behind a number")] = None,
    accept_code: Annotated[bool, typer.Option("--accept-code", help=ACCEPT_CODE)] = False,
    where: Annotated[list[str] | None, typer.Option(help="only runs with this option or setting; repeatable")] = None,
    datasets: Annotated[str, typer.Option(help="only these datasets, comma-separated")] = "",
    algorithms: Annotated[str, typer.Option(help="only these methods, comma-separated")] = "",
    test_domains: Annotated[str, typer.Option(help="only these test domains, comma-separated")] = "",
) -> None:
    """Report accuracies, and differences from a baseline with intervals and tests.

    Example: fgmix report runs --format html --title "FGMix on PACS"
    """
    from fgmix.records.rows import collect_labels
    from fgmix.results.explain import explain_number
    from fgmix.results.formats import FORMATS
    from fgmix.results.report import Choices, tabulate
    from fgmix.results.selection import RULES
    from fgmix.results.statistics import check_baseline
    from fgmix.results.tables import SPREADS

    every_rule = selection == ALL_RULES and explain is None
    rule = "training_domain" if every_rule else check_choice("selection rule", selection, RULES)
    choices = Choices(rule, check_choice("spread", spread, SPREADS), published, baseline, margin, every_rule)
    format = check_choice("format", format, (*FORMATS, "html", "runs"))
    only: dict[str, Any] = {"where": parse_pairs(where or (), "--where")}
    for name, text in (("datasets", datasets), ("algorithms", algorithms), ("test_domains", test_domains)):
        only[name] = split_names([text])
    _forbid_others(context, "--serve" if serve else "--explain" if explain is not None else f"--format {format}")
    if serve:
        from fgmix.report.serve import serve_folders  # here: the page imports figures, which Markdown does not need

        serve_folders(folders or [], choices, port, title, only, accept_code)
        return
    if pack is not None:
        forbid(context, ("accept_code",), "with --pack, which keeps the code of every run")
    runs = read_folders(folders, from_domainbed, accept_code=accept_code, **only)
    if is_given(context, "baseline"):
        check_baseline(collect_labels(runs.records), baseline)
    if to_domainbed is not None:
        from fgmix.results.domainbed import to_domainbed as write_sweep

        for apart, records in runs.groups():
            write_sweep(records, to_domainbed, apart)
    if pack is not None:
        _write_packed(runs, pack)
    if explain is not None:
        print_lines(explain_number(runs, *explain, rule=rule))
    elif format == "html":
        from fgmix.report.write import write_report

        print(write_report(runs, out, title=title, **vars(choices)))
    elif format == "runs":
        print(runs.to_csv(), end="")
    elif is_given(context, "format"):  # also Markdown, which a terminal would show as aligned tables
        print(tabulate(runs, **vars(choices)).to_text(format), end="")
    else:
        print_markdown(tabulate(runs, **vars(choices)).to_text(format))


def _forbid_others(context: typer.Context, mode: str) -> None:
    """Raise an error for options that have no effect in a mode: --serve, --explain, or a format."""
    page = ("out", "title")
    no_effect = {
        "--serve": ("format", "out", "from_domainbed", "to_domainbed", "pack", "explain"),
        "--explain": ("format", "spread", "published", "baseline", "margin", "port", *page),
        "--format html": ("port",),
    }
    forbid(context, no_effect.get(mode, ("port", *page)), f"with {mode}")


def read_folders(folders: list[Path] | None, from_domainbed: list[Path] | None, **how: Any) -> Runs:
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
