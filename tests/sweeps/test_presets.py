"""The presets describe the paper's tables: counted and looked at, on made data with the benchmarks' own domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from copying import replace
from fgmix.data import DomainDataset, from_arrays, load
from fgmix.errors import UserError
from fgmix.records.benchmarks import known_domains
from fgmix.records.rows import Row, spec_row
from fgmix.records.schema import RunSpec
from fgmix.records.status import Outcome
from fgmix.results.published import accuracies, overall, sensitivity
from fgmix.results.read import read_runs
from fgmix.results.report import tabulate
from fgmix.sweeps.design import PlannedRun, Sweep, plan
from fgmix.sweeps.execute import Report, run_sweeps
from fgmix.sweeps.presets import PRESETS, apply_changes, get_preset
from fgmix.training.resolve import resolve
from fgmix.training.trunk import describe_trunk, find_shared_trunks
from sweeps.toys import QUICK, Here, Refuse, make_data

DOMAINS = {"PACS": 4, "VLCS": 4, "OfficeHome": 4, "TerraIncognita": 4, "DomainNet": 6}


def fake(spec: RunSpec, **_: Any) -> DomainDataset:
    return black_images(spec.dataset, spec.image_size or 32)


@cache
def black_images(dataset: str, side: int) -> DomainDataset:
    """A benchmark of black images, ten classes in each domain."""
    names = known_domains(dataset) or ("fonts", "mnist", "photo", "scans")
    y, domain = np.tile(np.arange(10), len(names)), np.repeat(np.arange(len(names)), 10)
    data = from_arrays(np.zeros((len(y), 3, side, side)), y, domain, name=dataset, domains=names)
    return replace(data, kind="small_images" if dataset == "digits" else "images")


def planned(name: str, scale: str = "paper", **changes: Any) -> list[RunSpec]:
    """Resolved specs of a preset's runs."""
    sweeps = [apply_changes(sweep, changes) for sweep in get_preset(name, scale).sweeps]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fgmix.sweeps.design.load_dataset", fake)
        return [resolve(run.spec, fake(run.spec)) for sweep in sweeps for run in plan(sweep)]


@pytest.fixture(scope="module")
def overall_specs() -> list[RunSpec]:
    """A trial of paper-overall, of three hyper-parameter samples."""
    return planned("paper-overall", trials=1, hparams=3)


def count(specs: list[RunSpec], *fields: str) -> Counter[Any]:
    return Counter(tuple(getattr(spec, field) for field in fields) for spec in specs)


def test_overall_is_every_method_on_every_dataset(overall_specs: list[RunSpec]) -> None:
    specs = overall_specs
    published = {method.algorithm for method in overall()}
    assert {spec.algorithm for spec in specs} == published
    assert len(published) == 16
    runs = count(specs, "dataset", "algorithm")
    assert {dataset: runs[dataset, "fgmix"] for dataset in DOMAINS} == {name: 3 * n for name, n in DOMAINS.items()}
    assert len(set(runs)) == 5 * 16
    assert {spec.averaging for spec in specs} == {"swa"}
    starts = {spec.averaging_start for spec in specs if spec.algorithm != "ddg"}
    assert starts == {100}  # ddg's base model starts to train later
    assert {spec.protocol for spec in specs} == {"domainbed-2020"}
    assert {spec.backbone for spec in specs} == {"resnet50.tv_in1k"}


def test_the_papers_numbers_of_steps_trials_and_draws(overall_specs: list[RunSpec]) -> None:
    for name in ("paper-overall", "paper-ablation", "paper-sensitivity"):
        assert {(s.trials, s.hparams, s.space) for s in get_preset(name).sweeps} == {(5, 20, "paper")}
    for spec in (spec for spec in overall_specs if spec.algorithm == "fgmix" and spec.hparams_seed == 0):
        steps = 15_000 if spec.dataset == "DomainNet" else 5_000
        assert spec.steps == steps
        assert spec.settings["tau"] * steps == (9_000 if spec.dataset == "DomainNet" else 3_000)
        assert (spec.settings["n"], spec.batch_size, spec.settings["lr"]) == (32, 32, 5e-5)
        assert (spec.classes_per_batch > 0) == (spec.dataset == "DomainNet")


def test_the_papers_search() -> None:
    specs = planned("paper-ablation", trials=2, datasets=("PACS",), algorithms=("fgmix",), test_domains=("photo",))
    drawn = [spec for spec in specs if spec.hparams_seed > 0]
    values = {
        "lr": {1e-5, 3e-5, 5e-5},
        "weight_decay": {1e-4, 1e-6},
        "eta2": {1e-4, 1e-3, 1e-2},
        "lam": {1.0, 3.0, 5.0, 8.0},
        "alpha": {0.01, 0.03, 0.1, 0.3},
    }
    for name, allowed in values.items():
        assert {spec.settings[name] for spec in drawn} == allowed
    assert {spec.dropout for spec in drawn} == {0.0, 0.1, 0.5}
    assert {spec.batch_size for spec in drawn} == {32}
    assert all(1 <= spec.settings["gamma"] <= 100 for spec in drawn)


def test_ddg_trains_longer_on_smaller_batches(overall_specs: list[RunSpec]) -> None:
    ddg = [spec for spec in overall_specs if spec.algorithm == "ddg"]
    assert {(s.steps, s.batch_size, round(s.settings["stage0"] * 35_000)) for s in ddg} == {(35_000, 8, 25_000)}
    assert {(s.settings["pairs"], s.settings["downs"], s.settings["width"]) for s in ddg} == {(2, 4, 16)}


def test_critics_and_look_ahead_are_the_papers(overall_specs: list[RunSpec]) -> None:
    """ResNet-50 for L2A-OT's critics, StarGAN's generator; MetaMixup looks ahead through the whole network."""
    specs = overall_specs
    l2a_ot = [spec.settings for spec in specs if spec.algorithm == "l2a_ot"]
    assert {(s["critics"], s["lr_critics"], s["width"], s["lr_generator"]) for s in l2a_ot} == {
        ("backbone", 1e-4, 64, 1e-4)
    }
    assert {s["lambda_domain"] for s in l2a_ot} <= {0.5, 1.0, 2.0}
    assert {s["lambda_cycle"] for s in l2a_ot} == {10.0, 20.0}  # still searched
    metamixup = [spec.settings for spec in specs if spec.algorithm == "metamixup"]
    assert {(s["look_ahead"], s["lam_lr"]) for s in metamixup} == {("network", 1e-3)}
    small = {spec.algorithm: spec.settings for spec in planned("paper-overall", "small")}
    assert (small["l2a_ot"]["critics"], small["metamixup"]["look_ahead"]) == ("small", "classifier")


def test_ablation_has_the_papers_rows() -> None:
    specs = planned("paper-ablation", trials=1, hparams=2)
    assert len(specs) == 2 * 7 * 4 * 2  # datasets, rows, test domains, draws
    rows = {method.algorithm for _, method, _ in accuracies() if method.algorithm.startswith("fgmix")}
    assert {spec.algorithm for spec in specs} == rows
    assert {spec.dataset for spec in specs} == {"PACS", "TerraIncognita"}


def test_sensitivity_has_the_papers_sixteen_settings() -> None:
    specs = planned("paper-sensitivity", trials=1, hparams=2)
    points = count([spec for spec in specs if spec.hparams_seed == 1], "dataset")
    assert points == {("TerraIncognita",): 16 * 4}
    found = {(spec.dataset, spec.settings["lam"], spec.settings["alpha"]) for spec in specs}
    assert found == set(sensitivity())
    others = {spec.settings["eta2"] for spec in specs if spec.hparams_seed == 1}
    assert len(others) == 1  # one draw of the rest for all sixteen


def test_small_designs_are_the_same_on_digits() -> None:
    assert len(planned("paper-overall", "small")) == 16 * 4
    assert len(planned("paper-ablation", "small")) == 8 * 4 * 3
    assert len(planned("paper-sensitivity", "small")) == 16 * 4 * 2
    for name in (name for name, scales in PRESETS.items() if "small" in scales):
        for sweep in get_preset(name, "small").sweeps:
            assert (sweep.datasets, sweep.hparams) == (("digits",), 1)
    assert {(s.steps, s.settings["tau"]) for s in planned("paper-sensitivity", "small")} == {(300, 0.6)}


@pytest.mark.parametrize(
    ("name", "scale", "sentence"),
    [("paper-ablaton", "small", "Did you mean 'paper-ablation'"), ("paper-ablation", "smal", "Did you mean 'small'")],
)
def test_unknown_names(name: str, scale: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        get_preset(name, scale)


def test_a_users_word_replaces_the_presets() -> None:
    sweep = Sweep(datasets=("a",), algorithms=("erm",), common={"steps": 5}, settings={"lr": 1.0}, grid={"lam": (1.0,)})
    found = apply_changes(sweep, {"trials": 9, "common": {"compile": True, "steps": 7}, "grid": {"alpha": (0.1,)}})
    assert (found.trials, found.common, found.settings) == (9, {"steps": 7, "compile": True}, {"lr": 1.0})
    assert found.grid == {"lam": (1.0,), "alpha": (0.1,)}


def test_a_sensitivity_sweep_becomes_the_papers_table(tmp_path: Path) -> None:
    """One of the sixteen settings is trained; the plan has the others, and so has the table."""
    (sweep,) = get_preset("paper-sensitivity", "small").sweeps
    tiny = replace(sweep, datasets=(make_data(tmp_path),), test_domains=("us",), trials=1, common=QUICK)

    def train_one(runs: Sequence[PlannedRun], out: Path, report: Report) -> list[Outcome]:
        return [*Here()(runs[:1], out, report), *Refuse()(runs[1:], out, report)]

    run_sweeps([tiny], tmp_path / "out", train_one, progress=False)
    text = tabulate(read_runs(tmp_path / "out"), published=True).to_text()
    raw = text.split("### ")[1].splitlines()
    assert raw[0] == "scans: FGMix by λ₀ and α"
    assert raw[2] == "| λ₀ | α = 0.01 | α = 0.03 | α = 0.1 | α = 0.3 |"
    assert [line.split(" |")[0] for line in raw[4:12]] == [
        f"| {lam}{whose}" for lam in (1, 3, 5, 8) for whose in ("", " (paper, TerraIncognita)")
    ]
    assert raw[7] == "| 3 (paper, TerraIncognita) | 47.3 | 47.1 | 49.2 | 49.0 |"


def test_the_replication_is_eleven_arms_over_one_trunk_a_trial_and_domain() -> None:
    specs = planned("paper-ablation", "cpu")
    assert count(specs, "trial_seed", "test_domains") == {
        (trial, (domain,)): 11 for trial in range(3) for domain in known_domains("PACS")
    }
    assert count(specs, "arm")[("",)] == 7 * 12
    assert {spec.settings["lam"] for spec in specs if spec_row(spec) == Row("fgmix_a", "λ = 3")} == {3.0}
    assert {spec.settings["gamma"] for spec in specs if spec_row(spec) == Row("fgmix", "γ = 10")} == {10.0}
    trunks = find_shared_trunks(specs)
    assert set(trunks.values()) == {479}  # the 480th step mixes
    assert len({describe_trunk(spec).name for spec in specs}) == 12


def test_a_scale_that_a_preset_does_not_have_is_named() -> None:
    with pytest.raises(UserError, match="Unknown scale of paper-overall 'cpu'"):
        get_preset("paper-overall", "cpu")


def test_the_second_part_of_the_replication_is_eight_arms_over_one_trunk_a_trial_and_domain() -> None:
    specs = planned("replication", "cpu", trials=2)
    assert count(specs, "trial_seed", "test_domains") == {
        (trial, (domain,)): 8 for trial in range(2) for domain in known_domains("PACS")
    }
    assert {(spec.freeze, spec.views, spec.image_size, spec.averaging_start) for spec in specs} == {
        ("blocks.5", 8, 224, 600)
    }
    assert set(find_shared_trunks(specs).values()) == {599}  # the 600th step mixes, and is the first that is averaged
    assert len({describe_trunk(spec).name for spec in specs}) == 8


def test_the_quick_preset_holds_out_every_typeface_and_takes_any_algorithms() -> None:
    (sweep,) = get_preset("quick", algorithms=("erm", "fgmix", "coral")).sweeps
    assert (sweep.datasets, sweep.algorithms, sweep.trials) == (("typefaces",), ("erm", "fgmix", "coral"), 1)
    runs = plan(sweep)
    assert len(runs) == 3 * 30
    specs = [resolve(run.spec, load(run.spec.dataset)) for run in runs[:3]]
    # the same batches in every arm: uniform, because three of 29 domains always share a class
    assert {(spec.batch_size, spec.classes_per_batch, spec.steps) for spec in specs} == {(4, 0, 200)}
    assert {spec.settings.get("domains_per_tuple") for spec in specs if spec.algorithm == "fgmix"} == {3}
    with pytest.raises(UserError, match="--preset paper-ablation or --algorithms"):
        get_preset("paper-ablation", algorithms=("erm",))
