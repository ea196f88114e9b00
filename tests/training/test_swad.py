"""SWAD's window against the authors' queues written out, by the indices of the segments it averages."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from fgmix.errors import UserError
from fgmix.training.averaging import SWAD, Mean

PLATEAU = [0.5, 0.6, 0.7, *[0.55] * 6, *[5.0] * 10]


def feed(swad: SWAD, losses: list[float], first: int = 0) -> SWAD:
    """One step a segment; the weights of segment n are the n-th unit vector, so an average shows what entered it."""
    for n, loss in enumerate(losses, start=first):
        swad.update({"w": torch.nn.functional.one_hot(torch.tensor(n), 40).double()})
        swad.close_segment(loss)
    return swad


def shares(swad: SWAD) -> dict[int, float]:
    """Weight of each segment in the average."""
    return {n: round(share, 9) for n, share in enumerate(swad.average()["w"].tolist()) if share}


def of(indices: list[int]) -> dict[int, float]:
    """The same for a list of segments with repetitions."""
    return {n: round(float(Fraction(indices.count(n), len(indices))), 9) for n in sorted(set(indices))}


def authors_indices(losses: list[float], n_s: int, n_e: int, tolerance: float) -> list[int]:
    """Which segments the released code averages, as two bounded queues of indices."""
    converge: list[int] = []
    smooth: list[int] = []
    chosen: list[int] = []
    start = threshold = None
    dead = False
    for n in range(len(losses)):
        if dead:
            break
        converge, smooth = [*converge, n][-n_s:], [*smooth, n][-n_e:]
        if start is None:
            recent = [losses[i] for i in converge]
            if len(converge) == n_s and recent.index(min(recent)) == 0:
                start, threshold = converge[0], (1 + tolerance) * sum(recent) / n_s
                if n_e < n_s:
                    chosen += converge[1 : 1 + n_s - n_e]
                elif n_e > n_s:
                    earlier = smooth[: n_e - n_s + 1]
                    begin = 0
                    for place in range(len(earlier) - 1, -1, -1):
                        if losses[earlier[place]] > threshold:
                            begin = place + 1
                            break
                    chosen += earlier[begin + 1 :]
        elif smooth[0] >= start:
            if min(losses[i] for i in smooth) > threshold:
                dead = True
            else:
                chosen.append(smooth[0])
    if start is None:
        return [len(losses) - 1]
    rest = smooth[1:]
    while not dead and rest and min(losses[i] for i in rest) <= threshold:
        chosen.append(rest.pop(0))
    return chosen or [start]  # the model that the average was made from, when nothing has replaced it


def test_a_plain_valley_is_averaged_once_each() -> None:
    swad = feed(SWAD(), [9, 8, 7, 6, 5, 4, *PLATEAU])
    assert swad.valley is not None
    assert swad.valley.start == 6
    assert swad.valley.limit == pytest.approx(0.78)
    assert shares(swad) == of(list(range(6, 15)))


def test_the_valley_ends_at_evaluation_20() -> None:
    losses = [9, 8, 7, 6, 5, 4, *PLATEAU]
    swad = SWAD()
    feed(swad, losses[:20])
    assert not swad.ended
    feed(swad, losses[20:21], first=20)
    assert swad.ended


def test_looking_back_counts_the_start_twice() -> None:
    swad = feed(SWAD(), [2, 1, 0.9, 0.8, 0.7, 0.6, *PLATEAU])
    assert shares(swad) == of([5, 6, 6, *range(7, 15)])


def test_a_start_before_the_queue_is_full_repeats_more() -> None:
    assert shares(feed(SWAD(), [3, 2, 1, 2, 3, 4, 5, 6, 7, 8])) == of([2, 3, 2, 3])


def test_without_a_start_the_last_segment_is_the_result() -> None:
    assert shares(feed(SWAD(), [float(-n) for n in range(12)])) == {11: 1.0}


@settings(max_examples=300, deadline=None)
@given(
    losses=st.lists(st.integers(1, 12).map(float), min_size=1, max_size=30),
    n_s=st.integers(1, 4),
    n_e=st.integers(1, 7),
    tolerance=st.sampled_from([0.0, 0.25, 1.0]),
)
def test_any_losses_give_the_authors_average(losses: list[float], n_s: int, n_e: int, tolerance: float) -> None:
    assert shares(feed(SWAD(n_s, n_e, tolerance), losses)) == of(authors_indices(losses, n_s, n_e, tolerance))


def test_a_segment_is_the_mean_of_its_steps_and_integers_are_the_latest() -> None:
    swad = SWAD()
    for step in range(1, 5):
        swad.update({"w": torch.full((2,), float(step)), "n": torch.tensor(step)})
    assert swad.average()["w"].tolist() == [2.5, 2.5]
    swad.close_segment(1.0)
    assert swad.average()["w"].tolist() == [2.5, 2.5]
    assert swad.average()["n"] == 4


class Operations(TorchDispatchMode):
    """The names of all operations within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_all_weights_enter_by_one_fused_call_with_the_bits_of_one_call_each() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3, 3, 3), (5,), ()]
    first, second, third = ({str(s): torch.randn(s, generator=generator) for s in shapes} for _ in range(3))
    mean = Mean(first)
    for tensors in (first, second):
        mean.add(tensors)
    with Operations() as seen:
        mean.add(third)
    assert seen.names.count("_foreach_lerp_") == 1
    assert not {"lerp_", "copy_"} & set(seen.names)
    for name, tensor in mean.tensors.items():
        assert torch.equal(tensor, first[name].lerp(second[name], 1 / 2).lerp(third[name], 1 / 3))


def test_weights_that_change_in_place_do_not_reach_into_the_average() -> None:
    swad, w = SWAD(), torch.nn.Parameter(torch.ones(1))
    swad.update({"w": w})
    swad.close_segment(1.0)
    torch.nn.init.zeros_(w)
    assert swad.average()["w"] == 1
    assert not swad.average()["w"].requires_grad


def test_asking_for_the_average_changes_nothing() -> None:
    losses = [2, 1, 0.9, 0.8, 0.7, 0.6, *PLATEAU]
    asked, left = SWAD(), feed(SWAD(), losses)
    for n, loss in enumerate(losses):
        feed(asked, [loss], first=n)
        asked.average()
    assert shares(asked) == shares(left)


def test_after_the_end_nothing_moves_and_the_segments_are_let_go() -> None:
    swad = feed(SWAD(), [9, 8, 7, 6, 5, 4, *PLATEAU])
    before = shares(swad)
    feed(swad, [0.1, 0.1, 0.1], first=30)
    assert shares(swad) == before
    assert swad.recent == []


@pytest.mark.parametrize("cut", range(0, 24, 3))
def test_an_interruption_within_a_segment_changes_no_bit(cut: int) -> None:
    losses = [2, 1, 0.9, 0.8, 0.7, 0.6, *PLATEAU]

    def go_on(swad: SWAD, first: int, last: int) -> SWAD:
        for step in range(first, last):  # two steps a segment
            swad.update({"w": torch.sin(torch.arange(3.0) + step), "n": torch.tensor(step)})
            if step % 2:
                swad.close_segment(losses[step // 2])
        return swad

    whole = go_on(SWAD(), 0, 2 * len(losses))
    resumed = SWAD()
    resumed.load_state_dict(through_bytes(go_on(SWAD(), 0, 2 * cut + 1).state_dict()))
    go_on(resumed, 2 * cut + 1, 2 * len(losses))
    for name, tensor in whole.average().items():
        assert torch.equal(tensor, resumed.average()[name])
    assert whole.ended == resumed.ended


def through_bytes(state: dict[str, Any]) -> Any:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def test_misuse_is_told() -> None:
    with pytest.raises(UserError, match="at least one step"):
        SWAD().close_segment(1.0)
    with pytest.raises(UserError, match="at least one step"):
        SWAD().average()
    with pytest.raises(UserError, match="`n_e` should be a positive integer"):
        SWAD(n_e=0)
    with pytest.raises(UserError, match="`tolerance` should be zero or more"):
        SWAD(tolerance=-0.1)
