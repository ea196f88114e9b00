"""Run the contract checks on one method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fgmix.algorithms import get
from fgmix.testing import contract


@dataclass(frozen=True)
class Check:
    """One property of one algorithm; call it to check it.

    `holds` is a function of `fgmix.testing.contract` that raises an error if the property does not hold, and `case` the
    name of the settings, empty for the defaults.
    """

    algorithm: str
    holds: Callable[[str, Mapping[str, Any]], None]
    settings: Mapping[str, Any]
    case: str = ""

    def __call__(self) -> None:
        try:
            with torch.random.fork_rng(devices=[]):  # the caller's random state is restored
                self.holds(self.algorithm, self.settings)
        except Exception as error:
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{self} fails. {(self.holds.__doc__ or '').strip()} {reason}") from error

    def __str__(self) -> str:
        return f"{self.algorithm}-{self.holds.__name__}" + (f"-{self.case}" if self.case else "")


def checks(name: str) -> list[Check]:
    """List the checks of one method; with pytest, each is a test: `parametrize("check", checks("mine"), ids=str)`.

    >>> [str(check) for check in checks("irm")][-2:]
    ['irm-bfloat16', 'irm-bfloat16-at_work']
    """
    algorithm = get(name)
    # Methods with a warm-up get enough steps to complete it; with `at_work` there is none.
    cases: dict[str, Mapping[str, Any]] = {"": {"steps": 10 if algorithm.at_work else 5}}
    if algorithm.at_work:
        cases["at_work"] = {"steps": 5, **algorithm.at_work}
    cases.update({form: {"steps": 5, **algorithm.at_work, **settings} for form, settings in algorithm.forms.items()})
    of_declarations = [Check(name, holds, cases[""]) for holds in contract.OF_DECLARATIONS]
    of_training = [Check(name, holds, cases[case], case) for holds in contract.OF_TRAINING for case in cases]
    return of_declarations + of_training


def check_algorithm(name: str, *, verbose: bool = False) -> list[str]:
    """Run all checks on a registered method, plug-ins included, with toy networks; takes some seconds.

    Return the names of the checks. An AssertionError says which check fails and where to look. An unknown name, or a
    plug-in that cannot be imported, is a UserError.

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
