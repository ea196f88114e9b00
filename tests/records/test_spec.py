"""Specs: defaults by kind of dataset, checks before training, names by content."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from copying import replace
from fgmix.errors import UserError
from fgmix.records.schema import Head, ResolvedSpec, RunSpec, to_plain, to_spec
from fgmix.training.resolve import resolve
from training.killed_run import toy_data

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
        {"bf16": 1},
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

    assert get_args(Head) == CLASSIFIERS


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
