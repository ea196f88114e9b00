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
from fgmix.data.fetch import fetch
from fgmix.data.files import describe_path, require_space
from fgmix.data.folders import scan_folder
from fgmix.data.hub import arrange, check_mirror, fetch_mirror
from fgmix.data.sources import PLAIN, SOURCES, RemoteFile, Source
from fgmix.data.unpack import BadArchive, Limits, unpack
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
        from_hub: use the mirror on the Hugging Face hub, see `data.hub`.
    """
    _require_source(name)
    if max_gb is not None and not 0 < max_gb <= MOST_GB:
        raise bad_value("max_gb", f"a positive number of gigabytes, {MOST_GB:,} at most", max_gb)
    if from_hub and (urls or archives or sha256):
        raise UserError("Expected --hub, or --url or --archive with their --sha256. Found both. Drop one of them.")
    benchmark, source, root = BENCHMARKS[name], SOURCES[name], root.expanduser()
    mirror = check_mirror(name) if from_hub else ""
    files = () if mirror else _choose_files(source, urls, archives, sha256)
    limits = Limits(int((max_gb or source.max_gb) * GB))
    if folder := _find(benchmark, root):
        return Download.of(benchmark, folder, is_new=False)
    local = [_check_local(path, digest) for path, digest in zip_longest(archives, sha256 if archives else ())]
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
        fetched = [_fetch(file, work, limits, progress) for file in files]
        parquet = fetch_mirror(mirror, work) if mirror else []
        unpacked, arranged = work / "unpacked", work / "arranged"
        notes: tuple[str, ...] = ()
        _clear(unpacked, arranged)
        try:
            if mirror:
                notes = (arrange(benchmark, parquet, arranged, limits.bytes),)
            else:
                _unpack_all(local + fetched, unpacked, limits, progress)
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


def _require_source(name: str) -> None:
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, SOURCES)
    if name not in SOURCES:
        known = BENCHMARKS[name]
        raise UserError(
            f"Expected one of {', '.join(SOURCES)}. Found {name}. Get it from {known.home}, and unpack it to "
            f"{known.folder} under the data root."
        )


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
    return work / "archives" / hashlib.sha256(file.url.encode()).hexdigest()[:12] / file.name


@dataclass(frozen=True)
class _Archive:
    """A file with the benchmark or a part of it; `is_ours` if it was downloaded here and may be deleted."""

    path: Path
    is_ours: bool

    def check(self, sha256: str | None) -> _Archive:
        """Compare the digest, if one is given."""
        if sha256:
            with open(self.path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != sha256.lower():
                raise self.reject(f"Expected SHA-256 {sha256.lower()} of {self.path}. Found {digest}.")
        return self

    def reject(self, sentence: str) -> BadArchive:
        """Make the error for a bad archive; one that was downloaded here is deleted, for a rerun to download it."""
        if not self.is_ours:
            return BadArchive(sentence)
        self.path.unlink(missing_ok=True)
        return BadArchive(f"{sentence} It is deleted. Rerun the same command to download it again.")


def _check_local(path: Path, sha256: str | None) -> _Archive:
    path = path.expanduser()
    if not os.path.isfile(path):
        raise UserError(f"Expected an archive at {path}. Found {describe_path(path)}. Check the path.")
    return _Archive(path, is_ours=False).check(sha256)


def _fetch(file: RemoteFile, work: Path, limits: Limits, progress: bool) -> _Archive:
    place = _place(file, work)
    place.parent.mkdir(parents=True, exist_ok=True)
    fetch(file.url, place, most=limits.bytes, progress=progress)
    return _Archive(place, is_ours=True).check(file.sha256)


def _unpack_all(archives: Sequence[_Archive], unpacked: Path, limits: Limits, progress: bool) -> None:
    """Unpack every archive, and copy other files, each to its own folder; the limit holds for all together."""
    left = limits.bytes
    for number, archive in enumerate(archives):
        folder = unpacked / str(number)
        folder.mkdir()
        if archive.path.suffix in PLAIN:
            left -= Path(shutil.copyfile(archive.path, folder / archive.path.name)).stat().st_size
            continue
        try:
            left -= unpack(archive.path, folder, Limits(left), progress=progress)
        except BadArchive as error:
            raise archive.reject(str(error)) from error


def _clear(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
