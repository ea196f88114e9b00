"""The table of the study of many domains, from made records whose differences are known."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from results.made import sweep

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "studies" / "typefaces_study.py"


def test_rows_are_judged_over_the_means_of_the_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    study = runpy.run_path(str(SCRIPT))
    monkeypatch.setitem(study["tables"].__globals__, "RULE", "training_domain")
    rng = np.random.default_rng(0)
    erm = rng.uniform(0.5, 0.9, (2, 12))
    small, large, wide = np.array([0.001, 0.01, 0.2])[:, None, None] * rng.standard_normal((3, 2, 12))
    large += 0.05
    accuracies = {
        "erm": erm,
        "fish": erm + large,
        "coral": erm + small,
        "mixup": erm + wide,
    }
    records = sweep({name: values.tolist() for name, values in accuracies.items()}, domains=" ".join("abcdefghijkl"))
    _, _, *lines = study["tables"](records)
    rows = {cells[0]: cells[1:] for cells in ([c.strip() for c in line.strip("|").split("|")] for line in lines)}
    assert {name: cells[-1] for name, cells in rows.items()} == {
        "ERM": "",
        "fish": "better",
        "CORAL": "equivalent",
        "Mixup": "undecided",
    }
    new = ttest_1samp(100 * large.mean(0), 0).confidence_interval()
    assert rows["fish"][2] == f"[{new.low:+.2f}, {new.high:+.2f}]"
