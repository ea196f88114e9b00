"""What a run keeps beside accuracy, worked out again from its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics as theirs

from copying import replace
from fgmix.data import DomainDataset, from_arrays
from fgmix.records.metrics import metrics
from fgmix.records.schema import RunSpec, selected_weights, to_plain
from fgmix.records.store import read_record
from fgmix.results.other_metrics import summarize_run
from fgmix.training import evaluate
from fgmix.training.evaluate import Subset, score_subsets
from fgmix.training.loop import train
from fgmix.training.open_run import open_run

SPEC = RunSpec(
    dataset="arrays",
    algorithm="erm",
    test_domains=("north",),
    steps=40,
    eval_every=10,
    averaging_start=10,
    metric="balanced_accuracy",
)


def rare() -> DomainDataset:
    """Three domains of three classes that overlap; one of them has a tenth of the samples."""
    rng = np.random.default_rng(0)
    y, d = np.tile(np.arange(80) % 10 // 5 * (1 + (np.arange(80) % 10 == 9)), 3), np.repeat(np.arange(3), 80)
    return from_arrays(rng.normal(size=(240, 3)) + np.eye(3)[y] + 0.3 * d[:, None], y, np.array(["north", "x", "y"])[d])


@pytest.mark.parametrize("averaging", ["swa", "swad"])
def test_the_selected_weights_have_these_metrics(tmp_path: Path, averaging: str) -> None:
    spec = replace(SPEC, averaging=averaging)
    record = train(spec, tmp_path, dataset=rare(), device="cpu", progress=False)
    assert read_record(record.folder or "") == record
    run = open_run(record.folder or "", dataset=rare())
    sample = run.sample(["north"], "train")
    for model in record.models:
        with torch.no_grad():
            p = run.algorithm(selected_weights(model), model).predict(torch.cat(list(sample.inputs()))).softmax(1)
        y, guesses = sample.y.numpy(), p.argmax(1).numpy()
        found = record.unseen.get(model, {})["north"]
        assert found.balanced_accuracy == pytest.approx(theirs.balanced_accuracy_score(y, guesses))
        assert found.auroc == pytest.approx(theirs.roc_auc_score(np.eye(3)[y], p.numpy()), abs=1e-6)
        assert np.array_equal(found.confusion, theirs.confusion_matrix(y, guesses, labels=range(3)))
        best = record.selected(model)
        assert best.headline[model]["north"]["train"] == pytest.approx(found.balanced_accuracy)
        assert best.accuracy[model]["north"]["train"] == pytest.approx(found.accuracy)
    lines, tables, _ = summarize_run(record)
    assert "  north (test): {:.1f} %".format(100 * record.unseen["raw"]["north"].accuracy) in lines
    assert "| north |" in tables


def test_selection_goes_by_the_metric(tmp_path: Path) -> None:
    """The step that was selected has the highest balanced accuracy of all, worked out on the sources' holdouts."""
    record = train(SPEC, tmp_path, dataset=rare(), device="cpu", progress=False)
    means = {e.step: np.mean([e.headline["raw"][name]["holdout"] for name in "xy"]) for e in record.evaluations}
    assert means[record.selected().step] == max(means.values())
    assert record.evaluations[0].headline != record.evaluations[0].accuracy


def test_accuracy_as_metric_writes_it_once(tmp_path: Path) -> None:
    record = train(replace(SPEC, metric="accuracy"), tmp_path, dataset=rare(), device="cpu", progress=False)
    assert all(e.headline == {} and "headline" not in to_plain(e) for e in record.evaluations)
    assert set(record.unseen) == {"raw", "swa"}
    assert "consider --metric balanced_accuracy" in summarize_run(record)[1]


def test_records_from_before_are_read(tmp_path: Path) -> None:
    from fgmix.records.files import read_json, write_json

    record = train(replace(SPEC, metric="accuracy"), tmp_path, dataset=rare(), device="cpu", progress=False)
    path = (record.folder or tmp_path) / "record.json"
    content = {k: v for k, v in read_json(path).items() if k not in ("unseen", "classes", "digest")}
    for name in ("metric", "class_weight", "standardize", "tail"):
        del content["spec"][name]
    write_json(path, content)
    old = read_record(path)
    assert old.unseen == {}
    assert old.evaluations == record.evaluations
    assert not old.spec.standardize
    assert not old.spec.tail


def test_logits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large domain, as many samples enter the AUROC as memory allows; all enter everything else."""
    monkeypatch.setattr(evaluate, "MOST_LOGITS", 3 * 50)
    domain = rare().domains[0]
    part = Subset(domain, np.arange(80), outputs=True)
    scored = score_subsets({"raw": lambda: lambda x: x}, [part], torch.device("cpu"), 3)["raw"][0]
    assert scored.outputs is not None
    assert scored.outputs.probabilities.shape == (50, 3)
    found = metrics(*scored.outputs)
    assert found.samples == 80 == sum(map(sum, found.confusion))
    assert found.accuracy == scored.accuracy == scored.rates.accuracy
