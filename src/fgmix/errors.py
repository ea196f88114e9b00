"""The one error that a user's mistake raises, and the sentences it is made of."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can put right: one sentence saying what was expected, what was found, what to do.

    The command line prints the sentence and exits with code 2; no traceback.
    """


class MachineError(UserError):
    """The machine failed, not the user and not the run: a full disk, an I/O error, a mount or a device that is gone.

    Nothing is wrong with what was asked: the same command, given again once the machine is well, resumes.
    """


def machine_error(error: OSError, path: object, size: int | None = None) -> MachineError:
    """Error for a file that could not be written; `size` is the space that it needs, in bytes.

    >>> print(machine_error(OSError(28, "No space left on device"), "run/best.pt", 2_000_000))
    Expected to write run/best.pt (2.0 MB). The disk is full. Free space and rerun the same command: it resumes.
    """
    needed = "" if size is None else f" ({size / 1e6:.1f} MB)"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MachineError(
            f"Expected to write {path}{needed}. The disk is full. Free space and rerun the same command: it resumes."
        )
    return MachineError(f"Expected to write {path}{needed}. It failed ({error.strerror}). Check the disk, then rerun.")


def unknown(what: str, found: str, known: Iterable[str]) -> UserError:
    """Error for a name that is not among the known ones, with the nearest match.

    >>> print(unknown("algorithm", "corall", ["coral", "erm"]))
    Unknown algorithm 'corall'. Did you mean 'coral'? Known: coral, erm.
    """
    known = sorted(known)
    near = difflib.get_close_matches(found, known, n=1, cutoff=0.5)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return UserError(f"Unknown {what} {found!r}.{guess} Known: {', '.join(known) or 'none'}.")


def bad_value(name: str, should: str, found: object, hint: str = "") -> UserError:
    """Error for a value out of its range or of the wrong type.

    >>> print(bad_value("steps", "a positive integer", -3))
    Parameter `steps` should be a positive integer. Found -3.
    """
    return UserError(f"Parameter `{name}` should be {should}. Found {found!r}." + (f" {hint}" if hint else ""))
