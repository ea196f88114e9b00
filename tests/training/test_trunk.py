"""Shared trunks: the same records and weights as without them, for fewer steps."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from copying import replace
from fgmix import algorithms
from fgmix.errors import UserError
from fgmix.records.schema import RunRecord, to_plain
from fgmix.records.store import RunFolder
from fgmix.training import loop
from fgmix.training.loop import train
from fgmix.training.resolve import resolve
from fgmix.training.state import read_weights
from fgmix.training.trunk import count_trunk_steps, describe_trunk, locate_trunk
from training.killed_run import toy_data, toy_spec

WITHOUT_TEXTS = [name for name in algorithms.names() if not algorithms.get(name).head]
SHARING = [name for name in WITHOUT_TEXTS if count_trunk_steps(resolve(toy_spec(name), toy_data()))]
TRUNK = 17  # τ = 0.6 · 30 = 18 is the first step that mixes


def run(algorithm: str, out: Path, trunk: int = 0, **changes: Any) -> RunRecord:
    spec = replace(toy_spec(algorithm), **changes)
    return train(spec, out, dataset=toy_data(), device="cpu", progress=False, trunk=trunk)


def assert_equal_folders(ours: RunRecord, theirs: RunRecord) -> None:
    assert to_plain(ours) == to_plain(theirs)
    assert ours.folder is not None
    assert theirs.folder is not None
    names = sorted(str(path.relative_to(theirs.folder)) for path in theirs.folder.rglob("*.pt"))
    assert names == sorted(str(path.relative_to(ours.folder)) for path in ours.folder.rglob("*.pt"))
    assert len(names) >= 6
    for name in names:
        left, right = (read_weights(folder / name) for folder in (ours.folder, theirs.folder))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), name


def test_erm_and_the_mixing_methods_declare_their_trunks() -> None:
    assert ["erm", "fgmix", *(f"fgmix_{variant}" for variant in "abcdefu")] == SHARING


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, RunRecord], Counter[str]]:
    """Runs of all that share a trunk, by algorithm, and how many steps the trunk and each of them trained."""
    steps: Counter[str] = Counter()
    step = loop._Loop._step

    def count_and_step(self: Any, batches: Any) -> None:
        steps[type(self.algorithm).__name__] += 1
        step(self, batches)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop._Loop, "_step", count_and_step)
        out = tmp_path_factory.mktemp("shared")
        return {algorithm: run(algorithm, out, TRUNK) for algorithm in SHARING}, steps


@pytest.mark.parametrize("algorithm", SHARING)
def test_a_run_from_a_trunk_equals_one_without(
    algorithm: str, shared: tuple[dict[str, RunRecord], Counter[str]], tmp_path: Path
) -> None:
    assert_equal_folders(shared[0][algorithm], run(algorithm, tmp_path))


def test_a_trunk_is_trained_once(shared: tuple[dict[str, RunRecord], Counter[str]]) -> None:
    steps = Counter(shared[1])
    assert steps.pop("Trunk") == TRUNK
    assert list(steps.values()) == [30 - TRUNK] * len(SHARING)


def test_a_run_that_does_not_mix_starts_from_a_trunk(tmp_path: Path) -> None:
    settings = {"flat_base": True, "n": 0}
    apart, together = tmp_path / "apart", tmp_path / "together"
    assert_equal_folders(run("fgmix", together, TRUNK, settings=settings), run("fgmix", apart, settings=settings))


@pytest.mark.parametrize("averaging", ["swad", "none"])
def test_a_trunk_passes_on_any_average(averaging: str, tmp_path: Path) -> None:
    run("erm", tmp_path / "shared", TRUNK, averaging=averaging)  # leaves the trunk
    ours = run("fgmix", tmp_path / "shared", TRUNK, averaging=averaging)
    assert_equal_folders(ours, run("fgmix", tmp_path / "alone", averaging=averaging))


def test_half_precision_passes_through_a_trunk(tmp_path: Path) -> None:
    alone = run("fgmix", tmp_path / "alone", precision="bf16")
    run("erm", tmp_path / "shared", TRUNK, precision="bf16")  # leaves the trunk
    assert_equal_folders(run("fgmix", tmp_path / "shared", TRUNK, precision="bf16"), alone)


@pytest.mark.parametrize(("algorithm", "steps"), [("coral", 1), ("irm", 40), ("fgmix", 18), ("erm", 31), ("erm", -1)])
def test_a_run_shares_no_more_steps_than_its_algorithm_declares(algorithm: str, steps: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`trunk`"):
        run(algorithm, tmp_path, steps)
    assert not list(tmp_path.iterdir())


def test_trunks_are_shared_by_runs_that_agree_before_it_ends(tmp_path: Path) -> None:
    data = toy_data()
    base = resolve(toy_spec("fgmix"), data)
    same = [
        resolve(toy_spec("erm"), data),
        resolve(replace(toy_spec("fgmix"), settings={"alpha": 0.3}), data),
        resolve(replace(toy_spec("fgmix_d"), hparams_seed=3), data),
    ]
    others = [
        resolve(replace(toy_spec("fgmix"), settings={"lr": 2e-3}), data),
        resolve(replace(toy_spec("fgmix"), seed=1), data),
        resolve(replace(toy_spec("fgmix"), dropout=0.2), data),
        resolve(replace(toy_spec("fgmix"), test_domains=("1",)), data),
    ]
    assert {describe_trunk(spec).name for spec in same} == {describe_trunk(base).name}
    assert len({describe_trunk(spec).name for spec in [base, *others]}) == 1 + len(others)
    assert locate_trunk(base, 17, tmp_path).path != locate_trunk(base, 16, tmp_path).path


def test_a_run_killed_after_its_trunk_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = run("fgmix", tmp_path / "alone")
    step, at = loop._Loop._step, {"n": 0}

    def dying(self: Any, batches: Any) -> None:
        at["n"] += 1
        if at["n"] == TRUNK + 6:
            raise KeyboardInterrupt
        step(self, batches)

    monkeypatch.setattr(loop._Loop, "_step", dying)
    with pytest.raises(KeyboardInterrupt):
        run("fgmix", tmp_path / "shared", TRUNK)
    monkeypatch.setattr(loop._Loop, "_step", step)
    assert_equal_folders(run("fgmix", tmp_path / "shared", TRUNK), alone)
    (folder,) = [path for path in (tmp_path / "shared").iterdir() if path.name != "trunks"]
    first, second = (json.loads(line) for line in RunFolder(folder).sessions.read_text().splitlines())
    assert first["first_step"] == TRUNK
    assert second["first_step"] == 20
