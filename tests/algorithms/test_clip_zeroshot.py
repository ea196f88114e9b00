"""CLIP without training: its rule written out, one evaluation per run, one run per trial of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec import structs

import tiny_clip
from fgmix.records.schema import RunSpec
from fgmix.sweeps.design import Sweep
from fgmix.testing.toys import run_steps, toy_algorithm, toy_batches
from fgmix.training.loop import train
from fgmix.training.open_run import load_algorithm
from fgmix.training.prepare import build_algorithm, prepare


@pytest.fixture
def spec(clip_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    images = tiny_clip.make_images(tmp_path / "images")
    return RunSpec(dataset=str(images), algorithm="clip_zeroshot", test_domains="art", backbone=clip_name, batch_size=3)


def test_a_step_changes_nothing_and_predicts_the_nearest_text() -> None:
    algorithm, batches = toy_algorithm("clip_zeroshot").eval(), toy_batches(b=4)
    x = batches[0][0]
    with torch.no_grad():
        before = algorithm.predict(x)
        run_steps(algorithm, batches, 0, 2)
        z, t = algorithm.featurizer(x), algorithm.classifier.weight
        cosines = [[(z_i @ t_c) / (z_i.norm() * t_c.norm()) for t_c in t] for z_i in z]
        torch.testing.assert_close(before, algorithm.classifier.scale * torch.tensor(cosines))
        assert torch.equal(algorithm.predict(x), before)


def test_a_run_is_one_evaluation_of_open_clips_model(spec: RunSpec, tmp_path: Path) -> None:
    record = train(structs.replace(spec, averaging="swa", warmup_head=3, steps=500), tmp_path / "runs", progress=False)
    assert [evaluation.step for evaluation in record.evaluations] == [1]
    assert (record.spec.head, record.models) == ("text-frozen", ("raw",))
    before, after = build_algorithm(prepare(record.spec, progress=False)), load_algorithm(record)
    for name, tensor in before.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(tensor, after.state_dict()[name]), name


def test_a_sweep_evaluates_once_per_trial(spec: RunSpec) -> None:
    common = {"backbone": spec.backbone, "head": "text"}
    swept = {"datasets": spec.dataset, "algorithms": ("clip_zeroshot", "erm"), "test_domains": "art"}
    sweep = Sweep(**swept, trials=2, hparams=3, common=common)
    runs = [(each.algorithm, each.trial_seed) for each, _ in sweep.generate_specs()]
    assert [runs.count(("clip_zeroshot", trial)) for trial in (0, 1)] == [1, 1]
    assert runs.count(("erm", 0)) == 3
