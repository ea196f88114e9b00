"""Download a benchmark, unpack it safely and put it under the data root: `fgmix data download NAME`.

All work is done in a hidden folder next to the target, such as `.PACS.download`. Downloaded files stay there until the
end; after an interruption, unpacked files are deleted and unpacked again. The finished folder is renamed to the target.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fgmix.data.benchmarks import differences
from fgmix.data.fetch import BadArchive, fetch, unpack
from fgmix.data.files import describe_path, require_space
from fgmix.data.folders import scan_folder
from fgmix.data.sources import PLAIN, SOURCES, RemoteFile, Source, arrange_mirror, check_mirror, fetch_mirror
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.benchmarks import BENCHMARKS, Benchmark
from fgmix.records.files import make_folder
from fgmix.records.locks import hold_lock

GB = 1_000_000_000
MOST_GB = 100_000  # largest `max_gb`, more than any benchmark needs


@dataclass(frozen=True)
class Download:
    """A benchmark under the data root."""

    benchmark: Benchmark
    folder: Path
    counts: Mapping[str, int]  # images of each domain
    notes: tuple[str, ...]  # files left out, and differences from the benchmark's description
    is_new: bool

    @classmethod
    def of(cls, benchmark: Benchmark, folder: Path, *, is_new: bool) -> Download:
        """Describe the benchmark in a folder."""
        scan = scan_folder(folder)
        notes = (*scan.notes, *differences(benchmark, scan.counts(), {file.label for file in scan.files}))
        return cls(benchmark, folder, scan.counts(), notes, is_new)

    def lines(self) -> list[str]:
        """Describe the result in lines of text."""
        domains = ", ".join(f"{domain} {n:,}" for domain, n in self.counts.items())
        there = "is at" if self.is_new else "was already at"
        return [
            f"{self.benchmark.name} {there} {self.folder}: {sum(self.counts.values()):,} images ({domains}).",
            *self.notes,
            f"Check that every image can be decoded: fgmix data check {self.folder}",
        ]


def download(
    name: str,
    root: Path,
    *,
    urls: Sequence[str] = (),
    archives: Sequence[Path] = (),
    sha256: Sequence[str] = (),
    max_gb: float | None = None,
    progress: bool = True,
    from_hub: bool = False,
) -> Download:
    """Download a benchmark to `root`; one that exists already is not changed.

    Args:
        name: PACS, VLCS, OfficeHome, TerraIncognita, DomainNet or SVIRO.
        root: the data root.
        urls: URLs instead of the default ones; a single one that ends in / is a folder with the default files.
        archives: local files; nothing is downloaded then.
        sha256: digests of `archives` or `urls`, in the same order.
        max_gb: limit on the unpacked size, instead of the benchmark's default.
        progress: show progress bars.
        from_hub: use the mirror on the Hugging Face hub.
    """
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, SOURCES)
    benchmark = BENCHMARKS[name]
    if name not in SOURCES:
        raise UserError(
            f"Expected one of {', '.join(SOURCES)}. Found {name}. Get it from {benchmark.home}, and unpack it to "
            f"{benchmark.folder} under the data root."
        )
    if max_gb is not None and not 0 < max_gb <= MOST_GB:
        raise bad_value("max_gb", f"a positive number of gigabytes, {MOST_GB:,} at most", max_gb)
    if from_hub and (urls or archives or sha256):
        raise UserError("Expected --hub, or --url or --archive with their --sha256. Found both. Drop one of them.")
    source, root = SOURCES[name], root.expanduser()
    mirror = check_mirror(name) if from_hub else ""
    files = () if mirror else _choose_files(source, urls, archives, sha256)
    most = int((max_gb or source.max_gb) * GB)
    if folder := _find(benchmark, root):
        return Download.of(benchmark, folder, is_new=False)
    local = dict(zip_longest((path.expanduser() for path in archives), sha256 if archives else ()))
    for path in local:
        if not os.path.isfile(path):
            raise UserError(f"Expected an archive at {path}. Found {describe_path(path)}. Check the path.")
    target = root / benchmark.folder
    work = make_folder(root / f".{benchmark.folder}.download", option="--data-root")
    busy = UserError(f"Expected no other process that downloads {name} to {root}. Found one. Wait for its end.")
    with hold_lock(work / "lock", busy):
        if folder := _find(benchmark, root):  # another process was faster
            shutil.rmtree(work)
            return Download.of(benchmark, folder, is_new=False)
        # before the first download, if sizes are known: the archives, and about as much again unpacked
        needed = sum((file.bytes or 0) * (1 if _place(file, work).exists() else 2) for file in files)
        require_space(work, needed, "the archives and what they hold")
        fetched = {fetch(file.url, _place(file, work), most=most, progress=progress): file.sha256 for file in files}
        parquet = fetch_mirror(mirror, work) if mirror else []
        unpacked, arranged = work / "unpacked", work / "arranged"
        notes: tuple[str, ...] = ()
        _clear(unpacked, arranged)
        try:
            if mirror:
                notes = (arrange_mirror(benchmark, parquet, arranged, most),)
            else:
                _unpack_all(local | fetched, work, most, progress)
                source.arrange(benchmark, unpacked, arranged)
            done = Download.of(benchmark, arranged, is_new=True)
        except UserError:
            _clear(unpacked, arranged)
            raise
        try:
            os.rename(arranged, target)  # replaces an empty folder, fails on any other
        except OSError as error:
            raise UserError(f"Expected nothing at {target}. Found something. Move it away, then rerun.") from error
        shutil.rmtree(work)
    return replace(done, folder=target, notes=done.notes + notes)


def _choose_files(
    source: Source, urls: Sequence[str], archives: Sequence[Path], sha256: Sequence[str]
) -> tuple[RemoteFile, ...]:
    """Choose the files to download."""
    if urls and archives:
        raise UserError("Expected --url or --archive. Found both. Drop one of them.")
    for digest in sha256:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
            raise bad_value("sha256", "64 hexadecimal digits", digest)
    files: list[RemoteFile] = []
    if len(urls) == 1 and urls[0].endswith("/"):
        files = [replace(file, url=urls[0] + file.name) for file in source.files]
    elif not archives:
        files = [RemoteFile(_file_name(url), url) for url in urls] or list(source.files)
    n_files = len(archives) or len(files)
    if len(sha256) not in (0, n_files):
        raise UserError(f"Expected --sha256 once for each of the {n_files} files. Found {len(sha256)}.")
    if sha256:
        files = [replace(file, sha256=digest) for file, digest in zip(files, sha256)]
    return tuple(files)


def _file_name(url: str) -> str:
    """Make a safe file name from the last part of a URL.

    >>> _file_name("https://example.org/sets/PACS%20small.zip?key=1")
    'PACS_small.zip'
    """
    try:
        path = urlsplit(url).path
    except ValueError as error:
        raise UserError(f"Expected an address http://… or https://…. Found {url!r} ({error}). Check it.") from error
    name = unquote(path).rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[-100:] or "archive"


def _find(benchmark: Benchmark, root: Path) -> Path | None:
    """Find the folder of the benchmark, if it exists; UserError if something else is in its place."""
    for folder in (root / benchmark.folder, root / benchmark.name, root):  # where `find_folder` looks
        if all(os.path.isdir(folder / domain) for domain in benchmark.domains):
            return folder
    target = root / benchmark.folder
    if os.path.lexists(target) and not (os.path.isdir(target) and not os.listdir(target)):
        raise UserError(f"Expected nothing, or {benchmark.name}, at {target}. Found something else. Move it away.")
    return None


def _place(file: RemoteFile, work: Path) -> Path:
    """Return the path to which a file is downloaded, different for every URL so that files are never mixed up."""
    folder = work / "archives" / hashlib.sha256(file.url.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    return folder / file.name


def _unpack_all(files: Mapping[Path, str | None], work: Path, most: int, progress: bool) -> None:
    """Verify digests, and unpack every archive, or copy a text, to its own folder; the limit holds for all together.

    A bad file that was downloaded here is deleted, for a rerun to download it.
    """
    for number, (path, sha256) in enumerate(files.items()):
        folder = work / "unpacked" / str(number)
        folder.mkdir()
        try:
            _check_digest(path, sha256)
            if path.suffix in PLAIN:
                most -= Path(shutil.copyfile(path, folder / path.name)).stat().st_size
            else:
                most -= unpack(path, folder, most, progress=progress)
        except BadArchive as error:
            if not path.is_relative_to(work):
                raise
            path.unlink(missing_ok=True)
            raise BadArchive(f"{error} It is deleted. Rerun the same command to download it again.") from error


def _check_digest(path: Path, sha256: str | None) -> None:
    if sha256:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256.lower():
            raise BadArchive(f"Expected SHA-256 {sha256.lower()} of {path}. Found {digest}.")


def _clear(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
