"""The contract that every registered algorithm keeps. Registering a method enrols it here."""

from __future__ import annotations

import pytest

from fgmix import algorithms
from fgmix.testing import Check, checks


@pytest.mark.parametrize("check", [check for name in algorithms.names() for check in checks(name)], ids=str)
def test_contract(check: Check) -> None:
    check()
