"""Mirrors of benchmarks on the Hugging Face hub, with images in parquet files.

A row contains the bytes of an image file, its domain, its class and, in some mirrors, its file name. DomainBed's splits
depend on the sorted file names in each class folder. So the names are restored; if a mirror has none, its order must be
that of the names, which is verified with `orders.csv` for benchmarks of which we had the original. If the order cannot
be restored, an error is raised. HF_ENDPOINT sets the address of the hub, as usual.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fgmix.data.folders import list_some
from fgmix.errors import MachineError, UserError
from fgmix.records.benchmarks import Benchmark, plain_name

MIRRORS = {"DomainNet": "wltjr1007/DomainNet", "OfficeHome": "flwrlabs/office-home", "PACS": "flwrlabs/pacs"}
SAFE = re.compile(r"\w[\w .()+-]*")  # safe names of files and classes
AT_ONCE = 64  # images in memory

Place = tuple[str, str]  # a domain and a class


@dataclass(frozen=True)
class MirrorImage:
    """An image of a mirror."""

    domain: str  # as spelled by the mirror
    label: str
    name: str  # of the file; empty if the mirror has none
    content: bytes


def check_mirror(name: str) -> str:
    """Return the repository that mirrors a benchmark; UserError if there is none, or if pyarrow is not installed."""
    if name not in MIRRORS:
        raise UserError(f"Expected one of {', '.join(MIRRORS)}, which the hub mirrors. Found {name}. Omit --hub.")
    if find_spec("pyarrow") is None:
        raise UserError("Expected the library pyarrow. It is not installed. Run `pip install 'fgmix[hub]'`.")
    return MIRRORS[name]


def fetch_mirror(repository: str, work: Path) -> list[Path]:
    """Download the parquet files of a dataset on the hub; existing files are not downloaded again."""
    from huggingface_hub import HfApi, hf_hub_download

    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        names = HfApi(endpoint=endpoint).list_repo_files(repository, repo_type="dataset")
        paths = [
            Path(hf_hub_download(repository, name, repo_type="dataset", local_dir=work / "hub", endpoint=endpoint))
            for name in sorted(names)
            if name.endswith(".parquet")
        ]
    except Exception as error:  # errors of huggingface_hub and of its network library, and OSError
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise MachineError(
            f"Expected to download {repository} from the hub. It failed ({reason}). Check the network, then rerun."
        ) from error
    if not paths:
        raise UserError(f"Expected parquet files in {repository} on the hub. Found none. Pass --url or --archive.")
    return paths


def read_rows(file: Path, *, contents: bool = True) -> Iterator[MirrorImage]:
    """Read the rows of a parquet file, in order; without the bytes of the images if `contents` is False."""
    from pyarrow.parquet import ParquetFile

    opened = ParquetFile(file)
    # the names of the values of integer columns are stored in the metadata of the schema
    metadata = json.loads((opened.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
    features = metadata.get("info", {}).get("features", {})

    def name_of(column: str, value: Any) -> str:
        return str(features[column]["names"][value] if isinstance(value, int) else value)

    columns = ["image.path", "domain", "label", *(["image.bytes"] if contents else [])]
    for batch in opened.iter_batches(batch_size=AT_ONCE, columns=columns):
        for row in batch.to_pylist():
            domain, label = (name_of(column, row[column]) for column in ("domain", "label"))
            yield MirrorImage(domain, label, Path(row["image"]["path"] or "").name, row["image"].get("bytes") or b"")


def arrange(benchmark: Benchmark, files: Sequence[Path], arranged: Path, most: int) -> str:
    """Write the images in parquet files, at most `most` bytes, as domain/class/file; return a note on their order."""
    are_named = _are_named(row for file in files for row in read_rows(file, contents=False))
    known = _known_orders().get(benchmark.name, {})
    if not are_named and not known:
        raise UserError(
            f"Expected file names in the mirror of {benchmark.name}, on which DomainBed's splits depend. Found none. "
            "Pass --url or --archive with the original."
        )
    written = 0
    digests: dict[Place, dict[str, bytes]] = defaultdict(dict)
    for row in (row for file in files for row in read_rows(file)):
        place = _domain_of(benchmark, row.domain), _check_name(row.label)
        ending = ".png" if row.content.startswith(b"\x89PNG") else ".jpg"
        name = _check_name(row.name) if are_named else f"{len(digests[place]):06d}{ending}"
        written += len(row.content)
        if written > most:
            raise UserError(f"Expected at most {most / 1e9:g} GB of images. Found more. Raise --max-gb.")
        folder = arranged.joinpath(*place)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(row.content)
        digests[place][name] = hashlib.sha256(row.content).digest()
    if not known:
        return f"The file names are the mirror's ({MIRRORS[benchmark.name]}): their order could not be verified."
    _check_order(benchmark, known, digests)
    return "Every image and the order of files, which DomainBed's splits depend on, are those of the original."


def _are_named(rows: Iterable[MirrorImage]) -> bool:
    """Say whether every image has a file name that is unique within its domain and class."""
    counts = Counter((row.domain, row.label, row.name) for row in rows)
    return all(name and count == 1 for (_, _, name), count in counts.items())


def _domain_of(benchmark: Benchmark, name: str) -> str:
    """Return the benchmark's spelling of a domain."""
    spellings = {plain_name(domain): domain for domain in benchmark.domains}
    if plain_name(name) not in spellings:
        raise UserError(f"Expected the domains {', '.join(benchmark.domains)} in the mirror. Found {name!r}.")
    return spellings[plain_name(name)]


def _check_name(name: str) -> str:
    if not SAFE.fullmatch(name):
        raise UserError(f"Expected a plain name of a file or class in the mirror. Found {name!r}. Do not trust it.")
    return name


def order_digest(contents: Iterable[bytes]) -> str:
    """Compute a digest of files in a given order, from the SHA-256 of each."""
    return hashlib.blake2b(b"".join(contents), digest_size=8).hexdigest()


@cache
def _known_orders() -> dict[str, dict[Place, tuple[str, str]]]:
    """Read digests of files in DomainBed's order, and sorted by their own digests, by benchmark, domain and class."""
    orders: dict[str, dict[Place, tuple[str, str]]] = defaultdict(dict)
    with open(Path(__file__).with_name("orders.csv"), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            orders[row["benchmark"]][row["domain"], row["class"]] = row["in_order"], row["of_content"]
    return dict(orders)


def _check_order(
    benchmark: Benchmark, known: dict[Place, tuple[str, str]], digests: dict[Place, dict[str, bytes]]
) -> None:
    """Raise an error if the images of a mirror, or the order of its files, differ from the original."""
    other_files, other_order = [], []
    for place, (in_order, of_content) in known.items():
        files = digests.get(place, {})
        if order_digest(sorted(files.values())) != of_content:
            other_files.append("/".join(place))
        elif order_digest(files[name] for name in sorted(files)) != in_order:
            other_order.append("/".join(place))
    for what, places in (("other files", other_files), ("the same files in another order", other_order)):
        if places:
            raise UserError(
                f"Expected the images of {benchmark.name} in DomainBed's order. Found {what} in {list_some(places)}: "
                "splits, and so results, would differ. Pass --url or --archive with the original."
            )
