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
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from fgmix.data.benchmarks import differences
from fgmix.data.fetch import Retry, fetch, require_space, sha256_of
from fgmix.data.files import describe_path
from fgmix.data.folders import scan_folder
from fgmix.data.hub import arrange, check_mirror, fetch_mirror
from fgmix.data.sources import PLAIN, SOURCES, Part, Source
from fgmix.data.unpack import BadArchive, Limits, unpack
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.benchmarks import BENCHMARKS, Benchmark
from fgmix.records.files import exclusive, make_folder

GB = 1_000_000_000
MOST_GB = 100_000  # largest `max_gb`, more than any benchmark needs


@dataclass(frozen=True)
class Downloaded:
    """A benchmark under the data root.

    Args:
        benchmark: the benchmark.
        folder: its folder.
        counts: number of images of each domain.
        notes: files left out, and differences from the benchmark's description.
        is_new: False if it was there before.
    """

    benchmark: Benchmark
    folder: Path
    counts: Mapping[str, int]
    notes: tuple[str, ...]
    is_new: bool

    def lines(self) -> list[str]:
        """The result as lines of text."""
        domains = ", ".join(f"{domain} {n:,}" for domain, n in self.counts.items())
        there = "is at" if self.is_new else "was already at"
        return [
            f"{self.benchmark.name} {there} {self.folder}: {sum(self.counts.values()):,} images ({domains}).",
            *self.notes,
            f"Check that every image can be decoded: fgmix data check {self.folder}",
        ]


@dataclass(frozen=True)
class _Archive:
    """A file with the benchmark or a part of it; `is_ours` if it was downloaded here and may be deleted."""

    path: Path
    sha256: str | None
    is_ours: bool


def download(
    name: str,
    root: Path,
    *,
    urls: Sequence[str] = (),
    archives: Sequence[Path] = (),
    sha256: Sequence[str] = (),
    max_gb: float | None = None,
    retry: Retry | None = None,
    progress: bool = True,
    from_hub: bool = False,
) -> Downloaded:
    """Download a benchmark to `root`; one that exists already is not changed.

    Args:
        name: PACS, VLCS, OfficeHome, TerraIncognita, DomainNet or SVIRO.
        root: the data root.
        urls: URLs instead of the default ones; a single one that ends in / is a folder with the default files.
        archives: local files; nothing is downloaded then.
        sha256: digests of `archives` or `urls`, in the same order.
        max_gb: limit on the unpacked size, instead of the benchmark's default.
        retry: how to resume after a network error.
        progress: show progress bars.
        from_hub: use the mirror on the Hugging Face hub, see `data.hub`.
    """
    if name not in SOURCES:
        _refuse(name)
    if max_gb is not None and not 0 < max_gb <= MOST_GB:
        raise bad_value("max_gb", f"a positive number of gigabytes, {MOST_GB:,} at most", max_gb)
    benchmark, source = BENCHMARKS[name], SOURCES[name]
    if from_hub and (urls or archives or sha256):
        raise UserError("Expected --hub, or --url or --archive with their --sha256. Found both. Drop one of them.")
    mirror = check_mirror(name) if from_hub else ""
    parts = () if mirror else _parts(source, urls, archives, sha256)
    digests: Sequence[str | None] = sha256 or [None] * len(archives)
    limits = Limits(int((max_gb or source.max_gb) * GB))
    root = root.expanduser()
    if present := _present(benchmark, root):
        return _described(benchmark, present, is_new=False)
    given = [_given(path, digest) for path, digest in zip(archives, digests)]
    work = make_folder(root / f".{benchmark.folder}.download", option="--data-root")
    busy = UserError(f"Expected no other process that downloads {name} to {root}. Found one. Wait for its end.")
    with exclusive(work / "lock", busy):
        if present := _present(benchmark, root):  # another process was faster
            shutil.rmtree(work)
            return _described(benchmark, present, is_new=False)
        _require_space(work, parts)
        fetched = [_fetched(part, work, limits, retry, progress) for part in parts]
        try:
            if mirror:
                done = _mirrored(benchmark, mirror, work, limits)
            else:
                arranged = _arranged(benchmark, source, given + fetched, work, limits, progress)
                done = _described(benchmark, arranged, is_new=True)
        except UserError:
            _clear(work)
            raise
        target = root / benchmark.folder
        try:
            os.rename(done.folder, target)  # replaces an empty folder, fails on any other
        except OSError as error:
            raise UserError(
                f"Expected nothing at {target}. Found something by now ({error.strerror}). Move it away, then rerun."
            ) from error
        shutil.rmtree(work)
    return replace(done, folder=target)


def _refuse(name: str) -> NoReturn:
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, SOURCES)
    known = BENCHMARKS[name]
    raise UserError(
        f"Expected one of {', '.join(SOURCES)} to download. Found {name}. Get it from {known.home} and unpack it under "
        f"the data root as {known.folder}."
    )


def _parts(source: Source, urls: Sequence[str], archives: Sequence[Path], sha256: Sequence[str]) -> tuple[Part, ...]:
    """The files to download."""
    if urls and archives:
        raise UserError("Expected --url or --archive. Found both. Drop one of them.")
    for digest in sha256:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
            raise bad_value("sha256", "64 hexadecimal digits", digest)
    mirror = len(urls) == 1 and urls[0].endswith("/")
    n_files = len(archives) or (len(source.parts) if mirror or not urls else len(urls))
    if len(sha256) not in (0, n_files):
        raise UserError(f"Expected --sha256 once for each of the {n_files} files. Found {len(sha256)}.")
    if archives:
        return ()
    if mirror:
        parts = [replace(part, url=urls[0] + part.name) for part in source.parts]
    elif urls:
        parts = [Part(_file_name(url), url) for url in urls]
    else:
        parts = list(source.parts)
    if sha256:
        parts = [replace(part, sha256=digest) for part, digest in zip(parts, sha256)]
    return tuple(parts)


def _file_name(url: str) -> str:
    """The last part of a URL, as a safe file name.

    >>> _file_name("https://example.org/sets/PACS%20small.zip?key=1")
    'PACS_small.zip'
    """
    try:
        path = urlsplit(url).path
    except ValueError as error:
        raise UserError(f"Expected an address http://… or https://…. Found {url!r} ({error}). Check it.") from error
    name = unquote(path).rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[-100:] or "archive"


def _present(benchmark: Benchmark, root: Path) -> Path | None:
    """The folder of the benchmark, if it exists; UserError if something else is in its place."""
    for folder in (root / benchmark.folder, root / benchmark.name, root):  # where `find_folder` looks
        if all(os.path.isdir(folder / domain) for domain in benchmark.domains):
            return folder
    target = root / benchmark.folder
    if os.path.lexists(target) and not (os.path.isdir(target) and not os.listdir(target)):
        raise UserError(
            f"Expected nothing, or {benchmark.name} with {', '.join(benchmark.domains)}, at {target}. Found something "
            "else. Move it away, or choose another --data-root."
        )
    return None


def _described(benchmark: Benchmark, folder: Path, *, is_new: bool) -> Downloaded:
    scan = scan_folder(folder)
    notes = (*scan.notes, *differences(benchmark, scan.counts(), {file.label for file in scan.files}))
    return Downloaded(benchmark, folder, scan.counts(), notes, is_new)


def _require_space(work: Path, parts: Sequence[Part]) -> None:
    """Check the disk before downloading, if sizes are known: the archives, and about as much again unpacked."""
    known = [(part.bytes, _place(part, work)) for part in parts if part.bytes is not None]
    missing = sum(size for size, place in known if not place.exists())
    if known:
        require_space(work, missing + sum(size for size, _ in known), "the archives and what they hold")


def _place(part: Part, work: Path) -> Path:
    """The path to which a file is downloaded, different for every URL so that files are never mixed up."""
    return work / "archives" / hashlib.sha256(part.url.encode()).hexdigest()[:12] / part.name


def _given(path: Path, sha256: str | None) -> _Archive:
    path = path.expanduser()
    if not os.path.isfile(path):
        raise UserError(f"Expected an archive at {path}. Found {describe_path(path)}. Check the path.")
    archive = _Archive(path, sha256, is_ours=False)
    _check_digest(archive)
    return archive


def _fetched(part: Part, work: Path, limits: Limits, retry: Retry | None, progress: bool) -> _Archive:
    place = _place(part, work)
    place.parent.mkdir(parents=True, exist_ok=True)
    archive = _Archive(
        fetch(part.url, place, most=limits.bytes, retry=retry, progress=progress), part.sha256, is_ours=True
    )
    _check_digest(archive)
    return archive


def _check_digest(archive: _Archive) -> None:
    if archive.sha256 is None:
        return
    found = sha256_of(archive.path)
    if found != archive.sha256.lower():
        raise _spoilt(archive, f"Expected SHA-256 {archive.sha256.lower()} of {archive.path}. Found {found}.")


def _spoilt(archive: _Archive, sentence: str) -> BadArchive:
    """The error for a bad archive; one that was downloaded here is deleted, so that a rerun downloads it again."""
    if not archive.is_ours:
        return BadArchive(sentence)
    archive.path.unlink(missing_ok=True)
    return BadArchive(f"{sentence} It is deleted. Rerun the same command to download it again.")


def _arranged(
    benchmark: Benchmark, source: Source, archives: Sequence[_Archive], work: Path, limits: Limits, progress: bool
) -> Path:
    """Unpack everything and arrange it as domain/class/image, after deleting leftovers of an interrupted run."""
    _clear(work)
    unpacked, arranged = work / "unpacked", work / "arranged"
    unpacked.mkdir()
    arranged.mkdir()
    left = limits.bytes  # the bound holds for all archives together
    for number, archive in enumerate(archives):
        folder = unpacked / str(number)  # one per archive: two archives may use the same names
        folder.mkdir()
        try:
            left -= _open_up(archive.path, folder, Limits(left), progress)
        except BadArchive as error:
            raise _spoilt(archive, str(error)) from error
    source.arrange(benchmark, unpacked, arranged)
    return arranged


def _mirrored(benchmark: Benchmark, mirror: str, work: Path, limits: Limits) -> Downloaded:
    """The benchmark from the hub, with a note on the mirror."""
    files = fetch_mirror(mirror, work)
    _clear(work)
    arranged = work / "arranged"
    arranged.mkdir()
    note = arrange(benchmark, files, arranged, limits.bytes)
    done = _described(benchmark, arranged, is_new=True)
    return replace(done, notes=(*done.notes, note))


def _clear(work: Path) -> None:
    """Delete everything except downloaded files."""
    for name in ("unpacked", "arranged"):
        shutil.rmtree(work / name, ignore_errors=True)


def _open_up(path: Path, folder: Path, limits: Limits, progress: bool) -> int:
    """Copy or unpack a file into a folder; return the number of bytes written."""
    if path.suffix in PLAIN:
        return Path(shutil.copyfile(path, folder / path.name)).stat().st_size
    return unpack(path, folder, limits, progress=progress)
