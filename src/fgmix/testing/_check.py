"""Run the contract on one method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fgmix.algorithms import get
from fgmix.testing import contract


@dataclass(frozen=True)
class Check:
    """One property of one method; call it to check it.

    Args:
        method: registered name.
        holds: function of `fgmix.testing.contract` that raises an error where the property does not hold.
        settings: those of the method.
        case: what these settings are called; empty for the defaults.
    """

    method: str
    holds: Callable[[str, Mapping[str, Any]], None]
    settings: Mapping[str, Any]
    case: str = ""

    def __call__(self) -> None:
        try:
            with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
                self.holds(self.method, self.settings)
        except Exception as error:
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{self} fails. {(self.holds.__doc__ or '').strip()} {reason}") from error

    def __str__(self) -> str:
        return f"{self.method}-{self.holds.__name__}" + (f"-{self.case}" if self.case else "")


def checks(name: str) -> list[Check]:
    """All checks of one method, to run one by one: with pytest, `parametrize("check", checks("mine"), ids=str)`.

    >>> [str(check) for check in checks("irm")][-2:]
    ['irm-bfloat16', 'irm-bfloat16-at_work']
    """
    method = get(name)
    # Enough for schedules to run through; without a warm-up (`at_work`) there is none.
    cases: dict[str, Mapping[str, Any]] = {"": {"steps": 10 if method.at_work else 5}}
    if method.at_work:
        cases["at_work"] = {"steps": 5, **method.at_work}
    cases.update({form: {"steps": 5, **method.at_work, **settings} for form, settings in method.forms.items()})
    of_declarations = [Check(name, holds, cases[""]) for holds in contract.OF_DECLARATIONS]
    of_training = [Check(name, holds, cases[case], case) for holds in contract.OF_TRAINING for case in cases]
    return of_declarations + of_training


def check_algorithm(name: str, *, verbose: bool = False) -> list[str]:
    """Run the whole contract on a registered method, plug-ins included, on toy networks; takes some seconds.

    Args:
        name: registered name.
        verbose: print a line per check.

    Returns:
        The checks passed.

    Raises:
        AssertionError: where one does not hold; the message says which and what to look at.
        UserError: for an unknown name, or a plug-in that cannot be imported.

    Example:
        >>> check_algorithm("erm")[:3]
        ['erm-declarations', 'erm-declared_settings', 'erm-search_space']
    """
    passed = []
    for check in checks(name):
        check()
        passed.append(str(check))
        if verbose:
            print(f"{check}: passed")
    return passed
