"""Same-class tuples: every row is valid, and every draw is uniform as documented."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgmix.errors import UserError
from fgmix.mixing import draw_tuples, tuples


@given(st.lists(st.tuples(st.integers(-2, 3), st.sampled_from([-5, 0, 7, 40])), min_size=1, max_size=30), st.data())
def test_rows_share_their_class_and_no_domain(instances: list[tuple[int, int]], data: st.DataObject) -> None:
    y, domains = (torch.tensor(column) for column in zip(*instances))
    k = len(set(domains.tolist()))
    k_tuple = data.draw(st.one_of(st.none(), st.integers(2, 5)))
    index, labels = draw_tuples(y, domains, 9, k_tuple)

    width = k if k_tuple is None else k_tuple
    holders = [len({e for c_e, e in instances if c_e == c}) for c in set(y.tolist())]
    assert index.shape == ((9 if width > 1 and max(holders) >= width else 0), width)
    assert labels.shape == (len(index),)
    assert torch.equal(y[index], labels.unsqueeze(1).expand_as(index))
    assert all(len(set(row)) == width for row in domains[index].tolist())
    assert all(row == sorted(row) for row in domains[index].tolist())


def frequencies(values: torch.Tensor) -> dict[object, float]:
    rows = [tuple(v) if isinstance(v, list) else v for v in values.tolist()]
    return {v: rows.count(v) / len(rows) for v in set(rows)}


@pytest.fixture(params=["CPU", "accelerator"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of drawing: on a CPU, and with shapes that do not depend on the classes, as on an accelerator."""
    if request.param == "accelerator":
        monkeypatch.setattr(tuples, "on_host", lambda _: False)


@pytest.mark.usefixtures("path")
def test_class_then_instances_are_uniform() -> None:
    """20,000 tuples: a frequency p has standard deviation √(p(1−p)/n) ≤ 0.0036; the bound is five of them."""
    # Class 0: 3 instances in domain 0, 1 in domain 1. Class 1: 1 and 2. Class 2: in domain 0 only.
    y = torch.tensor([0, 0, 0, 1, 2, 0, 1, 1])
    domains = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
    index, labels = draw_tuples(y, domains, 20_000)
    assert frequencies(labels) == pytest.approx({0: 1 / 2, 1: 1 / 2}, abs=0.018)
    expected = {(i, 5): 1 / 6 for i in (0, 1, 2)} | {(3, j): 1 / 4 for j in (6, 7)}
    assert frequencies(index) == pytest.approx(expected, abs=0.018)


@pytest.mark.usefixtures("path")
def test_fewer_domains_per_tuple_draws_a_subset_for_each_tuple() -> None:
    """Class 0 is in three domains, class 1 in two of them, class 2 in one: the rule of the docstring, p as above."""
    y = torch.tensor([0, 1, 0, 1, 0, 2])
    domains = torch.tensor([0, 0, 1, 1, 2, 2])
    index, _ = draw_tuples(y, domains, 20_000, domains_per_tuple=2)
    expected = {(0, 2): 1 / 6, (0, 4): 1 / 6, (2, 4): 1 / 6, (1, 3): 1 / 2}
    assert frequencies(index) == pytest.approx(expected, abs=0.018)


def test_without_a_shared_class_an_accelerator_gets_rows_to_ignore(monkeypatch: pytest.MonkeyPatch) -> None:
    y, domains = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 0, 1, 1])
    assert len(draw_tuples(y, domains, 5)[0]) == 0
    monkeypatch.setattr(tuples, "on_host", lambda _: False)
    index, labels = draw_tuples(y, domains, 5)
    assert index.shape == (5, 2)
    assert ((index >= 0) & (index < len(y))).all()
    assert labels.tolist() == [-100] * 5
    assert len(draw_tuples(y, domains, 5, domains_per_tuple=3)[0]) == 0  # too few domains, which the host knows


@pytest.mark.parametrize("k_tuple", [None, 2])
def test_a_number_of_classes_saves_counting_them(k_tuple: int | None) -> None:
    y, domains = torch.tensor([0, 4, 4, 1, 4, 0, 1, 4, 6]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2])
    known, counted = (
        draw_tuples(y, domains, 40, k_tuple, torch.Generator().manual_seed(3), n_classes=C) for C in (7, None)
    )
    assert all(torch.equal(a, b) for a, b in zip(known, counted))


def test_the_generator_is_the_only_source_of_chance() -> None:
    y, domains = torch.arange(40) % 4, torch.arange(40) // 10
    before = torch.get_rng_state()
    first, second = (draw_tuples(y, domains, 16, 3, generator=torch.Generator().manual_seed(3))[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_wrong_shapes_and_sizes_are_explained() -> None:
    with pytest.raises(UserError, match="one domain id per sample"):
        draw_tuples(torch.zeros(3), torch.zeros(4), 2)
    with pytest.raises(UserError, match="domains_per_tuple"):
        draw_tuples(torch.zeros(3), torch.zeros(3), 2, domains_per_tuple=1)
