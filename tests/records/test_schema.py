"""Specs and records: defaults and checks, names by content, what a record says of its run."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import torch

from copying import replace
from fgmix.errors import UserError
from fgmix.records.evaluations import Model
from fgmix.records.files import read_json, write_json
from fgmix.records.schema import Head, ResolvedSpec, RunRecord, RunSpec, options, selected_weights, to_plain, to_spec
from fgmix.records.store import RECORD, RunFolder, read_record, write_record
from fgmix.training.loop import train
from fgmix.training.open_run import load_algorithm, open_run
from fgmix.training.resolve import resolve
from results.made import run
from training.killed_run import toy_data, toy_spec

SPEC = RunSpec(dataset="arrays", algorithm="erm", test_domains=("2",))


def name_of(spec: RunSpec, weights: str = "") -> str:
    return replace(resolve(spec, toy_data()), weights_digest=weights).name


def test_resolving_fills_every_default_and_is_idempotent() -> None:
    data = toy_data()
    spec = resolve(SPEC, data)
    assert (spec.backbone, spec.steps, spec.batch_size, spec.settings["lr"]) == ("mlp", 1000, 32, 1e-3)
    assert resolve(spec, data) == spec
    assert to_spec(to_plain(spec), ResolvedSpec) == spec


def test_the_name_depends_on_content_only() -> None:
    assert name_of(SPEC) == name_of(replace(SPEC, dataset="/elsewhere/arrays", data_root="/anywhere"))
    assert name_of(SPEC) == name_of(replace(SPEC, steps=1000)), "a default written out is the same run"
    assert name_of(SPEC) == name_of(replace(SPEC, settings={"lr": 1e-3}))
    others = [
        replace(SPEC, seed=1),
        replace(SPEC, steps=999),
        replace(SPEC, test_domains=("1",)),
        replace(SPEC, settings={"lr": 2e-3}),
        replace(SPEC, trial_seed=1),
        replace(SPEC, protocol="domainbed-2020"),
    ]
    names = {name_of(spec) for spec in [SPEC, *others]} | {name_of(SPEC, weights="digest")}
    assert len(names) == len(others) + 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"test_domains": ("3",)}, r"Unknown domain of arrays '3'.*Known: 0, 1, 2"),
        ({"test_domains": ("1", "1")}, "different test domains"),
        ({"test_domains": ("0", "1", "2")}, "Expected a source domain to train on"),
        ({"algorithm": "err"}, "Did you mean 'erm'"),
        ({"settings": {"lrr": 1.0}}, "Did you mean 'lr'"),
        ({"settings": {"lr": -1.0}}, "`lr` should be a positive number"),
    ],
)
def test_mistakes_are_found_before_training(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        resolve(replace(SPEC, **change), toy_data())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"steps": True},
        {"batch_size": -1},
        {"eval_every": 1.5},
        {"seed": -1},
        {"protocol": "dirty"},
        {"head": "foo"},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"dropout": [1]},
        {"dropout": False},
        {"holdout_fraction": 0},
        {"holdout_fraction": 1},
        {"holdout_fraction": "0.2"},
        {"compile": 1},
        {"evaluate_train": None},
        {"pretrained": "yes"},
    ],
)
def test_impossible_values_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(change))):
        replace(SPEC, **change)  # type: ignore[arg-type]


def test_a_spec_may_hold_nothing_out() -> None:
    """A model to be used is trained on all domains; its folder says so."""
    data = toy_data()
    spec = resolve(replace(SPEC, test_domains=()), data)
    assert "-all-" in spec.name


def test_the_heads_of_a_spec_are_those_that_can_be_built() -> None:
    from fgmix.networks.build import CLASSIFIERS
    from fgmix.networks.text import TEXT_HEADS

    assert get_args(Head) == (*CLASSIFIERS, *TEXT_HEADS)


def test_domains_may_be_one_name_and_paths_may_be_paths(tmp_path: Path) -> None:
    spec = RunSpec(dataset=tmp_path / "scans", algorithm="erm", test_domains="photo", data_root=tmp_path)  # type: ignore[arg-type]
    assert (spec.dataset, spec.test_domains, spec.data_root) == (str(tmp_path / "scans"), ("photo",), str(tmp_path))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"test_domains": (2,)}, "names of domains. Found .2,.. .* '2'"),
        ({"test_domains": 2}, "a name or a sequence of names"),
        ({"test_domains": None}, "a name or a sequence of names"),
        ({"dataset": None}, "`dataset` should be a text"),
        ({"settings": [1]}, "a dictionary"),
        ({"steps": float("nan")}, "`steps` should be"),
        ({"dropout": float("nan")}, "finite"),
    ],
)
def test_other_types_are_refused_with_a_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        replace(SPEC, **change)  # type: ignore[arg-type]


def test_a_resolved_spec_leaves_nothing_open() -> None:
    spec = resolve(SPEC, toy_data())
    assert None not in to_plain(spec).values()
    with pytest.raises(UserError, match="`steps`"):
        to_spec({**to_plain(spec), "steps": None}, ResolvedSpec)


@pytest.mark.parametrize("change", [{"std": [0.0, 1.0, 1.0]}, {"mean": [float("inf")]}, {"interpolation": "nearest"}])
def test_images_are_normalised_by_possible_values(change: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(change))):
        to_spec({**to_plain(resolve(SPEC, toy_data())), **change}, ResolvedSpec)


# At steps 10 and 20: accuracy on (train, holdout); the first is better on the sources' holdout.
FOUND = {
    10: {"a": (0.3, 0.9), "b": (None, 0.8), "c": (None, 0.6)},
    20: {"a": (0.5, 0.1), "b": (None, 0.7), "c": (None, 0.5)},
}


def averaged(model: Model) -> RunRecord:
    """A run whose averaged model measured the same as the raw one."""
    record = run("a", FOUND)
    evaluations = [replace(e, accuracy={**e.accuracy, model: e.accuracy["raw"]}) for e in record.evaluations]
    return replace(record, evaluations=tuple(evaluations))


@pytest.mark.parametrize(("model", "step"), [("raw", 10), ("swa", 10), ("swad", 20)])
def test_swad_is_its_last_model_and_others_are_validated(model: Model, step: int) -> None:
    record = averaged(model)
    assert record.selected(model).step == step
    assert selected_weights(model) == ("last" if model == "swad" else "best")
    assert record.test_accuracy(model) == {10: 0.3, 20: 0.5}[step]


def test_a_model_is_evaluated_from_when_it_exists() -> None:
    """An average that begins late has fewer evaluations than the raw model."""
    first, second = averaged("swa").evaluations
    late = replace(run("a", FOUND), evaluations=(replace(first, accuracy={"raw": first.accuracy["raw"]}), second))
    assert late.models == ("raw", "swa")
    assert (late.selected("raw").step, late.selected("swa").step) == (10, 20)


def test_accuracy_of_several_test_domains_is_their_mean() -> None:
    pair = run("a b", {10: {"a": (0.2, 0.0), "b": (0.6, 0.0), "c": (None, 0.5)}})
    assert pair.test_accuracy() == pytest.approx(0.4)
    assert pair.accuracy["b"]["train"] == 0.6


def test_what_is_not_there_is_an_error_that_says_so() -> None:
    with pytest.raises(UserError, match=r"Expected a model that the run evaluated: raw. Found 'swa'"):
        run("a", FOUND).test_accuracy("swa")
    with pytest.raises(UserError, match="diverged at step 3, before the first"):
        replace(run("a", {}, status="diverged"), diverged_at=3).selected()
    with pytest.raises(UserError, match="trained on all domains"):
        run("", {10: {"a": (None, 0.5)}}).test_accuracy()
    with pytest.raises(UserError, match="without a folder"):
        load_algorithm(run("a", FOUND))


def test_a_method_without_a_label_is_printed_by_its_key() -> None:
    assert replace(run("a", FOUND, algorithm="mine"), label="").label == "mine"


def test_a_record_carries_how_its_method_is_printed_and_opens_it(tmp_path: Path) -> None:
    data = toy_data()
    record = train(toy_spec("andmask"), tmp_path, dataset=data, device="cpu", progress=False)
    assert record.folder is not None
    again = read_record(record.folder)
    assert again == record
    assert (again.label, again.domainbed_name) == ("AND-Mask", "ANDMask")
    sample = open_run(record.folder, dataset=data).sample(["2"])
    for model in again.models:
        algorithm = load_algorithm(again, model, dataset=data)
        assert not algorithm.training
        correct = algorithm.predict(torch.cat(list(sample.inputs()))).argmax(1) == sample.y
        assert float(correct.float().mean()) == pytest.approx(again.test_accuracy(model))
    RunFolder(record.folder).weights("best").unlink()
    with pytest.raises(UserError, match="the weights best"):
        load_algorithm(again, dataset=data)


def test_an_incomplete_record_says_how_to_go_on(tmp_path: Path) -> None:
    record = run("a", FOUND)
    write_record(record, tmp_path / RECORD)
    content = read_json(tmp_path / RECORD)
    del content["domains"]
    write_json(tmp_path / RECORD, content)
    with pytest.raises(UserError, match="`domains`"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    ("values", "improving"),
    [
        ({10: 0.5, 20: 0.6, 30: 0.7, 40: 0.8}, True),
        ({10: 0.5, 20: 0.6, 30: 0.7, 40: 0.702}, False),  # a gain that more steps would hardly repeat
        ({10: 0.5, 20: 0.6, 35: 0.8, 40: 0.8}, False),  # as good before
        ({10: 0.5, 20: 0.9, 30: 0.7, 40: 0.8}, False),
        ({40: 0.8}, False),  # nothing to compare with
        ({10: 0.5, 20: 0.6}, False),  # it did not come to its last step
    ],
)
def test_a_run_that_still_improves_says_so(values: dict[int, float], improving: bool) -> None:
    record = run("a", {step: {"a": (0.1, 0.1), "b": (None, value)} for step, value in values.items()})
    assert replace(record, spec=replace(record.spec, steps=40)).still_improving is improving


@pytest.mark.parametrize(
    "change",
    [{"steps": -1}, {"backbone": None}, {"input_shape": "x"}, {"precision": "fp8"}, {"dropout": "a"}, {"bf16": True}],
)
def test_a_resolved_spec_made_by_hand_is_checked(change: dict[str, object]) -> None:
    resolved = resolve(SPEC, toy_data())
    with pytest.raises(UserError, match=next(iter(change))):
        ResolvedSpec(**{**msgspec.structs.asdict(resolved), **change})


def test_an_edited_record_is_refused_by_file_and_field(tmp_path: Path) -> None:
    record = train(replace(SPEC, steps=2, averaging="none"), tmp_path, dataset=toy_data(), progress=False)
    assert record.folder is not None
    file, content = RunFolder(record.folder).record, to_plain(record)
    metrics = content["unseen"]["raw"]["2"]
    edits: list[dict[str, object]] = [{"recall": []}, {"recall": [None] * 3}, {"confusion": [[1, 2]]}]
    edited = [{"unseen": {"raw": {"2": {**metrics, **edit}}}} for edit in edits]
    for change in ({"colour": 1}, *edited):
        write_json(file, {**content, **change})
        with pytest.raises(UserError, match=next(iter(change))) as error:
            read_record(record.folder)
        assert str(file) in str(error.value)


def test_help_describes_every_option() -> None:
    text = inspect.getdoc(RunSpec) or ""
    for name, option in options(omit=("dataset", "algorithm")).items():
        assert f"- `{name}`: {option.help}" in text
