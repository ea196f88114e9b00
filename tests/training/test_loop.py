"""The loop: what it evaluates, keeps and refuses."""

from __future__ import annotations

import gc
import json
import os
import stat
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import fgmix
from copying import replace
from fgmix.algorithms import Algorithm, Batches, register
from fgmix.algorithms._registry import _REGISTRY
from fgmix.data import from_arrays
from fgmix.errors import UserError
from fgmix.records.schema import Evaluation, RunRecord, RunSpec, to_plain
from fgmix.records.store import RunFolder, read_record
from fgmix.training import evaluate, loop
from fgmix.training.evaluate import evaluation_mode
from fgmix.training.loop import train
from fgmix.training.open_run import load_algorithm, open_run
from fgmix.training.prepare import PreparedRun, build_algorithm, prepare
from fgmix.training.state import load_weights, read_weights
from training.finished import score_domain
from training.killed_run import toy_data, toy_spec
from training.test_resume import run_killed


def run(spec: RunSpec, out: Path) -> RunRecord:
    return train(spec, out, dataset=toy_data(), device="cpu", progress=False)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return run(toy_spec(), tmp_path_factory.mktemp("runs"))


def test_evaluations_hold_what_selection_needs_and_no_more(record: RunRecord) -> None:
    assert [e.step for e in record.evaluations] == [10, 20, 30]
    for found in record.evaluations:
        for model in ("raw", "swa"):
            parts = {name: set(scores) for name, scores in found.accuracy[model].items()}
            assert parts == {"0": {"holdout"}, "1": {"holdout"}, "2": {"train", "holdout"}}
        assert set(found.metrics) == {"loss"}


def test_evaluations_are_read_from_disk_only_to_resume(
    record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = RunFolder.evaluations

    def count_and_read(self: RunFolder, length: int | None = None) -> tuple[Evaluation, ...]:
        reads.append(length or 0)
        return read(self, length)

    monkeypatch.setattr(RunFolder, "evaluations", count_and_read)
    assert run(toy_spec(), tmp_path / "whole").evaluations == record.evaluations
    assert reads == []
    run_killed(tmp_path / "killed", "step", 23)
    assert run(toy_spec(), tmp_path / "killed").evaluations == record.evaluations
    assert len(reads) == 1


def test_training_keeps_freed_memory_for_the_next_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(loop, "keep_freed_memory", lambda: calls.append(True))
    run(replace(toy_spec(), steps=2), tmp_path)
    assert calls == [True]


def test_training_parts_are_scored_on_request(tmp_path: Path) -> None:
    found = run(replace(toy_spec(), evaluate_train=True, steps=5), tmp_path)
    assert set(found.evaluations[0].accuracy["raw"]["0"]) == {"train", "holdout"}


def test_the_record_is_read_back_as_it_was_written(record: RunRecord) -> None:
    assert record.folder is not None
    assert read_record(record.folder) == record
    lines = (record.folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [10, 20, 30]
    assert not (record.folder / "checkpoint.pt").exists()


@pytest.mark.parametrize(("file", "model"), [("best.pt", "raw"), ("best_swa.pt", "swa")])
def test_best_weights_score_what_the_record_says(record: RunRecord, file: str, model: str) -> None:
    prepared = prepare(toy_spec(), toy_data())
    algorithm = build_algorithm(prepared)
    assert record.folder is not None
    load_weights(record.folder / file, algorithm)
    best = record.selected(model)  # type: ignore[arg-type]
    with evaluation_mode(algorithm):
        for name, parts in best.accuracy[model].items():
            domain = prepared.dataset.domains[prepared.dataset.index(name)]
            found = score_domain(algorithm, domain, prepared.splits[name].holdout)
            assert found.accuracy == parts["holdout"]
            assert found.loss == pytest.approx(best.loss[model][name]["holdout"])


def test_score_counts_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "BATCH", 5)
    prepared = prepare(toy_spec(), toy_data())
    algorithm = build_algorithm(prepared)
    domain, indices = prepared.dataset.domains[0], prepared.splits["0"].holdout
    with evaluation_mode(algorithm):
        found = score_domain(algorithm, domain, indices)
        right = [
            int(algorithm.predict(domain.inputs.clean(indices[i : i + 1])).argmax()) == domain.y[indices[i]]
            for i in range(len(indices))
        ]
    assert found.accuracy == sum(right) / len(right)


def test_a_single_source_domain_trains(tmp_path: Path) -> None:
    found = run(replace(toy_spec(), test_domains=("1", "2")), tmp_path)
    assert found.sources == ("0",)
    assert found.status == "done"


def test_a_batch_larger_than_a_domain_trains(tmp_path: Path) -> None:
    assert run(replace(toy_spec(), batch_size=500, steps=3), tmp_path).status == "done"


def test_class_aware_batches_train(tmp_path: Path) -> None:
    assert run(replace(toy_spec(), classes_per_batch=2, steps=3), tmp_path).status == "done"


def test_bfloat16_trains_and_float16_is_refused(tmp_path: Path) -> None:
    record = run(replace(toy_spec(), precision="bf16", steps=3), tmp_path)
    assert record.spec.name != prepare(replace(toy_spec(), steps=3), toy_data()).spec.name
    for spec in (toy_spec(), record.spec):  # a record of earlier versions may have it
        with pytest.raises(UserError, match="`precision`"):
            run(replace(spec, precision="fp16"), tmp_path)


def test_a_domain_that_lacks_a_class_trains(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y, domain = np.arange(90) % 3, np.arange(90) // 30
    y = np.where((domain == 0) & (y == 2), 1, y)
    data = from_arrays(rng.normal(size=(90, 4)), y, domain)
    found = train(replace(toy_spec(), steps=3), tmp_path, dataset=data, device="cpu", progress=False)
    assert found.status == "done"


@pytest.mark.parametrize("bad_from", [1, 4, 30])
def test_a_loss_that_is_not_finite_ends_the_run_as_diverged(tmp_path: Path, bad_from: int) -> None:
    class Breaks(Algorithm):
        """Its loss turns into NaN at a given step."""

        def objective(self, batches: Batches) -> dict[str, Tensor]:
            loss = self.predict(batches[0][0]).sum()
            return {"loss": loss * (float("nan") if self.updates + 1 >= bad_from else 0.0)}

    register("breaks")(Breaks)
    try:
        found = run(replace(toy_spec("breaks"), dropout=0.0), tmp_path)
        assert (found.status, found.diverged_at) == ("diverged", bad_from)
        assert found.folder is not None
        assert read_record(found.folder).status == "diverged"
        assert run(replace(toy_spec("breaks"), dropout=0.0), tmp_path) == found, "it is not run again"
    finally:
        del _REGISTRY["breaks"]


def test_snapshots_are_evenly_spaced(record: RunRecord) -> None:
    assert record.folder is not None
    names = sorted(path.name for path in (record.folder / "snapshots").iterdir())
    steps = [0, 10, 20, 30]
    assert names == sorted(f"{step:07d}{end}.pt" for step in steps for end in ("", "_swa"))
    last = torch.load(record.folder / "snapshots" / "0000030.pt", weights_only=True)
    final = torch.load(record.folder / "last.pt", weights_only=True)
    assert all(torch.equal(last[name], final[name]) for name in final)


def test_a_folder_made_by_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(toy_spec(), steps=3)
    run(spec, tmp_path)
    monkeypatch.setattr(fgmix, "__version__", "9.9.9")
    with pytest.raises(UserError, match=r"made by fgmix .* This is 9\.9\.9"):
        run(spec, tmp_path)


def test_a_folder_another_process_works_on_is_refused(tmp_path: Path) -> None:
    import fcntl

    spec = replace(toy_spec(), steps=3)
    found = run(spec, tmp_path)
    assert found.folder is not None
    with open(found.folder / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="being worked on by another process"):
            run(spec, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere; the next test covers root")
def test_a_read_only_output_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(UserError, match="Choose another --out"):
        run(toy_spec(), tmp_path)


def test_an_output_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="Choose another --out"):
        run(toy_spec(), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_equal_seeds_give_equal_runs_and_others_do_not(tmp_path: Path, record: RunRecord) -> None:
    again = run(toy_spec(), tmp_path)
    assert to_plain(again) == to_plain(record)
    other = run(replace(toy_spec(), seed=1), tmp_path)
    assert other.evaluations != record.evaluations


def test_domainbeds_protocol_evaluates_after_its_steps_0_n_2n(tmp_path: Path) -> None:
    """Arrays have no augmentation: both protocols agree where both evaluate, and the record says which it was."""
    clean = run(replace(toy_spec(), steps=12, eval_every=1), tmp_path)
    spec = replace(toy_spec(), steps=12, eval_every=5, protocol="domainbed-2020", backbone="mlp")
    theirs = run(spec, tmp_path)
    assert [e.step for e in theirs.evaluations] == [1, 6, 11, 12]
    ours = {e.step: e.accuracy for e in clean.evaluations}
    assert all(e.accuracy == ours[e.step] for e in theirs.evaluations)
    assert to_plain(theirs)["spec"]["protocol"] == "domainbed-2020"


@pytest.mark.parametrize(
    ("keep", "averaging", "files"),
    [
        ("all", "swa", {"best.pt", "last.pt", "best_swa.pt", "last_swa.pt"}),
        ("best", "swa", {"best.pt", "best_swa.pt"}),
        ("best", "swad", {"best.pt", "last_swad.pt"}),
        ("none", "swa", set()),
    ],
)
def test_weights_that_are_kept(keep: str, averaging: str, files: set[str], tmp_path: Path) -> None:
    spec = replace(toy_spec("fgmix"), keep=keep, averaging=averaging, snapshots=0)  # type: ignore[arg-type]
    record = run(spec, tmp_path)
    assert record.folder is not None
    assert {path.name for path in record.folder.glob("*.pt")} == files
    everything = run(replace(spec, keep="all"), tmp_path / "all")
    assert record.evaluations == everything.evaluations
    assert record.spec.name == everything.spec.name
    if keep == "best":
        names = [tensor for name in files for tensor in read_weights(record.folder / name)]
        assert all(name.startswith(("featurizer.", "classifier.")) for name in names), "not the policy"
        assert load_algorithm(record, dataset=toy_data()).predict(torch.zeros(1, 6)).shape == (1, 3)


def test_bytes_of_a_run(tmp_path: Path) -> None:
    """none: no weights; best: those of two models, and no policy, which is the larger part; all: everything, twice."""
    bytes_of, spec = {}, replace(toy_spec("fgmix"), snapshots=0)
    for keep in ("none", "best", "all"):
        folder = run(replace(spec, keep=keep), tmp_path / keep).folder  # type: ignore[arg-type]
        assert folder is not None
        bytes_of[keep] = sum(path.stat().st_size for path in folder.iterdir())
    algorithm = build_algorithm(prepare(spec, toy_data()))
    tensors = {name: value.nbytes for name, value in algorithm.state_dict().items() if isinstance(value, Tensor)}
    model = sum(size for name, size in tensors.items() if name.startswith(("featurizer.", "classifier.")))
    policy = sum(tensors.values()) - model
    assert policy > model > 100_000
    assert bytes_of["none"] < 20_000
    assert bytes_of["best"] - bytes_of["none"] == pytest.approx(2 * model, rel=0.05)
    assert bytes_of["all"] - bytes_of["none"] == pytest.approx(4 * (model + policy), rel=0.05)


def test_a_finished_run_holds_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[weakref.ref[Algorithm]] = []

    def watched(run: PreparedRun) -> Algorithm:
        algorithm = build_algorithm(run)
        built.append(weakref.ref(algorithm))
        return algorithm

    monkeypatch.setattr(loop, "build_algorithm", watched)
    record = run(replace(toy_spec("fgmix"), steps=3, eval_every=2), tmp_path)
    gc.collect()
    assert record.status == "done"
    assert [each() for each in built] == [None]


def test_weights_that_are_not_kept_are_named_with_the_way_to_get_them(tmp_path: Path) -> None:
    record = run(replace(toy_spec(), keep="best"), tmp_path)
    assert record.folder is not None
    with pytest.raises(UserError, match=r"--keep all"):
        open_run(record.folder, dataset=toy_data()).algorithm("last")


def test_a_run_keeps_the_weights_that_it_was_started_to_keep(tmp_path: Path) -> None:
    spec = toy_spec()
    fewer = run(replace(spec, keep="best"), tmp_path)
    with pytest.raises(UserError, match=r"keeps best of its weights\. Found --keep all"):
        run(spec, tmp_path)
    assert to_plain(run(replace(spec, keep="none"), tmp_path)) == to_plain(fewer)
