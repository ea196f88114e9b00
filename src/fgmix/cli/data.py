"""fgmix data: download a benchmark, check images, decode them before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgmix.cli.help import Command, Group
from fgmix.cli.options import Quiet
from fgmix.errors import UserError
from fgmix.terminal import print_lines, print_phase

PROBLEMS = 1  # exit code of a check that found unreadable images

app = typer.Typer(cls=Group, help="Download, check and prepare datasets.", no_args_is_help=True)
Images = Annotated[str, typer.Argument(metavar="IMAGES", help="folder, CSV manifest, or a benchmark under --data-root")]
DataRoot = Annotated[Path | None, typer.Option(envvar="FGMIX_DATA", help="folder of the datasets")]


@app.command(cls=Command)
def check(
    images: Images,
    data_root: DataRoot = None,
    features: Annotated[
        bool, typer.Option("--features", help="also find objects that domains show in other styles")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Count images by domain and class, and find unreadable files.

    Duplicates, near-duplicates and missing classes are reported, too. Exits with 1 if a file cannot be decoded.

    Example: fgmix data check scans
    """
    print_phase("looking for images", quiet=quiet)
    from fgmix.data.checks import check_images

    path = _locate(images, data_root).absolute()  # a relative one may be the name of a dataset
    report, twins = check_images(path, progress=not quiet), list[str]()
    print_lines(report.lines())
    if features:
        from fgmix.deploy.overlap import find_twin_files

        twins = report.describe_twins(find_twin_files(path, progress=not quiet))
    print_lines(["No problems found."] if report.clean and not twins else twins)
    if report.unreadable:
        raise typer.Exit(PROBLEMS)


@app.command(cls=Command)
def prepare(
    images: Images,
    data_root: DataRoot = None,
    image_size: Annotated[int | None, typer.Option(help="side of the square that the network sees")] = None,
    window: Annotated[
        str, typer.Option(help="grey values to show of deep images: LOW:HIGH, or dicom", hidden=True)
    ] = "",
    cache: Annotated[Path | None, typer.Option(help="cache folder; by default $FGMIX_CACHE or ~/.cache/fgmix")] = None,
    skip_unreadable: Annotated[bool, typer.Option("--skip-unreadable", help="skip unreadable images")] = False,
    quiet: Quiet = False,
) -> None:
    """Decode all images into the cache.

    Runs then start without decoding them.

    Example: fgmix data prepare scans --image-size 224 --cache /local/fgmix
    """
    print_phase("looking for images", quiet=quiet)
    from fgmix.data import LoadOptions
    from fgmix.data.image_dataset import prepare_images

    options = LoadOptions(
        image_size=image_size,
        window=window,
        skip_unreadable=skip_unreadable,
        progress=not quiet,
        cache=cache and cache.expanduser(),
    )
    print_lines(prepare_images(_locate(images, data_root), options))
    if cache:
        print(f"Runs find it with FGMIX_CACHE={cache}.")


@app.command(cls=Command)
def download(
    name: Annotated[str, typer.Argument(help="PACS, VLCS, OfficeHome, TerraIncognita, DomainNet or SVIRO")],
    data_root: DataRoot = None,
    url: Annotated[list[str] | None, typer.Option(help="address to download from instead; may be repeated")] = None,
    archive: Annotated[list[Path] | None, typer.Option(help="local archive to use instead; may be repeated")] = None,
    sha256: Annotated[list[str] | None, typer.Option(help="expected SHA-256 of each file, in the same order")] = None,
    max_gb: Annotated[float | None, typer.Option(help="refuse larger files, and archives that unpack to more")] = None,
    hub: Annotated[bool, typer.Option("--hub", help="from a mirror on the Hugging Face hub")] = False,
    quiet: Quiet = False,
) -> None:
    """Download a benchmark to the data root.

    Rerun the same command to resume an interrupted download.

    Example: fgmix data download PACS --data-root ~/data
    """
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
        from_hub=hub,
    )
    print_lines(done.lines())


def _locate(images: str, data_root: Path | None) -> Path:
    """Find the images of a benchmark by its name, or return the given path."""
    from fgmix.data.benchmarks import find_images
    from fgmix.data.tables import is_table
    from fgmix.records.benchmarks import BENCHMARKS
    from fgmix.records.files import as_path

    if images in BENCHMARKS:
        return find_images(BENCHMARKS[images], data_root)
    path = as_path(images)
    if path.suffix.lower() == ".npz" or is_table(path):
        raise UserError(
            f"Expected images. Found a table or arrays in {path}. `fgmix fit` prints what it finds in them."
        )
    return path
