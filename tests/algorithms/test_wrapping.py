"""Wrappers, SAM and SAGM, around any objective: what they leave as it is, their names, and what they cannot wrap."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Algorithm, BaseConfig, compositions, get, names, register
from fgmix.errors import UserError
from fgmix.testing import Check, checks
from reference.twin import Twin, assert_same_weights, wide

WRAPPERS = ("sagm", "sam", "t3a", "tent")


@pytest.mark.parametrize("name", ["sam+mixup", "sagm+rsc", "sam+groupdro", "sam+fishr", "sam+trm"])
def test_a_radius_of_zero_is_the_inner_method(name: str) -> None:
    """Both passes see the same draws, buffers and heads that follow by themselves; only then the gradients agree."""
    prefix, inner = name.split("+")
    still = {"sam": {"sam_rho": 0.0}, "sagm": {"sagm_rho": 0.0, "sagm_alpha": 0.0}}[prefix]
    at_work = dict(get(inner).at_work)
    ours, batches = wide(toy_algorithm(name, shape=(6,), **still, **at_work), toy_batches(shape=(6,)))
    theirs, _ = wide(toy_algorithm(inner, shape=(6,), **at_work), batches)
    for step in range(3):
        for algorithm in (ours, theirs):
            torch.manual_seed(step)
            algorithm.step(batches)
        assert_same_weights(ours, Twin(theirs))
        for name_, buffer in theirs.named_buffers():
            torch.testing.assert_close(dict(ours.named_buffers())[name_], buffer, rtol=0, atol=1e-12)


def test_what_the_inner_method_does_before_its_update_stays() -> None:
    """IRM restarts Adam at the anneal step: its moments are then those of one step."""
    algorithm = toy_algorithm("sam+irm", shape=(6,), anneal=2)
    for _ in range(3):
        algorithm.step(toy_batches(shape=(6,)))
    assert {int(state["step"]) for state in algorithm.optimizer.state.values()} == {1}


def test_names_labels_and_settings() -> None:
    assert {"sam", "sagm"} <= {*names()}
    assert [get(name).label for name in ("sam", "sagm", "sam+coral", "sagm+groupdro")] == [
        "SAM",
        "SAGM",
        "SAM + CORAL",
        "SAGM + GroupDRO",
    ]
    assert get("sam+coral") is get("sam+coral")
    assert get("sam+coral").Config.names() == [*BaseConfig.names(), "gamma", "sam_rho"]
    assert get("sam+mixup").min_domains == 2
    assert get("sam").trunk_steps(get("sam").Config()) == 0
    assert get("sam+coral").domainbed_name is None


@pytest.mark.parametrize("check", checks("sam+groupdro")[:7], ids=str)
def test_a_composed_method_keeps_the_contract(check: Check) -> None:
    check()


def test_the_page_lists_what_can_be_wrapped() -> None:
    page = Path(__file__).parents[2] / "docs" / "algorithms" / "sam.md"
    listed = page.read_text().split("can be wrapped: ")[1].split(".")[0]
    found = sorted(re.findall(r"`(\w+)`", listed))
    by_wrapper = {
        name: [each.partition("+")[2] for each in compositions() if each.startswith(f"{name}+")] for name in WRAPPERS
    }
    assert by_wrapper["sam"] == by_wrapper["sagm"] == found
    plain = [name for name in names() if name not in WRAPPERS and not get(name).needs_task]
    assert by_wrapper["t3a"] == by_wrapper["tent"] == plain


@pytest.mark.parametrize("name", ["t3a+tent", "tent+t3a+coral", "sam+t3a", "t3a+coop"])
def test_one_wrapper_changes_the_update_and_one_the_test(name: str) -> None:
    assert get("t3a+sam+coral").label == "T3A + SAM + CORAL"
    with pytest.raises(UserError, match="of its own"):
        get(name)


@pytest.mark.parametrize("inner", ["fish", "pcgrad", "mldg", "sagnet", "fgmix", "sagm", "sam+coral"])
def test_a_method_with_an_update_of_its_own_is_refused(inner: str) -> None:
    with pytest.raises(UserError, match=r"Expected a method whose update is one objective.*Use another method"):
        get(f"sam+{inner}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sm+coral", "Unknown wrapper of methods 'sm'.*Did you mean 'sam'"),
        ("sam+corl", "Unknown algorithm 'corl'.*Did you mean 'coral'"),
        ("sam+", r"Expected the names of a wrapper and a method, such as sam\+coral\. Found 'sam\+'\. Name both"),
        ("+coral", r"Found '\+coral'\. Name both"),
    ],
)
def test_an_unknown_part_of_a_name_gives_the_nearest(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        get(name)


@pytest.mark.parametrize("name", ["sam", "a+b"])
def test_names_of_wrappers_are_taken(name: str) -> None:
    with pytest.raises(UserError):
        register(name)(type("Other", (Algorithm,), {}))
