"""URLs of the benchmarks, and how unpacked files are arranged as `domain/class/image`.

URLs are those of DomainBed's download script. Lengths and SHA-256 of DomainNet's files are those in TensorFlow
Datasets; for the other benchmarks no SHA-256 is published. The authors' lists of DomainNet's cleaned version
(`clipart_train.txt`, …) determine which images are used: 586,575 of the 596,006 in the archives. TerraIncognita is one
folder of images, and COCO files with the location and the animal of each image.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fgmix.data.folders import list_some
from fgmix.errors import UserError
from fgmix.records.benchmarks import Benchmark

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
