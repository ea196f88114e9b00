"""Where benchmarks come from: their URLs and mirrors, and how the files are arranged as `domain/class/image`.

URLs are those of DomainBed's download script. Lengths and SHA-256 of DomainNet's files are those in TensorFlow
Datasets; for the other benchmarks no SHA-256 is published. The authors' lists of DomainNet's cleaned version
(`clipart_train.txt`, …) determine which images are used: 586,575 of the 596,006 in the archives. TerraIncognita is one
folder of images, and COCO files with the location and the animal of each image.

Mirrors on the Hugging Face hub have parquet files, a row of which contains the bytes of an image file, its domain, its
class and, in some mirrors, its file name. DomainBed's splits depend on the sorted file names in each class folder. So
the names are restored; if a mirror has none, its order must be that of the names, which is verified with `orders.csv`
for benchmarks of which we had the original. If the order cannot be restored, an error is raised. HF_ENDPOINT sets the
address of the hub, as usual.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fgmix.data.folders import list_some
from fgmix.errors import MachineError, UserError, require_package
from fgmix.records.benchmarks import Benchmark, plain_name

DEPTH = 4  # levels below the folder `unpacked`, whose first level has one folder per archive, searched for domains
PLAIN = (".json", ".txt")  # files that are not archives

Arrange = Callable[[Benchmark, Path, Path], None]  # benchmark, folder of unpacked files, folder for domain/class/image


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its local name and URL and, if known, its length and digest."""

    name: str
    url: str
    bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """The files of a benchmark, all of which are needed, and how they are arranged."""

    files: tuple[RemoteFile, ...]
    max_gb: float  # limit on the unpacked size, well above the true size
    arrange: Arrange


def arrange_domains(benchmark: Benchmark, unpacked: Path, arranged: Path) -> None:
    """Move the domains' folders to `arranged`, from any enclosing folders of the archives."""
    folders = find_domains(unpacked, benchmark.domains)
    missing = [domain for domain in benchmark.domains if domain not in folders]
    if missing:
        raise UserError(
            f"Expected folders {', '.join(benchmark.domains)} in the archives of {benchmark.name}. Found no "
            f"{list_some(missing)}. Give archives with one folder per domain."
        )
    for domain, folder in folders.items():
        os.rename(folder, arranged / domain)


def arrange_domain_net(benchmark: Benchmark, unpacked: Path, arranged: Path) -> None:
    """Move the domains' folders, then delete the images that are not in the lists of a domain (duplicates)."""
    lists = sorted(path for path in unpacked.glob("*/*.txt") if path.is_file())
    arrange_domains(benchmark, unpacked, arranged)
    kept = {line.rpartition(" ")[0] for path in lists for line in path.read_text("utf-8", "replace").splitlines()}
    listed = {name.partition("/")[0] for name in kept}  # a domain without a list is kept completely
    for domain in listed & set(benchmark.domains):
        for path in list((arranged / domain).rglob("*")):
            if path.is_file() and path.relative_to(arranged).as_posix() not in kept:
                path.unlink()


def arrange_terra_incognita(benchmark: Benchmark, unpacked: Path, arranged: Path) -> None:
    """Sort the images of the four locations by the animals in the COCO files; an image with two is in both classes."""
    if find_domains(unpacked, benchmark.domains):  # an archive of the arranged folder
        arrange_domains(benchmark, unpacked, arranged)
        return
    files = [path for path in unpacked.rglob("*") if path.is_file()]
    tables = [path for path in files if path.suffix == ".json"]
    pictures = {path.name: path for path in files}  # only these are copied, whatever names the tables contain
    if not tables:
        raise UserError(
            "Expected the annotations of TerraIncognita (.json) beside its images. Found none. Give --archive twice: "
            "eccv_18_all_images_sm.tar.gz and eccv_18_annotations.tar.gz."
        )
    places: dict[str, set[tuple[str, str]]] = {}
    for name, domain, label in (sighting for table in tables for sighting in _sightings(table)):
        if domain in benchmark.domains and label in (benchmark.classes or ()):
            places.setdefault(name, set()).add((domain, label))
    for name in sorted(places.keys() & pictures.keys()):
        for domain, label in sorted(places[name]):
            # copied: links would connect the copies, and not every disk supports them
            (arranged / domain / label).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(pictures[name], arranged / domain / label / name)
        pictures[name].unlink()


def find_domains(unpacked: Path, domains: Sequence[str]) -> dict[str, Path]:
    """Find the outermost folder named like each domain, at most DEPTH levels below; UserError if it is ambiguous."""
    outermost: dict[str, Path] = {}
    level = [unpacked]
    for _ in range(DEPTH):
        level = sorted(Path(entry) for folder in level for entry in os.scandir(folder) if entry.is_dir())
        names = [folder.name for folder in level]
        for domain in (set(domains) - outermost.keys()) & set(names):
            if names.count(domain) > 1:
                raise UserError(f"Expected one folder {domain!r} in the archives. Found {names.count(domain)}.")
            outermost[domain] = level[names.index(domain)]
        if len(outermost) == len(domains):
            break
    return outermost


def _sightings(table: Path) -> list[tuple[str, str, str]]:
    """List (file name, domain, class) of every annotation in a COCO file with locations."""
    try:
        content = json.loads(table.read_bytes())
        labels = {category["id"]: str(category["name"]) for category in content["categories"]}
        images = {
            image["id"]: (str(image["file_name"]), f"location_{image['location']}") for image in content["images"]
        }
        notes = [note for note in content["annotations"] if note["image_id"] in images]
        return [(*images[note["image_id"]], labels[note["category_id"]]) for note in notes]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"Expected COCO annotations with locations in {table.name}. Found {error!r}.") from error


def _drive(name: str, file_id: str) -> RemoteFile:
    """Describe a file on Google Drive; `confirm` skips its question about the virus scan."""
    return RemoteFile(name, f"https://drive.usercontent.google.com/download?id={file_id}&export=download&confirm=t")


_LILA = "https://storage.googleapis.com/public-datasets-lila/caltechcameratraps"
_VISDA = "http://csr.bu.edu/ftp/visda/2019/multi-source"

# path below _VISDA, length and SHA-256 of the archive and the two lists of each domain
_DOMAIN_NET = """
groundtruth/clipart.zip 1270909081 f8f248a3e8bbc9868c523ae24e6601b4c2ad102afc60c0efeb4f3255df22354d
domainnet/txt/clipart_train.txt 1443819 affdadf5f95a7583e6b98030a3d35007e2613ee4dd942393c5a705ec2b429312
domainnet/txt/clipart_test.txt 628917 62c8e36aaba1c41ad9e249099739707220a44c08f167b37ef420f34a31628a6b
infograph.zip 4338659804 891e14f476317e97b6f06d6498c11d0a5b8d0c8b57210765ed9beb072da611fa
domainnet/txt/infograph_train.txt 1683098 36b44cbd41a2915e0dc73b4f4be8862a6f3c220f93c8d63fb2439beeae3aefda
domainnet/txt/infograph_test.txt 728028 413cfa54ac92e7e6b242f4f09fbd9c8ace85c4deaf3cb6c81ff6b68264460136
groundtruth/painting.zip 3679366174 fa47e6d405503ea0286cabd767f176bd30e988b63ddd7b9db16cf030c9770015
domainnet/txt/painting_train.txt 2241901 f1da38d50a702fddf1329f85bc607d7a2abcae7e6aec75e1fd49cc1bd340d47b
domainnet/txt/painting_test.txt 971888 11472b13b5188e09f06918b12eebb660588c97a20e43e268d9b02e3e37eb8f97
quickdraw.zip 459920701 9f37df2a8c3733703dbb35ad9964202a65f675ca30137756457537536b485d84
domainnet/txt/quickdraw_train.txt 5164600 3a5edd3bc215772010eebc87f158707703dd7e48091d13b816af81326a9d1c0f
domainnet/txt/quickdraw_test.txt 2213400 2a00a60650a453c65c356da748fec54084a197272137c440e7d52d08947357bf
real.zip 6062039589 d7fe010b430c5b510f85d657d38c4a1924822695fabea4fef57bd00dba251d63
domainnet/txt/real_train.txt 4440944 19d483256d24aef19e581b65eda8333fd918aef3eb733fe499ff384120e3a289
domainnet/txt/real_test.txt 1911327 2b3f75bcde309aeb5931292084b2162e936b5f189e3bb1ad716f0f74c460864c
sketch.zip 2633992926 23a7dbae7016b343e934399beaa8a68728fb5e570ebe2c71df9b75cf91c499fc
domainnet/txt/sketch_train.txt 1960222 72f4bc6afa5702a1ccba800d0053c1427de87439dfaf246dbc9a2e71abfec54f
domainnet/txt/sketch_test.txt 850581 3fb48fca18c507c4321f007c3f62b308ec232ff6928cbfe2af64e76ec366e840
"""


def _domain_net_files() -> Iterator[RemoteFile]:
    for line in _DOMAIN_NET.split("\n")[1:-1]:
        path, length, sha256 = line.split()
        yield RemoteFile(path.rpartition("/")[2], f"{_VISDA}/{path}", int(length), sha256)


SOURCES: dict[str, Source] = {
    "PACS": Source((_drive("PACS.zip", "1JFr8f805nMUelQWWmfnJR3y4_SYoN5Pd"),), 1, arrange_domains),
    "VLCS": Source((_drive("VLCS.tar.gz", "1skwblH1_okBwxWxmRsp9_qi15hyPpxg8"),), 8, arrange_domains),
    "OfficeHome": Source((_drive("office_home.zip", "1uY0pj7oFsjMxRwaD3Sxy0jgel0fsYXLC"),), 4, arrange_domains),
    "TerraIncognita": Source(
        (
            RemoteFile("eccv_18_all_images_sm.tar.gz", f"{_LILA}/eccv_18_all_images_sm.tar.gz", 6_492_615_601),
            # DomainBed's choice since 2024, reported to give the 24,788 images of its paper; the previous one,
            # labels/caltech_camera_traps.json.zip, was revised in 2021 and gives 24,330
            RemoteFile("eccv_18_annotations.tar.gz", f"{_LILA}/eccv_18_annotations.tar.gz", 2_997_071),
        ),
        16,
        arrange_terra_incognita,
    ),
    "DomainNet": Source(tuple(_domain_net_files()), 40, arrange_domain_net),
    "SVIRO": Source(
        (RemoteFile("sviro_grayscale_rectangle_classification.zip", "https://sviro.kl.dfki.de/?wpdmdl=1731"),),
        20,
        arrange_domains,
    ),
}


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
    require_package("pyarrow", "hub")
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


def arrange_mirror(benchmark: Benchmark, files: Sequence[Path], arranged: Path, most: int) -> str:
    """Write the images in parquet files, at most `most` bytes, as domain/class/file; return a note on their order."""
    rows = (row for file in files for row in read_rows(file, contents=False))
    counts = Counter((row.domain, row.label, row.name) for row in rows)
    are_named = all(name and count == 1 for (_, _, name), count in counts.items())
    spellings = {plain_name(domain): domain for domain in benchmark.domains}
    known = _known_orders().get(benchmark.name, {})
    if not are_named and not known:
        raise UserError(
            f"Expected file names in the mirror of {benchmark.name}, on which DomainBed's splits depend. Found none. "
            "Pass --url or --archive with the original."
        )
    written = 0
    digests: dict[Place, dict[str, bytes]] = defaultdict(dict)
    for row in (row for file in files for row in read_rows(file)):
        if plain_name(row.domain) not in spellings:
            raise UserError(f"Expected the domains {', '.join(benchmark.domains)} in the mirror. Found {row.domain!r}.")
        place = spellings[plain_name(row.domain)], _check_name(row.label)
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
