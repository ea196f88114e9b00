"""Adapters in the image tower of an open_clip model, whose attention is torch's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tiny_clip
from fgmix.networks._torchvision import ensure_torchvision
from fgmix.networks.lora import merge_adapters
from fgmix.records.schema import RunSpec
from fgmix.training.loop import train
from fgmix.training.open_run import open_run

ensure_torchvision()  # which peft's imports need
pytest.importorskip("peft")


@pytest.mark.parametrize(("algorithm", "head"), [("erm", "linear"), ("fgmix", "text"), ("mldg", "text-frozen")])
def test_runs_train_adapters_of_query_key_and_value(
    algorithm: str, head: str, clip_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    images = str(tiny_clip.make_images(tmp_path / "images"))
    options = {"steps": 4, "batch_size": 4, "eval_every": 2, "averaging_start": 2, "lora": 2, "lora_targets": "attn"}
    settings = {"lr": 0.01, **({"tau": 0.0} if algorithm == "fgmix" else {})}
    spec = RunSpec(
        dataset=images,
        algorithm=algorithm,
        test_domains="art",
        backbone=clip_name,
        head=head,
        settings=settings,
        **options,
    )
    record = train(spec, tmp_path / "runs", progress=False)
    kept = torch.load(record.folder / "last_swa.pt", weights_only=True)
    factors = [name for name in kept if ".lora_" in name]
    assert {name.partition(".attn.")[2].partition(".")[0] for name in factors} == {"lora_A", "lora_B"}
    assert len(factors) == 2 * tiny_clip.CONFIG["vision_cfg"]["layers"]
    opened = open_run(record.folder, progress=False)
    algorithm_ = opened.algorithm("last", "swa")
    x = next(iter(opened.sample(["art"]).inputs()))
    with torch.inference_mode():
        torch.testing.assert_close(
            merge_adapters(algorithm_.featurizer)(x), algorithm_.featurizer(x), rtol=1e-4, atol=1e-5
        )
