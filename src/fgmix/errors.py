"""The one error that a user's mistake raises, and the sentences it is made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can put right: one sentence saying what was expected, what was found, what to do.

    The command line prints the sentence and exits with code 2; no traceback.
    """


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
