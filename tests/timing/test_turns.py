"""Ratios of two ways that are timed by turns."""

from __future__ import annotations

import pytest

from fgmix.errors import UserError
from fgmix.timing import turns
from fgmix.timing.turns import Turns, by_turns


def test_the_ratio_is_the_median_of_the_rounds_and_not_of_the_times() -> None:
    found = Turns(ours=(1.0, 2.0, 1.0), theirs=(3.0, 8.0, 5.0))
    assert found.ratio == 4.0  # of 3, 4 and 5; the medians' would be 5
    assert found.quartiles == (3.0, 5.0)


def test_ways_take_turns_and_each_gets_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], list[str]()

    def way(name: str, seconds: float):  # type: ignore[no-untyped-def]
        def work(number: int) -> None:
            calls.append(f"{name}{number}")
            now[0] += seconds * (number + 1)

        return work

    monkeypatch.setattr(turns.time, "perf_counter", lambda: now[0])
    assert by_turns(way("ours", 1), way("theirs", 3), 4) == Turns((1, 2, 3, 4), (3, 6, 9, 12))
    assert calls == ["ours0", "theirs0", "theirs1", "ours1", "ours2", "theirs2", "theirs3", "ours3"]


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(UserError, match="`rounds` should be at least 3"):
        by_turns(lambda _: None, lambda _: None, 2)
