"""Errors that the user can fix, and their messages."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec

# Errors of a disk, a mount, a network or the machine as a whole, not of a run.
_FULL = {errno.ENOSPC, errno.EDQUOT}
FAILURES = _FULL | {
    errno.EFBIG,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.EMFILE,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENFILE,
    errno.ENODEV,
    errno.ENOMEM,
    errno.ENOTCONN,
    errno.ENXIO,
    errno.EROFS,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
_DEVICE = re.compile(r"(CUDA|cuDNN|cuBLAS|NCCL|HIP|XPU|MPS)\b[^.:]*\berror|device lost", re.IGNORECASE)
LONGEST = 200  # characters of a value in a message
FEW = 8  # known names that a message lists even beside a suggestion
MOST = 12  # known names that it lists without one
LISTED = ("algorithm", "backbone", "dataset")  # what `fgmix list` lists
_TOO_SMALL = re.compile(r"Kernel size can't be greater than|[Oo]utput size is too small")  # of torch's layers
_MEMORY = re.compile(r"allocate memory|not enough memory|out of memory", re.IGNORECASE)


class UserError(ValueError):
    """An error that the user can fix: the message says what was expected, what was found and what to do.

    The command line prints the message without a traceback and exits with code 2.
    """


class UnknownName(UserError):
    """A name that is not among those known."""


class MachineError(UserError):
    """The machine failed, not the user and not the run: a full disk, an I/O error, a mount or a device that is gone.

    Nothing is wrong with the command: rerun it once the machine works again, and it resumes.
    """


def machine_error(error: OSError, path: object, size: int | None = None) -> MachineError:
    """Make the error for a file that could not be written; `size` is the space that it needs, in bytes.

    >>> print(machine_error(OSError(28, "No space left on device"), "run/best.pt", 2_000_000))
    Expected to write run/best.pt (2.0 MB). The disk is full. Free space and rerun the same command: it resumes.
    """
    needed = "" if size is None else f" ({readable_size(size)})"
    if error.errno in _FULL:
        return MachineError(
            f"Expected to write {path}{needed}. The disk is full. Free space and rerun the same command: it resumes."
        )
    advice = "Check the disk" if error.errno in FAILURES else "Check the path and its permissions"
    return MachineError(f"Expected to write {path}{needed}. It failed ({reason_of(error)}). {advice}, then rerun.")


def readable_size(count: float) -> str:
    """Write a number of bytes.

    >>> readable_size(12), readable_size(4_300), readable_size(2_000_000), readable_size(3.21e9)
    ('12 bytes', '4 kB', '2.0 MB', '3.2 GB')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count / 1e3:.0f} kB" if count >= 1e3 else f"{count:.0f} bytes"


def find_machine_failure(error: BaseException) -> MachineError | None:
    """Return the error as a `MachineError`, if a disk, a mount, a network or a device has failed; else None.

    >>> print(find_machine_failure(OSError(5, "Input/output error", "/data/PACS")))
    Expected a machine without errors. Found Input/output error at /data/PACS. Check the machine, then rerun.
    >>> find_machine_failure(ValueError("shapes differ"))
    """
    for each in _with_causes(error):
        if isinstance(each, MachineError):
            return each
        is_disk = isinstance(each, OSError) and each.errno in FAILURES
        if is_disk or (isinstance(each, RuntimeError) and _is_of_device(str(each))):
            return MachineError(str(error)) if isinstance(error, UserError) else _describe_failure(each)
    return None


def _is_of_device(message: str) -> bool:
    """Say whether a device has failed; "CUDA error: out of memory" is no failure."""
    return bool(_DEVICE.search(message)) and not _MEMORY.search(message)


def to_user_error(error: BaseException) -> UserError | None:
    """Word the error for the user, if the user or the machine is its cause; None for a bug in fgmix."""
    if isinstance(error, UserError):
        return error
    if failure := find_machine_failure(error):
        return failure
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _MEMORY.search(str(error))):
        return UserError(
            f"Expected enough memory. Found too little ({_first_line(error)}). Lower the batch size or the image size."
        )
    if isinstance(error, RuntimeError) and _TOO_SMALL.search(str(error)):
        return UserError(
            f"Expected images as large as this network requires. Found smaller ones ({_first_line(error)}). Raise the "
            "image size, or use another backbone."
        )
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        return UserError(f"Cannot use{where or ' a file'}: {reason_of(error)}. Check the path and its permissions.")
    return None


def reason_of(error: OSError) -> str:
    """Return the operating system's message, without the path."""
    return error.strerror or _first_line(error)


def _describe_failure(error: BaseException) -> MachineError:
    if isinstance(error, OSError) and error.errno in _FULL:
        return machine_error(error, error.filename or "the output")
    reason = reason_of(error) if isinstance(error, OSError) else _first_line(error)
    where = f" at {error.filename}" if isinstance(error, OSError) and error.filename else ""
    return MachineError(f"Expected a machine without errors. Found {reason}{where}. Check the machine, then rerun.")


def _first_line(error: BaseException) -> str:
    """Return the first line of the message: those of torch have many."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def unknown(what: str, value: object, known: Iterable[str]) -> UnknownName:
    """Make the error for an unknown name, with the closest match, which ignores case and punctuation.

    >>> print(unknown("algorithm", "corall", ["coral", "erm"]))
    Unknown algorithm 'corall'. Did you mean 'coral'? Known: coral, erm.
    >>> print(unknown("letter", "Y", "abcdefghijklmnopqrstuvwxyz"))
    Unknown letter 'Y'. Did you mean 'y'?
    """
    known = sorted(known)
    plain = {_plain(name): name for name in reversed(known)}
    near = difflib.get_close_matches(_plain(_short(value)), plain, n=1)
    if near and len(known) > FEW:  # a list would bury the suggestion
        own = " One of your own is named by --plugin FILE." if what == "algorithm" else ""
        return UnknownName(f"Unknown {what} {_short(value)}. Did you mean {plain[near[0]]!r}?{own}")
    if len(known) > MOST and what in LISTED:
        return UnknownName(f"Unknown {what} {_short(value)}. See `fgmix list {what}s`.")
    guess = f" Did you mean {plain[near[0]]!r}?" if near else ""
    more = f" and {len(known) - MOST} more" if len(known) > MOST else ""
    return UnknownName(f"Unknown {what} {_short(value)}.{guess} Known: {', '.join(known[:MOST]) or 'none'}{more}.")


def _plain(name: str) -> str:
    return re.sub(r"[^\w]|_", "", name).lower()


def require_package(module: str, extra: str) -> None:
    """Raise an error that says how to install a package of an extra, if it is missing on this machine."""
    found = find_spec(module)
    if found is None or found.origin is None:  # without an origin it is only a folder of that name
        raise MachineError(f"Expected the package {module}. It is not installed. Run `pip install 'fgmix[{extra}]'`.")


def bad_value(name: str, should: str, value: object, hint: str = "") -> UserError:
    """Make the error for a value out of its range or of the wrong type.

    >>> print(bad_value("steps", "a positive integer", -3))
    Parameter `steps` should be a positive integer. Found -3.
    """
    return UserError(f"Parameter `{name}` should be {should}. Found {_short(value)}." + (f" {hint}" if hint else ""))


def _short(value: object) -> str:
    """Write the repr of a value, on one line and cut to `LONGEST` characters."""
    try:
        text = re.sub(r"\s*\n\s*", " ", repr(value))
    except Exception:  # the user's object, whose repr may fail
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
