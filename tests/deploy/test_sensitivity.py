"""Thresholds for a wanted sensitivity: chosen on held-out domains, reported on domains that had no say."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from deploy.made import vectors
from fgmix import load_model
from fgmix.deploy.predict import predict_paths, write_rows
from fgmix.deploy.sensitivity import (
    WANTED,
    ScoredDomain,
    choose_all_thresholds,
    choose_operating_points,
    choose_thresholds,
)
from fgmix.errors import UserError
from workbench import fgmix, save_npz


def scored(n: int, shift: float, seed: int) -> ScoredDomain:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    p = 1 / (1 + np.exp(-rng.normal(2 * y - 1 + shift, 1)))
    return ScoredDomain(np.stack([1 - p, p], axis=1), y)


DOMAINS = [scored(200, shift, seed) for seed, shift in enumerate((0.0, 0.4, -0.4))]


def sensitivity(domain: ScoredDomain, label: int, t: float) -> float:
    return float(np.mean(domain.probabilities[domain.y == label, label] >= t))


@pytest.mark.parametrize("wanted", WANTED)
def test_the_threshold_is_the_largest_that_reaches_the_wanted_mean(wanted: float) -> None:
    (t,) = choose_thresholds(DOMAINS, 1, [wanted])
    assert np.mean([sensitivity(each, 1, t) for each in DOMAINS]) >= wanted
    next_larger = min(p for each in DOMAINS for p in each.probabilities[each.y == 1, 1] if p > t)
    assert np.mean([sensitivity(each, 1, next_larger) for each in DOMAINS]) < wanted


def test_a_domain_is_reported_by_the_threshold_of_the_others() -> None:
    points = choose_operating_points(DOMAINS, [DOMAINS] * 3)
    for label, row in enumerate(points):
        for wanted, point in zip(WANTED, row, strict=True):
            own, specific = [], []
            for i, each in enumerate(DOMAINS):
                (t,) = choose_thresholds(DOMAINS[:i] + DOMAINS[i + 1 :], label, [wanted])
                own.append(sensitivity(each, label, t))
                specific.append(np.mean(each.probabilities[each.y != label, label] < t))
            assert [point.threshold] == choose_thresholds(DOMAINS, label, [wanted])
            assert point.sensitivity == pytest.approx(np.mean(own))
            assert point.lowest == min(own)
            assert point.specificity == pytest.approx(np.mean(specific))


def test_domains_count_alike_whatever_their_size() -> None:
    copies = ScoredDomain(np.tile(DOMAINS[0].probabilities, (20, 1)), np.tile(DOMAINS[0].y, 20))
    assert choose_thresholds([copies, *DOMAINS[1:]], 1, WANTED) == choose_thresholds(DOMAINS, 1, WANTED)


def test_a_class_that_a_domain_lacks() -> None:
    without = ScoredDomain(DOMAINS[0].probabilities[DOMAINS[0].y == 0], np.zeros((DOMAINS[0].y == 0).sum(), int))
    (_, rare) = choose_operating_points([without, without], [[without, without]] * 2)
    assert all(point.threshold is point.sensitivity is None for point in rare)


def test_from_the_model_to_the_predictions(
    vectors_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load_model(vectors_folder)
    assert "Thresholds for a wanted sensitivity" in (vectors_folder / "card.md").read_text()
    x = vectors(seed=4).domains[0].inputs.x
    wanted = model.want_sensitivity({"b": 0.95})
    out = io.StringIO()
    write_rows(predict_paths(wanted, [save_npz(tmp_path / "x.npz", X=x)], probabilities=True, progress=False), out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    t = wanted.thresholds["b"]
    assert [row["flag(b)"] == "yes" for row in rows] == (model.predict(x).probabilities[:, 1] >= t).tolist()
    assert (
        fgmix("predict", vectors_folder, tmp_path / "x.npz", "--sensitivity", "b=0.95", "--format", "jsonl", "--quiet")
        == 0
    )
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["flag(b)"] is (rows[0]["flag(b)"] == "yes")


def test_any_sensitivity_has_a_threshold_that_is_not_above_the_exact_one(vectors_folder: Path) -> None:
    rows = choose_all_thresholds(DOMAINS)
    model = load_model(vectors_folder)
    model = replace(
        model, info=structs.replace(model.info, estimate=structs.replace(model.info.estimate, thresholds=(*rows, ())))
    )
    for share in (0.003, 0.37, 0.701, 0.9999):
        (exact,) = choose_thresholds(DOMAINS, 1, [share])
        t = model.want_sensitivity({"b": share}).thresholds["b"]
        assert t <= exact
        assert np.mean([sensitivity(each, 1, t) for each in DOMAINS]) >= share
    (exact,) = choose_thresholds(DOMAINS, 1, [0.7])
    assert model.want_sensitivity({"b": 0.7}).thresholds["b"] == pytest.approx(exact, abs=1e-6)
    with pytest.raises(UserError, match="several domains"):
        model.want_sensitivity({"c": 0.5})


@pytest.mark.parametrize(("wanted", "named"), [({"d": 0.9}, "'d'"), ({"a": 0.0}, "0"), ({"a": 1.0}, "1")])
def test_what_was_not_chosen_is_an_error(wanted: dict[str, float], named: str, vectors_folder: Path) -> None:
    with pytest.raises(UserError, match=named):
        load_model(vectors_folder).want_sensitivity(wanted)
