"""The runs of a sweep: every combination once, the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from copying import replace
from fgmix.data import from_arrays
from fgmix.errors import UserError
from fgmix.records.schema import RunSpec
from fgmix.records.status import read_status
from fgmix.results.read import read_runs
from fgmix.sweeps import launchers
from fgmix.sweeps.design import Sweep, plan
from fgmix.sweeps.presets import get_preset
from fgmix.training.resolve import resolve
from fgmix.training.trunk import describe_trunk, find_shared_trunks
from records.test_protocols import images
from sweeps.toys import QUICK, Here, make_data, toy_sweep
from training.killed_run import toy_data


def test_every_combination_once(data: str) -> None:
    runs = plan(toy_sweep(data, "erm", "coral", trials=2, hparams=3))
    assert len(runs) == len({run.name for run in runs}) == 2 * 3 * 3 * 2  # algorithms, test domains, draws, trials
    assert {run.spec.test_domains for run in runs} == {("ct",), ("mr",), ("us",)}
    assert [run.spec.trial_seed for run in runs] == [0] * 18 + [1] * 18  # whole trials first


def test_two_datasets_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b", "copy"):
        (tmp_path / name).mkdir()
    first, other, copy = (make_data(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 1), ("copy", 0)))
    with pytest.raises(UserError, match=r"`scans` at .*a/scans.npz and .*b/scans.npz"):
        plan(toy_sweep(first, datasets=(first, other)))
    assert plan(toy_sweep(first, datasets=(first, copy))) == plan(toy_sweep(copy))  # the same data are the same runs


def test_every_domain_is_the_only_source_in_turn(data: str) -> None:
    runs = plan(toy_sweep(data, "erm", single_source=True, trials=1, hparams=1))
    assert [run.spec.test_domains for run in runs] == [("mr", "us"), ("ct", "us"), ("ct", "mr")]
    with pytest.raises(UserError, match="mixup"):
        plan(toy_sweep(data, "mixup", single_source=True))  # needs two source domains
    for other in ({"pairs": True}, {"test_domains": ("us",)}):
        with pytest.raises(UserError, match="single_source"):
            toy_sweep(data, "erm", single_source=True, **other)


def test_pairs_are_held_out_when_asked_for(data: str) -> None:
    held_out = [run.spec.test_domains for run in plan(toy_sweep(data, pairs=True))]
    assert held_out == [("ct",), ("mr",), ("us",), ("ct", "mr"), ("ct", "us"), ("mr", "us")]
    only = [run.spec.test_domains for run in plan(toy_sweep(data, pairs=True, test_domains=("us",)))]
    assert only == [("us",), ("ct", "us"), ("mr", "us")]  # what leave-one-domain-out needs for us


def test_methods_start_alike_and_draws_differ(data: str) -> None:
    runs = plan(toy_sweep(data, "erm", "coral", hparams=2, test_domains=("us",)))
    seeds = {(run.spec.algorithm, run.spec.hparams_seed): run.spec.seed for run in runs}
    assert seeds["erm", 0] == seeds["coral", 0] != seeds["erm", 1] == seeds["coral", 1]
    drawn = {run.spec.hparams_seed: run.spec.settings["lr"] for run in runs}
    assert drawn[0] == 1e-3 != drawn[1]


def test_what_the_user_fixes_is_not_drawn(data: str) -> None:
    common = {**QUICK, "batch_size": 5}
    runs = plan(toy_sweep(data, "erm", "coral", hparams=2, common=common, settings={"lr": 0.5, "gamma": 2.0}))
    assert {run.spec.batch_size for run in runs} == {5}
    assert {run.spec.settings["lr"] for run in runs} == {0.5}
    assert {run.spec.settings.get("gamma") for run in runs} == {None, 2.0}  # ERM has no γ


def test_a_grid_is_every_combination_and_a_method_without_its_settings_runs_once(data: str) -> None:
    sweep = toy_sweep(data, "erm", "fgmix", test_domains=("us",), grid={"lam": (1.0, 3.0), "alpha": (0.1, 0.3)})
    runs = plan(sweep)
    points = [(r.spec.settings["lam"], r.spec.settings["alpha"]) for r in runs if r.spec.algorithm == "fgmix"]
    assert points == [(1.0, 0.1), (1.0, 0.3), (3.0, 0.1), (3.0, 0.3)]
    assert len(runs) == 5


def test_a_frozen_backbone_is_searched_as_features_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample 0 has the learning rate of `fgmix train --frozen`; images' own is a twentieth."""
    monkeypatch.setattr("fgmix.sweeps.design.load_dataset", lambda *_, **__: images())
    (tmp_path / "weights.pt").write_bytes(b"w")
    frozen = {"frozen": True, "backbone": "small_cnn", "weights": str(tmp_path / "weights.pt")}
    sweep = Sweep(datasets=("PACS",), algorithms=("erm",), trials=1, hparams=4, space="paper", common=frozen)
    rates = [resolve(spec, data).settings["lr"] for spec, data in sweep.generate_specs()]
    alone = resolve(RunSpec(dataset="PACS", algorithm="erm", test_domains="2", **frozen), images())
    assert rates[0] == alone.settings["lr"] == 1e-3
    assert set(rates) <= {2e-4, 6e-4, 1e-3}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"trials": 0}, "`trials`"),
        ({"hparams": 0}, "`hparams`"),
        ({"test_domains": ("uss",)}, "domain of scans"),
        ({"test_domains": ("us", "mrr")}, "'mr'"),
        ({"space": "domainbad"}, "'domainbed'"),
        ({"settings": {"lr": "fast"}}, "`lr`"),
    ],
)
def test_mistakes_are_told_before_anything_runs(data: str, fields: dict[str, Any], name: str) -> None:
    with pytest.raises(UserError, match=name):
        plan(toy_sweep(data, **fields))


def test_trials_that_draw_their_own_data_are_planned_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """rotated_mnist partitions anew in every trial: each trial's runs are named by its own data."""
    y, domain = np.arange(60) % 3, np.arange(60) // 20

    def load_trial(spec: Any, **_: Any) -> Any:
        return from_arrays(np.full((60, 2), float(spec.trial_seed)), y, domain, name="drawn")

    monkeypatch.setattr("fgmix.sweeps.design.load_dataset", load_trial)
    both = plan(Sweep(datasets=("drawn",), algorithms=("erm",), trials=2, hparams=1, test_domains=("0",)))
    assert len({run.name for run in both}) == 2
    assert replace(both[0].spec, trial_seed=1, seed=both[1].spec.seed) == both[1].spec


# Shared trunks


@pytest.mark.parametrize(("preset_name", "runs"), [("paper-ablation", 8), ("paper-sensitivity", 16)])
def test_the_papers_designs_cost_at_most_half(preset_name: str, runs: int) -> None:
    """By steps, for one trial and test domain; ERM stands beside the seven variants."""
    sweep = get_preset(preset_name).sweeps[0]
    algorithms = ("erm", *sweep.algorithms) if preset_name == "paper-ablation" else sweep.algorithms
    specs = [
        resolve(RunSpec(dataset="", algorithm=name, test_domains="2", steps=5000, settings=point), toy_data())
        for name in algorithms
        for point in sweep.list_points()
    ]
    assert len(specs) == runs
    trunks = find_shared_trunks(specs)
    steps = sum(spec.steps - trunks[spec.name] for spec in specs)
    once = {(describe_trunk(spec).name, trunks[spec.name]) for spec in specs}
    assert steps + sum(length for _, length in once) <= 5000 * runs / 2


def test_runs_that_nothing_is_shared_with_have_no_trunk(data: str) -> None:
    assert {planned.trunk for planned in plan(toy_sweep(data, "erm", "coral"))} == {0}
    assert {planned.trunk for planned in plan(toy_sweep(data, "fgmix"))} == {0}


def test_one_name_or_several_names_are_swept_over(data: str) -> None:
    one = Sweep(datasets=Path(data), algorithms="erm", test_domains=["ct"])  # type: ignore[arg-type]
    assert (one.datasets, one.algorithms, one.test_domains) == ((data,), ("erm",), ("ct",))


def test_a_sweep_runs_what_is_missing(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, asked = Here(), dict[str, Any]()
    monkeypatch.setattr(launchers, "make_launch", lambda name, **where: asked.update(where, launcher=name) or here)
    sweep = toy_sweep(data, test_domains="ct", settings={"lr": "0.01"})
    first = sweep.run(str(tmp_path), workers=2, progress=False)
    assert repr(first) == "<1 runs done, 0 failed, 0 waiting>"
    assert (asked["launcher"], asked["workers"]) == ("local", 2)
    (record,) = read_runs(tmp_path)
    assert record.spec.settings["lr"] == 0.01  # a text is parsed, as on the command line
    assert sweep.run(tmp_path, progress=False) == first
    replace(sweep, trials=2).run(tmp_path / "more", finished=read_runs(tmp_path), progress=False)
    assert [name.split("-")[0] for name in here.ran] == ["scans", "scans"]  # trial 0 once, and trial 1
    assert read_status(str(tmp_path)).left == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"common": {"step": 3}}, "Did you mean 'steps'"),
        ({"common": {"steps": 0}}, "steps"),
        ({"settings": {"lamm": 3}}, "setting of these algorithms 'lamm'"),
        ({"grid": {"lr": (0.1, -1)}}, "lr"),
    ],
)
def test_a_wrong_option_is_found_before_a_run_starts(
    data: str, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        toy_sweep(data, **fields).run(tmp_path / "out")
    with pytest.raises(UserError, match="Did you mean 'slurm'"):
        toy_sweep(data).run(tmp_path / "out", launcher="slurmm")
    assert not (tmp_path / "out").exists()
