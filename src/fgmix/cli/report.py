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
    folder: Annotated[Path, typer.Argument(help="folder of runs, or of a DomainBed sweep with --from-domainbed")],
    selection: Annotated[
        str, typer.Option(help="training_domain, last_evaluations, leave_one_out or oracle")
    ] = "training_domain",
    format: Annotated[str, typer.Option(help="md, latex, csv or html")] = "md",
    out: Annotated[Path | None, typer.Option(help="the HTML file; by default report.html in the folder")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="serve the report, updated while a sweep runs")] = False,
    port: Annotated[int, typer.Option(help="port of --serve; 0 for any free port", min=0, max=65535)] = 8321,
    spread: Annotated[str, typer.Option(help="what ± is: stderr or std")] = "stderr",
    published: Annotated[bool, typer.Option(help="add the numbers of the paper")] = False,
    from_domainbed: Annotated[bool, typer.Option(help="the folder is a DomainBed sweep")] = False,
    to_domainbed: Annotated[Path | None, typer.Option(help="also write the records as a DomainBed sweep")] = None,
    explain: Annotated[
        tuple[str, str, str] | None, typer.Option(help="DATASET ALGORITHM DOMAIN: list the runs behind a number")
    ] = None,
) -> None:
    """Report accuracies per dataset and overall, and significance tests against ERM.

    Example: fgmix report runs --format html
    """
    from fgmix.report.page import Choices, write_report
    from fgmix.results.collect import collect
    from fgmix.results.explain import explained
    from fgmix.results.formats import FORMATS
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
    if serve:
        refuse(context, ("format", "out", "from_domainbed", "to_domainbed", "explain"), "with --serve")
    else:
        refuse(context, ("port",), "without --serve")
    if explain is not None:
        refuse(context, ("format", "out", "spread", "published"), "with --explain")
    choices = Choices(selection, spread, published)
    if serve:
        _serve(folder, choices, port)
        return
    results = collect(folder, from_domainbed=from_domainbed)
    for note in results.notes:
        print(f"note: {note}", file=sys.stderr)
    if to_domainbed is not None:
        from fgmix.results.domainbed import to_domainbed as write

        for apart, records in results.groups():
            write(records, to_domainbed, apart)
    if explain is not None:
        print("\n".join(explained(results, *explain, rule=selection)))
        return
    if format == "html":
        print(write_report(folder, results, choices, out))
        return
    print(report_text(results, rule=selection, format=format, spread=spread, published=published), end="")


def _serve(folder: Path, choices: Choices, port: int) -> None:
    """Serve until interrupted."""
    from fgmix.report.serve import Followed, make_server

    followed = Followed(folder, choices)
    followed.status()  # an error about the folder comes before the address
    with make_server(followed, port) as server:
        print(f"http://{server.server_address[0]!s}:{server.server_address[1]} (stop with Ctrl-C)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
