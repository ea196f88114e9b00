"""fgmix report: tables and statistics from finished runs. No torch is imported."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fgmix.cli.options import refuse
from fgmix.errors import UserError, unknown

if TYPE_CHECKING:
    from fgmix.report.page import Choices


def report(
    context: typer.Context,
    folders: Annotated[
        list[Path] | None, typer.Argument(help="folders of runs; several are put into one table, marked by folder")
    ] = None,
    selection: Annotated[
        str, typer.Option(help="training_domain, last_evaluations, leave_one_out or oracle")
    ] = "training_domain",
    format: Annotated[str, typer.Option(help="md, latex, csv or html")] = "md",
    out: Annotated[Path | None, typer.Option(help="the HTML file; by default report.html in the first folder")] = None,
    title: Annotated[str, typer.Option(help="heading of the HTML report; by default the names of the folders")] = "",
    serve: Annotated[bool, typer.Option("--serve", help="serve the report, updated while a sweep runs")] = False,
    port: Annotated[int, typer.Option(help="port of --serve; 0 for any free port", min=0, max=65535)] = 8321,
    spread: Annotated[str, typer.Option(help="what ± is: stderr or std")] = "stderr",
    published: Annotated[bool, typer.Option(help="add the numbers of the paper")] = False,
    from_domainbed: Annotated[
        list[Path] | None, typer.Option(help="folder of a DomainBed sweep; repeat for several")
    ] = None,
    to_domainbed: Annotated[Path | None, typer.Option(help="also write the records as a DomainBed sweep")] = None,
    pack: Annotated[
        Path | None, typer.Option(help="also write all records to one small file, which `fgmix report` reads")
    ] = None,
    explain: Annotated[
        tuple[str, str, str] | None, typer.Option(help="DATASET ALGORITHM DOMAIN: list the runs behind a number")
    ] = None,
) -> None:
    """Report accuracies per dataset and overall, and significance tests against ERM.

    Example: fgmix report runs --format html --title "FGMix on PACS"
    """
    from fgmix.report.page import Choices, write_report
    from fgmix.results.explain import explained
    from fgmix.results.formats import FORMATS
    from fgmix.results.origins import collect_all
    from fgmix.results.report import report_text
    from fgmix.results.selection import RULES
    from fgmix.results.tables import SPREADS

    if selection not in RULES:
        raise unknown("selection rule", selection, RULES)
    if spread not in SPREADS:
        raise unknown("spread", spread, SPREADS)
    if format not in (*FORMATS, "html"):
        raise unknown("format", format, (*FORMATS, "html"))
    if out is not None and format != "html":
        raise UserError(f"Expected --out with --format html. Found --format {format}. Redirect its output with >.")
    if title and format != "html" and not serve:
        raise UserError(f"Expected --title with --format html or --serve. Found --format {format}. Leave it out.")
    if serve:
        refuse(context, ("format", "out", "from_domainbed", "to_domainbed", "pack", "explain"), "with --serve")
    else:
        refuse(context, ("port",), "without --serve")
    if explain is not None:
        refuse(context, ("format", "out", "spread", "published"), "with --explain")
    choices = Choices(selection, spread, published)
    if serve:
        _serve(folders or [], choices, port, title)
        return
    results = collect_all(folders or [], from_domainbed or [])
    for note in results.notes:
        print(f"note: {note}", file=sys.stderr)
    if to_domainbed is not None:
        from fgmix.results.domainbed import to_domainbed as write

        for apart, records in results.groups():
            write(records, to_domainbed, apart)
    if pack is not None:
        from fgmix.results.packed import pack as write_packed

        if results.grids:
            raise UserError(
                "Expected runs without a grid to pack. Found runs of a grid, which only the plan of their sweep tells "
                "apart. Pack folders without a grid, or give each setting an --arm."
            )
        write_packed(results.records, pack)
    if explain is not None:
        print("\n".join(explained(results, *explain, rule=selection)))
        return
    if format == "html":
        print(write_report(folders or [], results, choices, out, title, from_domainbed or []))
        return
    print(report_text(results, rule=selection, format=format, spread=spread, published=published), end="")


def _serve(folders: list[Path], choices: Choices, port: int, title: str) -> None:
    """Serve until interrupted."""
    from fgmix.report.serve import Followed, make_server

    if len(folders) != 1:
        raise UserError(f"Expected one folder with --serve. Found {len(folders)}. Name the folder to follow.")
    followed = Followed(folders[0], choices, title)
    followed.status()  # an error about the folder comes before the address
    with make_server(followed, port) as server:
        print(f"http://{server.server_address[0]!s}:{server.server_address[1]} (stop with Ctrl-C)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
