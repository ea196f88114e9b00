"""Claims: one process at a time works on something, among all machines that share a folder.

A file lock (`hold_lock`) separates the processes of one machine and is released when its process ends.
It separates machines only if the filesystem forwards locks: if they are local to a node (NFS mounted with `nolock`,
Lustre with `localflock`), two nodes can hold the same lock. A claim works there, too. It is a file created exclusively,
which succeeds on one machine only on every shared filesystem; it names its holder, which touches it every few seconds.
The process that has the lock may replace a claim of its own machine at once, and a claim of another machine when it has
not been touched for a while. A holder whose claim was replaced detects this before it writes.
"""

from __future__ import annotations

import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from time import sleep
from typing import IO

from fgmix.errors import FAILURES, UserError, machine_error, reason_of
from fgmix.records.files import at_once, new_file, read_bytes, write_bytes

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


@lru_cache
def machine() -> str:
    """Identify a system whose processes share locks: the same in all containers on a kernel, new after a reboot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


@dataclass
class Claim:
    """A claim of this process."""

    path: Path  # its file
    busy: UserError  # the error to raise if another machine holds it
    content: str = field(default_factory=lambda: f"{machine()} {secrets.token_hex(8)}")

    def take(self) -> None:
        """Create the file, or replace that of a holder that is gone; of several that do so at once, the last holds it.

        The others find out when they `check`, before they write.
        """
        try:
            with open(self.path, "x", encoding="utf-8") as file:
                file.write(self.content)
        except FileExistsError:
            if is_held_elsewhere(self.path):
                raise self.busy from None
            write_bytes(self.path, self.content.encode())
        except OSError as error:
            self.path.unlink(missing_ok=True)  # on a full disk it is left empty
            raise machine_error(error, self.path, len(self.content)) from error

    def check(self) -> None:
        """Raise `busy` if another machine has taken over: this process was suspended for too long, or slower."""
        if _read(self.path) != self.content:
            raise self.busy

    def beat(self, ended: threading.Event) -> None:
        """Touch the file until the event is set; if the file server does not respond, try again next time."""
        while not ended.wait(BEAT):
            with suppress(OSError):
                if _read(self.path) == self.content:
                    os.utime(self.path)


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
    return path.exists() and _read(path).partition(" ")[0] != machine() and not _is_stale(path)


def _read(path: Path) -> str:
    """Read a claim; empty while it is being written, or if there is none."""
    with suppress(UserError):  # no file, or not readable
        return read_bytes(path).decode(errors="replace")
    return ""


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
