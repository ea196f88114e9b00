"""The runs behind a number, and the commands that make them again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from copying import replace
from fgmix.cli import app
from fgmix.errors import UserError
from fgmix.records.schema import RunSpec, command
from fgmix.results.explain import describe_origin, explain_number
from fgmix.results.read import read_runs
from fgmix.results.runs import Grid, Runs
from fgmix.sweeps.execute import run_sweeps
from fgmix.training.prepare import prepare
from results.made import GRID, Parts, finished, grid_records, run
from sweeps.toys import QUICK, Here, make_data, toy_sweep


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real sweep with every kind of setting in its specs."""
    folder = tmp_path_factory.mktemp("swept")
    common = {**QUICK, "checkpoint_every": 3, "holdout_fraction": 0.25, "head": "mlp"}
    sweep = toy_sweep(make_data(folder), "fgmix", hparams=2, space="paper", common=common, test_domains=("us",))
    run_sweeps([sweep], folder / "out", Here(), progress=False)
    return folder / "out"


def test_explained_lists_every_run_behind_a_number(swept: Path) -> None:
    lines = explain_number(read_runs(swept), "scans", "fgmix", "us")
    folders = sorted(str(path) for path in swept.glob("scans-fgmix-us-*"))
    text = "\n".join(lines)
    assert lines[0].startswith("FGMix, scans, us, trial 0: ")
    assert "the best of 2 hyper-parameter samples" in lines[0]
    assert (
        sorted({line.split(": ")[1] for line in lines if line.startswith(("  reported", "  not selected"))}) == folders
    )
    record = read_runs(swept).records[0]
    for part in (f"data {record.data_fingerprint}", f"fgmix {record.fgmix_version}", "torch ", "python ", "sample 1"):
        assert part in text


def test_explained_says_why_there_is_no_number() -> None:
    diverged = replace(finished("a", 0.5), evaluations=(), status="diverged", diverged_at=3)
    (line, _) = explain_number(Runs([diverged]), "toy", "erm", "a")
    assert line == "ERM, toy, a, trial 0: no number (the only run diverged before the first evaluation)"


def test_explained_tells_the_points_of_a_grid_apart() -> None:
    grid = Grid(GRID, tuple(grid_records(lambda *_: 0.5)))
    heads = [line for line in explain_number(Runs([], [grid]), "toy", "fgmix", "a") if line.startswith("FGMix")]
    assert len(heads) == 8  # four points, two trials
    assert heads[0].startswith(
        "FGMix, λ₀ = 1, α = 0.1, toy, a, trial 0: accuracy 50.0 % (validation 50.0 % at step 20)"
    )


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("fgmix (a \\(b\\))", ["FGMix (a (b))", "FGMix (a (b)) + SWA"]),  # the key
        ("FGMix (a (b))", ["FGMix (a (b))"]),
        ("FGMix (a (b)) + SWA", ["FGMix (a (b)) + SWA"]),
        ("FGMix (a (b)) + SWA ≈", ["FGMix (a (b)) + SWA"]),
    ],
)
def test_a_row_is_found_by_its_key_and_by_its_label_as_printed(row: str, found: list[str]) -> None:
    measured: dict[int, Parts] = {10: {"a": (0.5, 0.5), "b": (None, 0.5)}}
    results = Runs([run("a", measured, swa=measured, algorithm="fgmix", arm="a (b)"), finished("a", 0.5)])
    lines = explain_number(results, "toy", row, "a")
    assert [line.partition(", toy")[0] for line in lines if line.startswith("FGMix")] == found


def test_an_unknown_cell_names_the_nearest(swept: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'scans fgmix us'"):
        explain_number(read_runs(swept), "scans", "fgmix", "uss")


def spec_of(monkeypatch: pytest.MonkeyPatch, printed: str) -> RunSpec:
    """The spec that a printed command trains, by way of the real command line."""
    trained: list[RunSpec] = []

    def instead_of_training(spec: RunSpec, *_: Any, **__: Any) -> None:
        trained.append(spec)
        raise UserError("far enough")

    monkeypatch.setattr("fgmix.training.loop.train", instead_of_training)
    program, *arguments = shlex.split(printed)
    assert program == "fgmix"
    with pytest.raises(UserError, match="far enough"):
        app(arguments, standalone_mode=False)
    return trained[0]


def test_the_printed_command_makes_the_same_run_again(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = read_runs(swept).records
    assert len(records) == 2
    for record in records:
        assert record.folder is not None
        assert prepare(spec_of(monkeypatch, describe_origin(record)), progress=False).spec.name == record.folder.name


def test_the_printed_command_names_the_plug_in_of_a_run() -> None:
    record = structs.replace(finished("a", 0.5), code="c0662d222ba9, data d26a73ba54fe rooms.py")
    assert describe_origin(record).endswith(" --plugin rooms.py")


def test_every_field_of_a_spec_survives_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field away from its default; the shell and the parser must cope with spaces and numbers such as 1/3."""
    spec = RunSpec(
        dataset=make_data(tmp_path, "my scans"),
        algorithm="fgmix",
        test_domains=("us", "ct"),
        settings={"domains_per_tuple": None, "scale": "rms", "lam": 3.0, "gamma": 1 / 3, "n": 7},
        arm="γ = 1/3",
        backbone="identity",
        pretrained=True,
        weights=str(tmp_path / "weights.pt"),
        head="mlp",
        augment="none",
        dropout=0.1,
        freeze_bn=True,
        image_size=5,
        steps=7,
        batch_size=9,
        eval_every=2,
        checkpoint_every=3,
        keep="none",
        seed=11,
        trial_seed=2,
        hparams_seed=4,
        holdout_fraction=0.3,
        classes_per_batch=2,
        protocol="domainbed-2020",
        averaging="swad",
        averaging_start=1,
        evaluate_train=True,
        snapshots=2,
        channels_last=True,
        data_root=str(tmp_path),
        skip_unreadable=True,
        precision="bf16",
        compile=True,
        deterministic=True,
        checkpoint_minutes=2.5,
        class_weight="balanced",
        metric="macro_f1",
        standardize=True,
        freeze=1,
        warmup_head=5,
        checkpoint_activations=True,
        image_lists="oop.txt",
        templates="name",
        class_names="names.csv",
        lora=4,
        lora_targets="attn,fc1",
        lora_alpha=8.0,
        lora_dropout=0.1,
        window="0:100",
        frozen=True,
        views=2,
        weighted_loss=True,
    )
    default = RunSpec(dataset="", algorithm="", test_domains=("",))
    assert [name for name in RunSpec.__struct_fields__ if getattr(spec, name) == getattr(default, name)] == []
    assert spec_of(monkeypatch, command(spec)) == spec
    off = replace(spec, pretrained=False, freeze_bn=False, channels_last=False)
    assert spec_of(monkeypatch, command(off)) == off
