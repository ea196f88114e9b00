"""The tables of the study of PACS at 224 px, from made records: as by scipy, and no verdict before nine trials."""

from __future__ import annotations

import re
import runpy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from copying import replace
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.sweeps.presets import get_preset
from results.made import run

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "studies" / "pacs224_study.py"
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
ARMS = (
    ("erm", ""),
    ("fgmix_a", ""),
    ("fgmix_u", ""),
    ("fgmix_a", "λ = 3"),
    ("fgmix", ""),
    ("fgmix", "rms, η₂ = 1e-2"),
    ("fgmix", "at φ′"),
    ("fgmix", "φ′ without mixing"),
)
STEPS = (640, 720, 800, 880, 960, 1000)  # the first one is not of the endpoint
TRIALS = 10
FGMIX, ERM, RANDOM = ("fgmix", ""), ("erm", ""), ("fgmix_a", "")

study = runpy.run_path(str(SCRIPT))


def make_study(shift: float) -> tuple[list[RunRecord], dict[tuple[str, str], np.ndarray]]:
    """Ten trials of all arms, FGMix raised by `shift` points; accuracies (model, trial, domain, step) in percent."""
    rng = np.random.default_rng(2)
    level = rng.normal(0, 0.5, (1, TRIALS, 4, 1)) + np.array([70.0, 75.0, 90.0, 80.0])[:, None]
    scores = {arm: level + rng.normal(0, 1.0, (2, TRIALS, 4, len(STEPS))) for arm in ARMS}
    scores[FGMIX] += shift
    records = []
    for (algorithm, arm), trial, (d, domain) in product(ARMS, range(TRIALS), enumerate(DOMAINS)):
        raw, swa = (
            {
                step: {name: (x / 100 if name == domain else None, 0.5) for name in DOMAINS}
                for step, x in zip(STEPS, each)
            }
            for each in scores[algorithm, arm][:, trial, d]
        )
        record = run(domain, raw, swa=swa, trial=trial, algorithm=algorithm, arm=arm, steps=1000)
        metrics = {name: float(trial) for name in study["METRICS"]} if algorithm != "erm" else {}
        evaluations = [replace(e, metrics={} if e.step < 700 else metrics) for e in record.evaluations]
        records.append(replace(record, domains=DOMAINS, evaluations=tuple(evaluations)))
    return records, scores


def pick(scores: dict[tuple[str, str], np.ndarray], worse: tuple[str, str], model: int) -> np.ndarray:
    """FGMix − another arm, (trial, domain): means over the last five evaluations."""
    d: np.ndarray = (scores[FGMIX] - scores[worse])[model, ..., 1:].mean(-1)
    return d


def expect_cells(d: np.ndarray) -> list[float]:
    """Mean, t interval from the variance within domains, interval over the domains' means; then the standard error."""
    n, k = d.shape
    error = float(np.sqrt(d.var(0, ddof=1).sum() / n) / k)
    new = stats.ttest_1samp(d.mean(0), 0.0).confidence_interval()
    return [d.mean(), *stats.t.interval(0.95, k * (n - 1), d.mean(), error), new.low, new.high, error]


def rows(lines: list[str], head: str) -> dict[str, list[str]]:
    """The cells of the table whose head begins so, by their first."""
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {head} |"))
    table = "\n".join(lines[start + 2 :]).split("\n\n")[0].splitlines()
    return {first: rest for first, *rest in ([c.strip() for c in line.strip("|").split("|")] for line in table)}


def read_numbers(cells: list[str]) -> list[float]:
    return [float(text) for text in re.findall(r"[-+]?\d+\.\d+", " ".join(cells))]


@pytest.mark.parametrize(
    ("shift", "verdict"), [(0.0, "equivalent within ±0.5"), (0.7, "supported for these test domains")]
)
def test_claims_are_those_of_scipy(shift: float, verdict: str) -> None:
    records, scores = make_study(shift)
    lines = study["describe"](records)
    assert lines[0] == f"Complete trials: {TRIALS} (declared: 9)."
    freedom = 4 * (TRIALS - 1)
    p_values, equivalences = [], []
    for name, worse in (("FGMix − ERM", ERM), ("FGMix − FGMix-A", RANDOM)):
        for head, model in (("averaged weights", 1), ("raw weights", 0)):
            *expected, error = expect_cells(pick(scores, worse, model))
            *found, detectable = read_numbers(rows(lines, head)[name])
            assert found == pytest.approx(expected, abs=0.006)
            power = stats.nct.sf(stats.t.isf(0.0125, freedom), freedom, detectable / error)
            assert power == pytest.approx(0.8, abs=0.03)  # two decimals; half of 5 % by Holm
        mean, *_, error = expect_cells(pick(scores, worse, 1))
        p_values.append(2 * stats.t.sf(abs(mean) / error, freedom))
        equivalences.append(max(stats.t.sf((mean + 0.5) / error, freedom), stats.t.cdf((mean - 0.5) / error, freedom)))
    for i, name in enumerate(("FGMix − ERM", "FGMix − FGMix-A")):
        *cells, judged = rows(lines, "claim")[name]
        assert cells == [_write(_holm_of_two(p)[i]) for p in (p_values, equivalences)]
        assert judged == verdict


def test_arms_and_mixed_codes_are_means_over_the_endpoint() -> None:
    records, scores = make_study(0.0)
    lines = study["describe"](records)
    arms, mixed = rows(lines, "arm"), rows(lines, "mixed codes")
    assert len(arms) == len(ARMS)
    assert len(mixed) == len(ARMS) - 2  # without ERM and φ′ without mixing
    raw, averaged = scores[FGMIX][..., 1:].mean((1, 2, 3))
    assert (float(arms["FGMix"][0]), float(arms["FGMix"][3])) == pytest.approx((averaged, raw), abs=0.06)
    assert mixed["FGMix"] == ["450.0 %", "4.500", "4.50", "4.50", "+4.50"]  # the mean of 0 … 9


def test_fewer_than_nine_complete_trials_have_no_verdict() -> None:
    records, scores = make_study(0.7)
    some = [r for r in records if r.spec.trial_seed < 8 or (r.spec.trial_seed == 8 and r.spec.algorithm == "fgmix")]
    lines = study["describe"](some)
    assert lines[0].startswith("Complete trials: 8 (declared: 9).")
    assert not [line for line in lines if line.startswith("| claim |") or "supported" in line or "Holm" in line]
    *expected, _ = expect_cells(pick(scores, ERM, 1)[:8])
    assert read_numbers(rows(lines, "averaged weights")["FGMix − ERM"])[:5] == pytest.approx(expected, abs=0.006)
    first = [r for r in records if r.spec.trial_seed == 0]
    assert study["describe"](first[:-1]) == ["Complete trials: 0 (declared: 9). No verdict before nine."]
    assert len(study["describe"](first)) > 1
    diverged = [*first[:-1], replace(first[-1], status="diverged", diverged_at=700)]
    assert study["describe"](diverged) == study["describe"](first[:-1])


def test_the_arms_are_those_of_the_preset() -> None:
    sweeps = get_preset("replication", "cpu").sweeps
    assert {Row(name, each.common["arm"]).key for each in sweeps for name in each.algorithms} == set(study["ARMS"])
    assert {each.trials for each in sweeps} == {study["TRIALS"]}


def _holm_of_two(p: list[float]) -> list[float]:
    low, high = min(1.0, 2 * min(p)), max(p)
    return [low if each == min(p) else max(low, high) for each in p]


def _write(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
