"""SAM and SAGM against the authors' rules written out, around any objective, and what they cannot wrap."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Algorithm, Batches, create, get, names, register
from fgmix.errors import UserError
from fgmix.functional.moments import moment_distance, moments
from fgmix.testing import Check, checks
from reference.twin import Twin, assert_follows, assert_same_weights, wide

RHO, ALPHA = 0.3, 0.02
Loss = Callable[[Twin, Batches], Tensor]


def erm(twin: Twin, batches: Batches) -> Tensor:
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    return cross_entropy(twin.h(twin.g(x)), y)


def coral(twin: Twin, batches: Batches) -> Tensor:
    z = [twin.g(x) for x, _ in batches]
    risks = [cross_entropy(twin.h(z_e), y) for z_e, (_, y) in zip(z, batches)]
    gaps = [moment_distance(moments(z[i]), moments(z[j])) for i, j in ((0, 1), (0, 2), (1, 2))]
    return sum(risks) / 3 + sum(gaps) / 3


def neighbour_step(twin: Twin, batches: Batches, loss: Loss, method: str) -> None:
    """On one flat vector of weights: g, the point w + s·g, the gradient there, and the authors' combination of both."""
    w = [*twin.g.parameters(), *twin.h.parameters()]
    flat = nn.utils.parameters_to_vector(w).detach().clone()
    g = nn.utils.parameters_to_vector(torch.autograd.grad(loss(twin, batches), w))
    s = RHO / g.pow(2).sum().sqrt() - (ALPHA if method == "sagm" else 0)
    nn.utils.vector_to_parameters(flat + s * g, w)
    near = nn.utils.parameters_to_vector(torch.autograd.grad(loss(twin, batches), w))
    nn.utils.vector_to_parameters(flat, w)
    direction = 0.5 * g + 0.5 * near if method == "sagm" else near
    start = 0
    for w_i in w:
        w_i.grad = direction[start : start + w_i.numel()].view_as(w_i).clone()
        start += w_i.numel()
    twin.optimizer.step()


SETTINGS = {"sam": {"sam_rho": RHO}, "sagm": {"sagm_rho": RHO, "sagm_alpha": ALPHA}}


@pytest.mark.parametrize("method", ["sam", "sagm"])
@pytest.mark.parametrize(("inner", "loss"), [("", erm), ("+coral", coral)], ids=["erm", "coral"])
def test_five_steps_are_the_authors(method: str, inner: str, loss: Loss) -> None:
    assert_follows(
        f"{method}{inner}",
        lambda twin, batches, _: neighbour_step(twin, batches, loss, method),
        steps=5,
        **SETTINGS[method],
    )


@pytest.mark.parametrize("name", ["sam+mixup", "sagm+rsc", "sam+groupdro", "sam+fishr"])
def test_a_radius_of_zero_is_the_inner_method(name: str) -> None:
    """Both passes see the same draws and buffers; only then is the second gradient the first."""
    prefix, inner = name.split("+")
    still = dict.fromkeys(SETTINGS[prefix], 0.0)
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


def test_running_statistics_record_one_pass() -> None:
    torch.manual_seed(0)
    parts = {"featurizer": nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)), "classifier": nn.Linear(5, 3)}
    batches = toy_batches(2, shape=(4,), classes=3)
    sam = create("sam", **copy.deepcopy(parts), n_domains=2, lr=1e-3, sam_rho=1.0)
    sam.step(batches)
    once = parts["featurizer"]
    once(torch.cat([x for x, _ in batches]))
    for ours, theirs in zip(sam.featurizer.buffers(), once.buffers(), strict=True):
        assert torch.equal(ours, theirs)


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
    assert get("sam+coral").Config.names() == ["lr", "weight_decay", "steps", "gamma", "sam_rho"]
    assert get("sam+mixup").min_domains == 2
    assert get("sam").trunk_steps(get("sam").Config()) == 0
    assert get("sam+coral").domainbed_name is None


@pytest.mark.parametrize("check", checks("sam+groupdro")[:7], ids=str)
def test_a_composed_method_keeps_the_contract(check: Check) -> None:
    check()


def test_the_page_lists_what_can_be_wrapped() -> None:
    page = Path(__file__).parents[2] / "docs" / "algorithms" / "sam.md"
    listed = page.read_text().split("can be wrapped: ")[1].split(".")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == {name for name in names() if _can_be_wrapped(name)}


def _can_be_wrapped(name: str) -> bool:
    try:
        return bool(get(f"sam+{name}"))
    except UserError:
        return False


@pytest.mark.parametrize("inner", ["fish", "pcgrad", "mldg", "sagnet", "fgmix", "sagm", "sam+coral"])
def test_a_method_with_an_update_of_its_own_is_refused(inner: str) -> None:
    with pytest.raises(UserError, match=r"Expected a method whose update is one objective.*Use another method"):
        get(f"sam+{inner}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sm+coral", "Unknown wrapper of methods 'sm'.*Did you mean 'sam'"),
        ("sam+corl", "Unknown algorithm 'corl'.*Did you mean 'coral'"),
        ("sam+", "Unknown algorithm ''"),
    ],
)
def test_an_unknown_part_of_a_name_gives_the_nearest(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        get(name)


@pytest.mark.parametrize("name", ["sam", "a+b"])
def test_names_of_wrappers_are_taken(name: str) -> None:
    with pytest.raises(UserError):
        register(name)(type("Other", (Algorithm,), {}))


@pytest.mark.parametrize("inner", ["trm", "groupdro"])
def test_without_a_radius_the_method_is_itself(inner: str) -> None:
    """Also where the objective moves things of its own, which the second pass must not move again."""
    at_work = dict(get(inner).at_work)
    plain = toy_algorithm(inner, **at_work)
    around = toy_algorithm(f"sam+{inner}", sam_rho=0.0, **at_work)
    around.load_state_dict(plain.state_dict())
    for step in range(3):
        for algorithm in (plain, around):
            torch.manual_seed(step)
            algorithm.step(toy_batches(seed=step))
    for (name, ours), theirs in zip(around.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)
