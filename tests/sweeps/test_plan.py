"""What a sweep costs: arithmetic on a calibration, and a calibration that leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from copying import replace
from fgmix.errors import UserError
from fgmix.progress import format_duration, parse_duration
from fgmix.records.schema import RunSpec
from fgmix.sweeps.calibrate import Calibration, RunCost
from fgmix.sweeps.design import PlannedRun, plan
from fgmix.sweeps.plan import CostedRun, estimate_costs, select_fitting, summarise
from sweeps.toys import QUICK, make_data, toy_sweep


@pytest.fixture
def data(tmp_path: Path) -> str:
    return make_data(tmp_path)


def costed(*seconds: float) -> list[CostedRun]:
    runs = [RunSpec(dataset="d", algorithm="erm", test_domains=("a",), trial_seed=i // 2) for i in range(len(seconds))]
    return [
        CostedRun(PlannedRun(str(i), run), "d", RunCost(1, s, 10**9), 10**7 * (i + 1))
        for i, (run, s) in enumerate(zip(runs, seconds))
    ]


def test_what_fits_is_the_first_runs() -> None:
    runs = costed(3, 3, 3, 1)
    assert [len(select_fitting(runs, budget)) for budget in (2, 3, 8.9, 9, 10)] == [0, 1, 2, 3, 4]
    assert [len(select_fitting(runs, budget, workers=2)) for budget in (3, 4, 6)] == [2, 2, 4]  # 3 + 3 beside 3 + 1


def test_a_plan_in_words() -> None:
    assert sum((each.estimate for each in costed(30, 90)), RunCost()) == RunCost(2, 120, 2 * 10**9)
    head, *by_method, whole, fits = summarise(costed(3600, 1800, 1800), workers=2, budget=3600)
    assert head.split() == ["dataset", "method", "time", "disk"]
    assert [line.split() for line in by_method] == [["d", "erm", "3", "runs", "1", "h", "0", "min", "3.00", "GB"]]
    # The two largest checkpoints at once, of 20 and 30 MB.
    disk = "3.00 GB of weights, and up to 0.05 GB of checkpoints while runs are in progress"
    assert whole == f"3 runs, about 1 h 0 min on 2 workers, {disk}."
    assert fits == "The first 3 of 3 runs finish within 1 h 0 min, 2 of trial 0, 1 of trial 1."
    assert summarise(costed(7200), budget=60)[-1] == "The first 0 of 1 runs finish within 1 min."


def test_a_sweep_is_calibrated_once_a_method_and_dataset(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fgmix.sweeps import plan as module

    calibrate, calibrated = module.calibrate, list[str]()

    def counting(run: RunSpec, *args: object, **options: object) -> Calibration:
        calibrated.append(run.algorithm)
        return calibrate(run, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "calibrate", counting)
    sweep = toy_sweep(data, "erm", "fgmix", trials=2)
    before = set(tmp_path.rglob("*"))
    runs = estimate_costs([sweep, sweep], device="cpu").runs
    assert calibrated == ["erm", "fgmix"]
    assert [each.run for each in runs] == plan(sweep)  # each once
    assert all(each.estimate.seconds > 0 and each.estimate.bytes > 0 for each in runs)
    assert set(tmp_path.rglob("*")) == before


def test_an_arm_has_its_own_cost(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms differ in settings that decide the cost of a step, such as the number of mixtures."""
    arms = [
        toy_sweep(data, "fgmix", settings={"n": n}, common={**QUICK, "arm": arm}) for n, arm in ((2, ""), (64, "n"))
    ]

    def calibrate(spec: RunSpec, *_: object, **__: object) -> Calibration:
        return Calibration({0.5: spec.settings["n"]}, spec.batch_size or 1, 0.0, 0.0, 0, 0, 0)

    monkeypatch.setattr("fgmix.sweeps.plan.calibrate", calibrate)
    found = estimate_costs(arms, device="cpu").runs
    assert {(each.run.spec.arm, each.estimate.seconds / each.estimate.steps) for each in found} == {("", 2), ("n", 64)}


def test_a_method_that_cannot_run_is_a_line_of_the_plan(data: str) -> None:
    found = estimate_costs([toy_sweep(data, "erm", "l2a_ot")], device="cpu")
    assert {each.run.spec.algorithm for each in found.runs} == {"erm"}
    assert list(found.impossible) == [("scans", "l2a_ot")]
    _, erm, other, whole = summarise(found.runs, impossible=found.impossible)
    assert erm.split()[:3] == ["scans", "erm", "3"]
    assert other.startswith("scans            l2a_ot           cannot run: ")
    assert "convolutional" in other
    assert whole.startswith("3 runs")


@pytest.mark.parametrize("mistake", [{"settings": {"lr": "fast"}}, {"common": {"steps": 0}}])
def test_a_mistake_is_no_method_that_cannot_run(data: str, mistake: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        estimate_costs([toy_sweep(data, **mistake)], device="cpu")
    with pytest.raises(UserError, match="Expected a device"):
        estimate_costs([toy_sweep(data)], device="nosuch")


def test_decoded_images_are_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGMIX_CACHE", "/cache")
    runs = [replace(each, caches_images=True) for each in costed(1, 1)]
    assert summarise(runs)[-1] == "Not included: the cache of decoded images of d in /cache."


@pytest.mark.parametrize(("workers", "threads"), [(1, 8), (2, 4), (3, 2), (16, 1)])
def test_a_run_is_timed_with_the_threads_of_a_worker(
    data: str, monkeypatch: pytest.MonkeyPatch, workers: int, threads: int
) -> None:
    from fgmix.sweeps import plan as module

    now, used = [8], list[int]()

    def calibrate(*_: object, **__: object) -> Calibration:
        used.append(now[0])
        raise UserError("no need to go on")

    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))
    monkeypatch.setattr(module, "calibrate", calibrate)
    estimate_costs([toy_sweep(data)], device="cpu", workers=workers)
    assert used == [threads]
    assert now == [8]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8h", 28800), ("90m", 5400), ("1h30m", 5400), ("1.5 d", 129600), ("40s", 40), ("1H 5M", 3900)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "h", "eight hours", "8h!", "-3h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UserError, match="Expected a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min"), (3599, "1 h 0 min"), (7260, "2 h 1 min"), (250_000, "2.9 days")],
)
def test_format_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
