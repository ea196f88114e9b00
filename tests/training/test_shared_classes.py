"""Mixing methods where source domains seldom, or never, share a class in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from copying import replace
from fgmix.data import DomainDataset, from_arrays
from fgmix.errors import UserError
from fgmix.records.schema import RunRecord, RunSpec
from fgmix.training.loop import train
from fgmix.training.resolve import list_notes, resolve


def many_classes(shared: bool = True) -> DomainDataset:
    """Four domains of 40 classes, each of four samples; or each domain with ten classes of its own."""
    y, domain = np.arange(640) % 40, np.arange(640) // 160
    if not shared:
        y = y % 10 + 10 * domain
    return from_arrays(np.random.default_rng(0).normal(size=(640, 5)) + y[:, None] / 10, y, domain)


def spec(algorithm: str = "fgmix", **fields: Any) -> RunSpec:
    base = RunSpec(dataset="arrays", algorithm=algorithm, test_domains=("3",), steps=20, batch_size=8, eval_every=10)
    return replace(base, **fields)


def run(out: Path, progress: bool = False, **fields: Any) -> RunRecord:
    return train(spec(**fields), out, dataset=many_classes(), device="cpu", progress=progress)


@pytest.mark.parametrize(
    ("algorithm", "fields", "classes"),
    [
        ("fgmix", {}, 7),
        ("fgmix_u", {}, 7),
        ("erm", {}, 0),
        ("fgmix", {"classes_per_batch": 0}, 0),
        ("fgmix", {"classes_per_batch": 3}, 3),
        ("fgmix", {"batch_size": 64}, 0),
        ("fgmix", {"class_weight": "balanced"}, 0),
        ("fgmix", {"settings": {"n": 0, "flat_base": True}}, 0),
    ],
)
def test_batches_of_mixing_methods_have_shared_classes(algorithm: str, fields: dict[str, Any], classes: int) -> None:
    asked = spec(algorithm, **fields)
    resolved = resolve(asked, many_classes())
    assert resolved.classes_per_batch == classes
    chosen = asked.classes_per_batch is None and classes > 0
    assert [note for note in list_notes(asked, resolved) if "--classes-per-batch" in note] != [] or not chosen
    assert resolve(resolved, many_classes()) == resolved


def test_a_run_that_seldom_mixes_says_so_and_one_that_does_not_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seldom, often = run(tmp_path, True, classes_per_batch=0), run(tmp_path, True)
    shown = capsys.readouterr().err
    assert [len(record.notes) for record in (seldom, often)] == [1, 0]
    assert f"note: {seldom.notes[0]}" in shown
    mixed = [sum(e.metrics["mixed"] for e in record.evaluations) * 10 for record in (seldom, often)]
    assert mixed[0] < 0.5 * mixed[1]
    assert mixed[1] >= 0.95 * 9 * 32, "τ = 12 of 20"


@pytest.mark.parametrize("algorithm", ["fgmix", "fgmix_a", "fgmix_u"])
def test_domains_without_a_common_class_are_refused(algorithm: str) -> None:
    with pytest.raises(UserError, match="Expected a class that 3 source domains share"):
        resolve(spec(algorithm), many_classes(shared=False))
    assert resolve(spec("erm"), many_classes(shared=False)).classes_per_batch == 0
