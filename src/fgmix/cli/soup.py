"""fgmix soup: combine several finished runs into one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.help import OTHERS
from fgmix.cli.options import Flags, Quiet, flags
from fgmix.cli.plot.models import Opening
from fgmix.terminal import print_markdown

REQUIRED = "Required"
WHICH = "Which runs"
MODEL = "Model"


@flags(opening=Flags(Opening, omit=("which", "model", "seed"), everyday=("device",), section=OTHERS))
def soup(
    opening: dict[str, Any],
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS", help="folders of finished runs, or folders that contain them")
    ],
    out: Annotated[Path, typer.Option(help="folder of the model", rich_help_panel=REQUIRED)],
    how: Annotated[
        str,
        typer.Option(help="uniform or greedy (mean of weights), or ensemble (mean of logits)", rich_help_panel=MODEL),
    ] = "uniform",
    alpha: Annotated[
        float | None,
        typer.Option(
            help="interpolate: share of the second of two runs, or of a run against its initial weights (WiSE-FT)",
            rich_help_panel=MODEL,
            hidden=True,
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="raw, swa or swad; by default the average where all runs have one",
            rich_help_panel=MODEL,
        ),
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="only runs of this method", rich_help_panel=WHICH)] = None,
    test_domain: Annotated[
        list[str] | None,
        typer.Option(help="only runs that hold out this domain; repeat for several", rich_help_panel=WHICH),
    ] = None,
    trial_seed: Annotated[int | None, typer.Option(help="only runs of this trial", rich_help_panel=WHICH)] = None,
    quiet: Quiet = False,
) -> None:
    """Combine finished runs into one model.

    It is evaluated on the domain that they held out.

    Example: fgmix soup sweep --algorithm erm --test-domain sketch --trial-seed 0 --out soup --how greedy
    """
    from fgmix.deploy.card import CARD
    from fgmix.deploy.soup import soup as make_soup

    make_soup(
        runs,
        out,
        kind=how,  # type: ignore[arg-type]  # checked there
        alpha=alpha,
        weights=weights,  # type: ignore[arg-type]
        algorithm=algorithm,
        test_domains=test_domain or (),
        trial_seed=trial_seed,
        progress=not quiet,
        **opening,
    )
    print_markdown((out / CARD).read_text(encoding="utf-8"))
    print(f"\nModel: {out}")
