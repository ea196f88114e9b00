"""The contract that every registered algorithm keeps. Registering a method enrols it here."""

from __future__ import annotations

import pytest
import torch

from fgmix import algorithms
from fgmix.testing import Check, checks
from fgmix.testing.toys import run_steps, toy_algorithm, toy_batches


@pytest.mark.parametrize("check", [check for name in algorithms.names() for check in checks(name)], ids=str)
def test_contract(check: Check) -> None:
    check()


def test_a_method_for_one_domain_differs_there_from_erm() -> None:
    """Or it declares that it needs two: it would equal ERM without a word."""
    as_erm = {"erm", "t3a", "tent"}  # the last two adapt in the test
    names = {name for name in algorithms.names() if algorithms.get(name).min_domains == 1} - as_erm
    logits = {name: predict_after_one_domain(name) for name in ("erm", *names)}
    assert {name for name in names if torch.equal(logits[name], logits["erm"])} == set()


def predict_after_one_domain(name: str) -> torch.Tensor:
    algorithm = toy_algorithm(name, n_domains=1, **{"steps": 4, **algorithms.get(name).at_work})
    batches = toy_batches(1, b=4)
    run_steps(algorithm, batches, 0, 4)
    return algorithm.eval().predict(batches[0][0]).detach()
