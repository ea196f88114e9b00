"""Files that are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import IO, Any

from fgmix.errors import FAILURES, MachineError, UserError, bad_value, machine_error, reason_of
from fgmix.seals import open_json, seal_json

LOOKS = 3  # at a lock that is held, before it counts as busy
PAUSE = 0.01  # seconds between them


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file that is whole or absent; a disk without the space for it is named with the space needed."""
    # A name that nobody can guess, and "x", which opens no file or link that is already there: in a folder that others
    # write to, nothing but `path` is replaced.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        file = open(temporary, "xb")  # noqa: SIM115 (closed below; a file that is not ours must not be removed there)
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # else a power cut could leave the name without the content
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise machine_error(error, path, len(data)) from error


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A sealed JSON file: sorted keys and a fixed layout, so that equal contents are equal bytes."""
    write_bytes(path, seal_json(content))


def read_json(path: Path) -> dict[str, Any]:
    """Content of a file that `write_json` made, or a sentence about what is wrong with it."""
    return open_json(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """Content of an ordinary file: a pipe would wait for ever, a device never end."""
    try:
        with open(path, "rb", buffering=0, opener=at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"Expected a file at {path}. Found something else. Check the path.")
            return file.read()
    except IsADirectoryError as error:
        raise UserError(f"Expected a file at {path}. Found a folder. Check the path.") from error
    except FileNotFoundError as error:
        raise UserError(f"Expected a file at {path}. Found none. Check the path.") from error
    except OSError as error:
        kind = MachineError if error.errno in FAILURES else UserError
        raise kind(f"Expected a file at {path}. It cannot be read ({reason_of(error)}). Check the path.") from error


def may_exist(path: Path) -> bool:
    """Whether something is at a path, or nobody can tell because a folder on the way is closed to this user."""
    try:
        os.lstat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def at_once(path: str, flags: int) -> int:
    """For `open(…, opener=at_once)`: a named pipe without a reader is an OSError, where opening it would wait."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a .jsonl file of notes, which carry no digest; half a line, left by a power cut, is skipped."""
    if not os.path.isfile(path):
        return []
    found = []
    for line in read_bytes(path).splitlines():
        with suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict)]


def checked_path(name: str, value: str | os.PathLike[str]) -> Path:
    """A parameter as a path; `name` is the parameter's."""
    if not isinstance(value, str | os.PathLike) or "\0" in os.fspath(value):
        raise bad_value(name, "a path", value)
    return Path(value)


def remove_temporaries(folder: Path) -> None:
    """Delete what a killed process left half-written; call it under the folder's lock."""
    for path in folder.glob(".*.tmp*"):
        path.unlink(missing_ok=True)


def make_folder(path: Path, option: str = "--out") -> Path:
    """Create a folder one can write to, or say why not; `option` is where the user named it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in FAILURES:
            raise machine_error(error, path) from error
        raise UserError(
            f"Expected a folder to write to at {path}. It cannot be made ({reason_of(error)}). Choose another {option}."
        ) from error
    if not os.access(path, os.W_OK):
        raise UserError(f"Expected a folder to write to at {path}. It is read-only. Choose another {option}.")
    return path


def new_file(path: Path, option: str = "--out") -> Path:
    """A file that can be made, or a sentence about why not; `option` is where the user named it."""
    if os.path.lexists(path):
        raise UserError(f"Expected no file at {path}. Found one. Choose another {option}, or delete it.")
    if not os.path.isdir(path.parent):
        raise UserError(f"Expected a folder at {path.parent}. Found none. Make it first.")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"Expected a folder to write to at {path.parent}. It is read-only. Choose another {option}.")
    return path


@contextmanager
def exclusive(path: Path, busy: UserError) -> Iterator[None]:
    """Hold a lock that dies with the process; raise `busy` if another process holds it."""
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


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock at `path`. A file that can only be read will do."""
    try:
        # NFS locks only what is open for writing.
        with open(path, "r+" if os.access(path, os.W_OK) else "r", opener=at_once) as file:
            return not _lock(file)
    except OSError:
        return False  # no such file, or one whose lock this user has no way to see


def _lock(file: IO[str]) -> bool:
    """Lock an open file until it is closed, unless another process keeps it locked.

    The operating system's own lock, by descriptor: `FileLock` would need the right to write even for a look, and falls
    back to a mere marker file, which outlives its process.
    """
    from filelock import lock_descriptor  # here: a fifth of the time that `fgmix --help` takes

    for look in range(LOOKS):
        if look:
            sleep(PAUSE)  # `is_held` holds the lock for an instant, too
        if lock_descriptor(file.fileno(), blocking=False):
            return True
    return False
