"""Files that are written atomically, and read only if they are regular files."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fgmix.errors import FAILURES, MachineError, UserError, bad_value, machine_error, reason_of
from fgmix.records.digests import open_json, seal_json, seal_zip


class Draft:
    """A file that is written beside its place, and moved there as a whole by `put`, which any thread may call.

    Args:
        path: the place.
        save: writes the content to this object, from the start to the end.
        seal: whether the content is a zip archive, whose digest becomes its comment.
    """

    def __init__(self, path: Path, save: Callable[[Draft], object], *, seal: bool = False) -> None:
        self.path, self.size = path, 0
        self.digest = hashlib.sha256() if seal else None
        self.failure: BaseException | None = None
        # An unguessable name, and mode "x", which opens no existing file or link: in a folder that others write to,
        # nothing but `path` is replaced.
        self.temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            self.file = open(self.temporary, "xb")  # noqa: SIM115 (closed by `put`)
        except OSError as error:
            raise machine_error(error, path) from error
        with self._remove_if_failed():
            save(self)
            if self.failure:
                raise self.failure
            if self.digest:
                seal_zip(self.file, self.digest.hexdigest())
            self.file.flush()

    def write(self, data: bytes) -> int:
        """Write; an exception is raised at the end of the content, because torch.save would raise another instead.

        The error for a full disk thus gives the space that all of it needs.
        """
        self.size += len(data)
        if self.failure is None:
            try:
                self.file.write(data)
                if self.digest:
                    self.digest.update(data)
            except BaseException as failure:
                self.failure = failure
        return len(data)

    def flush(self) -> None:
        """Do nothing: torch.save calls it."""

    def put(self) -> None:
        """Wait until the disk has the content, then move it to its place."""
        with self._remove_if_failed():
            with self.file:
                os.fsync(self.file.fileno())  # else a power cut could leave the name without the content
            os.replace(self.temporary, self.path)

    @contextmanager
    def _remove_if_failed(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            with suppress(OSError):  # what is buffered does not fit either
                self.file.close()
            self.temporary.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise machine_error(error, self.path, self.size) from error
            raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically; the error for a full disk gives the space needed."""
    Draft(path, lambda file: file.write(data)).put()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a sealed JSON file with sorted keys and a fixed layout, so that equal contents give equal bytes."""
    write_bytes(path, seal_json(content))


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that `write_json` wrote; a damaged one raises an error."""
    return open_json(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """Read a regular file; others raise an error."""
    with open_regular(path) as file:
        return file.read()


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Others raise an error: a pipe could block, and a device might never end."""
    try:
        with open(path, "rb", opener=at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"Expected a file at {path}. Found something else. Check the path.")
            yield file
    except IsADirectoryError as error:
        raise UserError(f"Expected a file at {path}. Found a folder. Check the path.") from error
    except FileNotFoundError as error:
        raise UserError(f"Expected a file at {path}. Found none. Check the path.") from error
    except OSError as error:
        kind = MachineError if error.errno in FAILURES else UserError
        raise kind(f"Expected a file at {path}. It cannot be read ({reason_of(error)}). Check the path.") from error


def may_exist(path: Path) -> bool:
    """Say whether a path exists, or may exist in a folder that this user has no access to."""
    try:
        os.lstat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def at_once(path: str, flags: int) -> int:
    """Open a file as `opener` of `open`, without blocking on a named pipe; writing without a reader is an OSError."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Append an object to a .jsonl file, for `read_lines`; on a full disk the line is lost."""
    with suppress(OSError), open(path, "a", encoding="utf-8", opener=at_once) as file:
        file.write(json.dumps(content) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the objects in a .jsonl file without digests, if it exists, but for lines that a crash left incomplete."""
    if not os.path.isfile(path):
        return []
    lines = []
    for line in read_bytes(path).splitlines():
        with suppress(ValueError, RecursionError):
            lines.append(json.loads(line))
    return [line for line in lines if isinstance(line, dict)]


def check_path(name: str, value: str | os.PathLike[str]) -> Path:
    """Return a parameter as a path; `name` is the parameter's, for the error."""
    try:
        if b"\0" not in os.fsencode(value) and not isinstance(value, bytes):
            return Path(value)
    except (TypeError, UnicodeEncodeError):  # no path; half of a surrogate pair
        pass
    raise bad_value(name, "a path", value)


def as_path(text: str) -> Path:
    """Convert a text to a path, with ~ expanded to the home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~name of an unknown user: an ordinary file name
        return Path(text)


def cache_dir() -> Path:
    """Return the folder for decoded images and generated datasets: $FGMIX_CACHE, else ~/.cache/fgmix."""
    given = os.environ.get("FGMIX_CACHE")
    if given:
        return as_path(given)
    try:
        return Path.home() / ".cache" / "fgmix"
    except RuntimeError as error:  # for example in a container whose user has no passwd entry
        raise UserError("Expected a home folder for the cache. Found none. Set FGMIX_CACHE to a folder.") from error


def remove_temporaries(folder: Path) -> None:
    """Delete the temporary files of a killed process; call it while holding the folder's lock."""
    for path in folder.glob(".*.tmp*"):
        path.unlink(missing_ok=True)


def make_folder(path: Path, option: str = "--out") -> Path:
    """Create a folder and check that it is writable; `option` is the command-line option for it, for the error."""
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
    """Check that a new file can be created; `option` is the command-line option for it, for the error."""
    if os.path.lexists(path):
        raise UserError(f"{path} already exists. Delete it or choose another {option}.")
    if not os.path.isdir(path.parent):
        raise UserError(f"Expected a folder at {path.parent}. Found none. Make it first.")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"Expected a folder to write to at {path.parent}. It is read-only. Choose another {option}.")
    return path
