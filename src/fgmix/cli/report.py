"""fgmix report: tables and statistics from finished runs. No torch is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgmix.errors import unknown


def report(
    folder: Annotated[Path, typer.Argument(help="folder of runs, or of DomainBed's with --from-domainbed")],
    selection: Annotated[str, typer.Option(help="training_domain, leave_one_out or oracle")] = "training_domain",
    format: Annotated[str, typer.Option(help="md, latex or csv")] = "md",
    spread: Annotated[str, typer.Option(help="what ± is: stderr or std")] = "stderr",
    published: Annotated[bool, typer.Option(help="put the paper's numbers beside ours")] = False,
    from_domainbed: Annotated[bool, typer.Option(help="the folder is a DomainBed sweep")] = False,
    to_domainbed: Annotated[Path | None, typer.Option(help="also write the records as a DomainBed sweep")] = None,
    explain: Annotated[
        tuple[str, str, str] | None, typer.Option(help="DATASET ALGORITHM DOMAIN: the runs behind a number")
    ] = None,
) -> None:
    """Tables per dataset and overall, and whether differences from ERM are real."""
    from fgmix.benchmark.reporting import collect, explained, report_text
    from fgmix.benchmark.selection import RULES
    from fgmix.benchmark.tables import SPREADS

    if selection not in RULES:
        raise unknown("selection rule", selection, RULES)
    if spread not in SPREADS:
        raise unknown("spread", spread, SPREADS)
    results = collect(folder, from_domainbed=from_domainbed)
    if to_domainbed is not None:
        from fgmix.benchmark.domainbed import to_domainbed as write

        write(results.all_records(), to_domainbed)
    if explain is not None:
        print("\n".join(explained(results, *explain, rule=selection)))
        return
    print(report_text(results, rule=selection, format=format, spread=spread, published=published))
