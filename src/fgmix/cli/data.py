"""fgmix data: get a benchmark, look at a dataset before training on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgmix.errors import UserError

app = typer.Typer(help="Get and look at datasets.", no_args_is_help=True)


@app.command()
def check(folder: Annotated[Path, typer.Argument(help="laid out domain/class/image")]) -> None:
    """Count a folder's images by domain and class; find unreadable files, duplicates, missing classes."""
    from fgmix.data.checks import check_folder

    print("\n".join(check_folder(folder).lines()))


@app.command()
def download(
    name: Annotated[str, typer.Argument(help="PACS, VLCS, OfficeHome, TerraIncognita or DomainNet")],
    data_root: Annotated[Path | None, typer.Option(envvar="FGMIX_DATA", help="folder of the datasets")] = None,
    url: Annotated[list[str] | None, typer.Option(help="another address; repeat it for several files")] = None,
    archive: Annotated[list[Path] | None, typer.Option(help="a file that you have; repeat it for several")] = None,
    sha256: Annotated[list[str] | None, typer.Option(help="digest of each file, in their order")] = None,
    max_gb: Annotated[float | None, typer.Option(help="refuse what unpacks to more")] = None,
    quiet: Annotated[bool, typer.Option(help="no progress bar")] = False,
) -> None:
    """Put a benchmark under the data root. Interrupted, it goes on when the same command is given again."""
    from fgmix.data.download import download

    if data_root is None:
        raise UserError("Expected the folder of the datasets. Found none. Pass --data-root FOLDER, or set FGMIX_DATA.")
    done = download(
        name,
        data_root,
        urls=url or [],
        archives=archive or [],
        sha256=sha256 or [],
        max_gb=max_gb,
        progress=not quiet,
    )
    print("\n".join(done.lines()))
