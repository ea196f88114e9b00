"""Claims: one process at a time works on something, among all machines that share a folder.

A file lock (`hold_lock`) separates the processes of one machine and is released when its process ends.
It separates machines only if the filesystem forwards locks: if they are local to a node (NFS mounted with `nolock`,
Lustre with `localflock`), two nodes can hold the same lock. A claim works there, too. It is a file created exclusively,
which succeeds on one machine only on every shared filesystem; it identifies its holder, which touches it every few
seconds. The process that has the lock may replace a claim of its own machine at once, and a claim of another machine
when it has not been touched for a while. A holder that was suspended for so long detects this before it writes.
"""

from __future__ import annotations

import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from time import sleep
from typing import IO, Any

from fgmix.errors import FAILURES, UserError, machine_error, reason_of
from fgmix.records.digests import open_line, seal_line
from fgmix.records.files import at_once, new_file, read_bytes

LOOKS = 3  # attempts at a lock before it counts as held
PAUSE = 0.01  # seconds between them
BEAT = 15.0  # seconds between touches by the holder
STALE = 120.0  # seconds without a touch after which another machine may take over


@contextmanager
def hold_lock(path: Path, busy: UserError) -> Iterator[None]:
    """Hold a lock, which is released at the latest when the process ends; raise `busy` if another process holds it."""
    try:
        file = open(path, "a", opener=at_once)  # noqa: SIM115 (held until the end of the block)
    except OSError as error:
        if error.errno in FAILURES:
            raise machine_error(error, path) from error
        raise UserError(
            f"Expected to write to {path.parent}. It failed ({reason_of(error)}). Choose another --out."
        ) from error
    with file:
        try:
            locked = _lock(file)
        except OSError as error:
            raise UserError(
                f"Expected a filesystem with file locks at {path.parent}. It has none ({error.strerror}). Choose "
                "another --out."
            ) from error
        if not locked:
            raise busy
        yield


@contextmanager
def hold_new_file(path: Path) -> Iterator[None]:
    """Hold the name of a file that this process will write; raise an error if it exists or another process holds it."""
    lock = new_file(path).with_name(f".{path.name}.lock")
    with hold_lock(lock, UserError(f"Another process is writing {path}. Wait for it, or choose another --out.")):
        try:
            new_file(path)  # the process that held it may have written it meanwhile
            yield
        finally:
            lock.unlink(missing_ok=True)


def is_held(path: Path) -> bool:
    """Say whether a living process holds the lock at `path`. Read permission is enough."""
    try:
        # NFS locks only files that are open for writing.
        with open(path, "r+" if os.access(path, os.W_OK) else "r", opener=at_once) as file:
            return not _lock(file)
    except OSError:
        return False  # no such file, or one whose lock this user cannot test


def _lock(file: IO[str]) -> bool:
    """Lock an open file until it is closed; False if another process keeps it locked.

    The operating system's own lock, by descriptor: `FileLock` would need write permission even to test a lock, and
    falls back to a marker file, which outlives its process.
    """
    from filelock import lock_descriptor  # imported here: a fifth of the time of `fgmix --help`

    for look in range(LOOKS):
        if look:
            sleep(PAUSE)  # `is_held` of another process also holds the lock for an instant
        if lock_descriptor(file.fileno(), blocking=False):
            return True
    return False


class Claim:
    """A claim of this process.

    Args:
        path: its file.
        busy: the error to raise if another machine holds it.
    """

    def __init__(self, path: Path, busy: UserError) -> None:
        self.path, self.busy = path, busy
        self.content = {"host": platform.node(), "machine": machine(), "token": secrets.token_hex(8)}

    def check(self) -> None:
        """Raise `busy` if another machine has taken over because this process was suspended for too long."""
        if _read(self.path) != self.content:
            raise self.busy

    def take(self) -> None:
        if not self._create(self.path):
            self._take_over()

    def beat(self, ended: threading.Event) -> None:
        """Touch the file until the event is set; if the file server does not respond, try again next time."""
        while not ended.wait(BEAT):
            with suppress(OSError):
                if _read(self.path) == self.content:
                    os.utime(self.path)

    def _create(self, path: Path) -> bool:
        line = seal_line(self.content)
        try:
            with open(path, "xb") as file:
                file.write(line)
        except FileExistsError:
            return False
        except OSError as error:
            path.unlink(missing_ok=True)  # on a full disk it is left empty
            raise machine_error(error, path, len(line)) from error
        return True

    def _take_over(self) -> None:
        """Replace a claim whose holder is gone; raise `busy` if it is not, or if another machine is faster."""
        claim = _read(self.path)
        if is_held_elsewhere(self.path) or not self.path.exists():
            raise self.busy
        # Of the processes that found the same claim, one creates this file, and renames it if the claim is unchanged.
        turn = self.path.with_name(f"{self.path.name}.{blake2b(repr(claim).encode(), digest_size=8).hexdigest()}")
        if not self._create(turn):
            if _is_stale(turn):  # the process that created it was killed before the rename
                turn.unlink(missing_ok=True)
            raise self.busy
        try:
            if _read(self.path) != claim:
                raise self.busy
            os.replace(turn, self.path)
        finally:
            turn.unlink(missing_ok=True)


@contextmanager
def hold_claim(path: Path, busy: UserError) -> Iterator[Claim]:
    """Hold a claim; raise `busy` if a living process of another machine does. Call it under a lock of this machine."""
    claim, ended = Claim(path, busy), threading.Event()
    claim.take()
    touching = threading.Thread(target=claim.beat, args=(ended,), daemon=True)
    touching.start()
    try:
        yield claim
    finally:
        ended.set()
        touching.join()
        with suppress(OSError):
            if _read(path) == claim.content:
                path.unlink()


def is_held_elsewhere(path: Path) -> bool:
    """Say whether a living process of another machine holds the claim; for this machine, test the lock."""
    return path.exists() and _read(path).get("machine") != machine() and not _is_stale(path)


@lru_cache
def machine() -> str:
    """Identify a system whose processes share locks: the same in all containers on a kernel, new after a reboot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def _read(path: Path) -> dict[str, Any]:
    """Read a claim; empty while it is being written, or if there is none."""
    with suppress(OSError, UserError):  # UserError: no file, or not readable
        if line := read_bytes(path):
            try:
                return open_line(line.rstrip(b"\n"), str(path))
            except UserError:
                return {"machine": machine()}  # damaged, so its holder is unknown: this machine's lock decides
    return {}


def _is_stale(path: Path) -> bool:
    """Say whether nobody touched a file for `STALE` seconds by the filesystem's clock: those of machines may differ."""
    now, probe = time.time(), path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with suppress(OSError):  # the folder is read-only for this user
        probe.touch(exist_ok=False)
        now = probe.stat().st_mtime
        probe.unlink()
    try:
        return now - path.stat().st_mtime > STALE
    except OSError:  # released in the meantime
        return True
