"""Who works on something, among all machines that share a folder.

A file lock (`fgmix.files.exclusive`) decides between the processes of one machine and dies with its process. Between
machines it decides only where the filesystem passes locks on: where they are local to a node (NFS mounted with
`nolock`, Lustre with `localflock`), two nodes get the same lock. A claim decides there, too. It is a file that is
created exclusively, which every shared filesystem does for one machine only; it names its holder, who touches it every
few seconds. A claim of this machine is void for whoever has the lock; one of another machine is void when it has not
been touched for a while. A holder that slept so long finds out before it writes.
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
from typing import Any

from fgmix.errors import UserError, machine_error
from fgmix.files import read_bytes
from fgmix.seals import open_line, seal_line

BEAT = 15.0  # seconds between a holder's touches
STALE = 120.0  # seconds without one after which another machine may take over


class Claim:
    """A claim that this process holds.

    Args:
        path: its file.
        busy: what to raise where another machine holds it.
    """

    def __init__(self, path: Path, busy: UserError) -> None:
        self.path, self.busy = path, busy
        self.content = {"host": platform.node(), "machine": machine(), "token": secrets.token_hex(8)}

    def check(self) -> None:
        """Raise `busy` if another machine has taken over: this process was stopped for too long."""
        if _read(self.path) != self.content:
            raise self.busy

    def take(self) -> None:
        if not self._create(self.path):
            self._take_over()

    def release(self) -> None:
        with suppress(OSError):
            if _read(self.path) == self.content:
                self.path.unlink()

    def beat(self, ended: threading.Event) -> None:
        """Touch the file until the event; a server that does not answer now will answer the next time."""
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
            path.unlink(missing_ok=True)  # a full disk leaves it empty
            raise machine_error(error, path, len(line)) from error
        return True

    def _take_over(self) -> None:
        """Replace a claim whose holder is gone; raise `busy` if it is not, or if another machine is faster."""
        found = _read(self.path)
        if is_held_elsewhere(self.path) or not self.path.exists():
            raise self.busy
        # One of those who found the same claim makes this file, and renames it only while that claim is still there.
        turn = self.path.with_name(f"{self.path.name}.{blake2b(repr(found).encode(), digest_size=8).hexdigest()}")
        if not self._create(turn):
            if _is_stale(turn):  # its maker died at this very moment
                turn.unlink(missing_ok=True)
            raise self.busy
        try:
            if _read(self.path) != found:
                raise self.busy
            os.replace(turn, self.path)
        finally:
            turn.unlink(missing_ok=True)


@contextmanager
def claimed(path: Path, busy: UserError) -> Iterator[Claim]:
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
        claim.release()


def is_held_elsewhere(path: Path) -> bool:
    """Whether a living process of another machine holds the claim; of this one, only the lock knows."""
    return path.exists() and _read(path).get("machine") != machine() and not _is_stale(path)


@lru_cache
def machine() -> str:
    """The system whose processes see each other's locks: containers on one kernel are one, reboots are two."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def _read(path: Path) -> dict[str, Any]:
    """Content of a claim; empty while it is being written, or where there is none."""
    with suppress(OSError, UserError):  # UserError: no file, or none that can be read
        if line := read_bytes(path):
            try:
                return open_line(line.rstrip(b"\n"), str(path))
            except UserError:
                return {"machine": machine()}  # damaged: it names nobody, so this machine's lock decides
    return {}


def _is_stale(path: Path) -> bool:
    """Whether a file was not touched for long, by the filesystem's own clock: those of the machines may differ."""
    now, probe = time.time(), path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with suppress(OSError):  # a folder that this user may only look at
        probe.touch(exist_ok=False)
        now = probe.stat().st_mtime
        probe.unlink()
    try:
        return now - path.stat().st_mtime > STALE
    except OSError:  # it was released at this very moment
        return True
