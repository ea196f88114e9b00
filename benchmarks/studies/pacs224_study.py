"""Print the tables of the study of PACS at 224 px in docs/replication/pacs224.md from its records.

    python benchmarks/studies/pacs224_study.py docs/records/pacs224.records.xz

Trials that lack a test domain of an arm are left out. With fewer than nine complete trials, the protocol allows no
verdict, and none is printed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from scipy.stats import t

from fgmix.records.evaluations import Model
from fgmix.records.rows import record_row
from fgmix.records.schema import RunRecord
from fgmix.records.store import unpack
from fgmix.results.intervals import Interval, MeanDifference, detectable_difference
from fgmix.results.rounding import p_text
from fgmix.results.selection import Rule, select
from fgmix.results.statistics import Pair, accuracies_by_row, group_domains, holm, paired_differences

TRIALS = 9  # of the protocol, before which there is no verdict
MARGIN = 0.5  # points of equivalence, declared in the protocol
LEVEL = 0.05
LAST = 5  # evaluations of the endpoint
MIXTURES = {
    "fgmix_a": "FGMix-A",
    "fgmix_u": "FGMix-U (1/k)",
    "fgmix_a (λ = 3)": "FGMix-A (λ = 3)",
    "fgmix": "FGMix",
    "fgmix (rms, η₂ = 1e-2)": "FGMix (rms, η₂ = 1e-2)",
    "fgmix (at φ′)": "FGMix (at φ′)",
}
ARMS = {"erm": "ERM", **MIXTURES, "fgmix (φ′ without mixing)": "FGMix (φ′ without mixing)"}
CLAIMS = [("fgmix", "erm"), ("fgmix", "fgmix_a")]  # the two of the protocol
OTHERS = [("fgmix", "fgmix_u"), ("fgmix", "fgmix_a (λ = 3)"), ("fgmix (at φ′)", "fgmix (φ′ without mixing)")]
METRICS = {  # metric of the mixed codes → its column and how it is written
    "extrapolated": ("extrapolated", "{:.1%}"),
    "mixed_loss": ("loss", "{:.3f}"),
    "mixed_margin": ("margin", "{:.2f}"),
    "gradient_ratio": ("gradient ÷ that of the sources", "{:.2f}"),
    "margin_correlation": ("ρ of ã and margin", "{:+.2f}"),
}

Scores = dict[tuple[str, Model], dict[Pair, float]]  # accuracies in percent by key of an arm and model


def complete_trials(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records of the trials that have every arm on every test domain; a run that diverged is none."""
    wanted = {(arm, domain) for arm in ARMS for domain in records[0].domains}
    found: dict[int, set[tuple[str, ...]]] = {}
    for record in records:
        if record.status == "done":
            found.setdefault(record.spec.trial_seed, set()).add((record_row(record).key, *record.spec.test_domains))
    return [record for record in records if wanted <= found.get(record.spec.trial_seed, set())]


def describe(records: Sequence[RunRecord]) -> list[str]:
    """Lines of all tables, and how many trials they rest on."""
    runs = complete_trials(records)
    trials = len({run.spec.trial_seed for run in runs})
    lines = [f"Complete trials: {trials} (declared: {TRIALS}).{'' if trials >= TRIALS else ' No verdict before nine.'}"]
    if not runs:
        return lines
    scores = collect_scores(runs, "last_evaluations")
    parts = [describe_differences(scores, "swa"), describe_differences(scores, "raw")]
    if trials >= TRIALS:
        parts.insert(0, describe_claims(scores))
    parts += [
        describe_arms(scores),
        describe_others(scores, collect_scores(runs, "training_domain")),
        describe_domains(scores, runs[0].domains),
        describe_mixing(runs),
    ]
    return lines + [line for part in parts for line in ("", *part)]


def collect_scores(runs: Sequence[RunRecord], rule: Rule) -> Scores:
    """Collect the accuracies that a rule of selection gives."""
    return {(row.key, row.model): found for row, found in accuracies_by_row(select(runs, rule), None).items()}


def describe_claims(scores: Scores) -> Iterator[str]:
    """Lines of the two primary claims on averaged weights, with tests and verdicts."""
    found = {pair: compare(scores, *pair, "swa") for pair in CLAIMS}
    differs = holm([compute_p_value(each) for each in found.values()])
    tested = [each.test_equivalence(MARGIN) for each in found.values()]
    within = holm([1.0 if p is None else p for p in tested])
    yield f"| claim | p (Holm) | p (±{MARGIN}, Holm) | verdict |"
    yield "| --- | ---: | ---: | --- |"
    for (pair, each), p, p_equivalent in zip(found.items(), differs, within):
        yield f"| {_name(pair)} | {p_text(p)} | {p_text(p_equivalent)} | {judge(each.mean, p, p_equivalent)} |"


def describe_differences(scores: Scores, model: Model) -> Iterator[str]:
    """Lines of the two differences of the protocol: the primary endpoint (averaged weights) or the secondary one."""
    yield f"| {'averaged' if model == 'swa' else 'raw'} weights | difference | new domain | detectable |"
    yield "| --- | ---: | ---: | ---: |"
    for pair in CLAIMS:
        each = compare(scores, *pair, model)
        yield f"| {_name(pair)} | {_write(each)} | {find_detectable(each):.2f} |"


def describe_arms(scores: Scores) -> Iterator[str]:
    """Lines of every arm: accuracies, and differences from ERM, which are exploratory."""
    yield "| arm | averaged | − ERM | new domain | raw | − ERM | new domain |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for arm, label in ARMS.items():
        cells = []
        for model in ("swa", "raw"):
            own = " | " if arm == "erm" else _write(compare(scores, arm, "erm", model))
            cells.append(f"{fmean(scores[arm, model].values()):.1f} | {own}")
        yield f"| {label} | {' | '.join(cells)} |"


def describe_others(scores: Scores, validated: Scores) -> Iterator[str]:
    """Lines of other differences, and of FGMix − ERM where validation selects the step: exploratory, too."""
    yield "| difference | averaged | new domain | raw | new domain |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    rows = [(_name(pair), pair, scores) for pair in OTHERS]
    rows.append((f"{_name(CLAIMS[0])}, selected by validation", CLAIMS[0], validated))
    for name, pair, found in rows:
        yield f"| {name} | {' | '.join(_write(compare(found, *pair, model)) for model in ('swa', 'raw'))} |"


def describe_domains(scores: Scores, domains: Sequence[str]) -> Iterator[str]:
    """Lines of every arm on each test domain: averaged weights, ERM's accuracy, differences from it, t intervals."""
    yield f"| averaged weights | {' | '.join(domains)} |"
    yield f"| --- |{' ---: |' * len(domains)}"
    erm = scores["erm", "swa"]
    for arm, label in ARMS.items():
        own = scores[arm, "swa"]
        pairs = [[pair for pair in own if pair[-1] == domain] for domain in domains]
        if arm == "erm":
            cells = [f"{fmean(own[pair] for pair in each):.1f}" for each in pairs]
        else:
            found = [MeanDifference({each[0][:1]: np.array([own[p] - erm[p] for p in each])}) for each in pairs]
            cells = ["{:+.2f} [{:+.2f}, {:+.2f}]".format(each.mean, *_ends(each.interval())) for each in found]
        yield f"| {label} | {' | '.join(cells)} |"


def describe_mixing(records: Sequence[RunRecord]) -> Iterator[str]:
    """Lines of the mixed codes: means over the evaluations of the endpoint and all runs of an arm."""
    yield f"| mixed codes | {' | '.join(column for column, _ in METRICS.values())} |"
    yield f"| --- |{' ---: |' * len(METRICS)}"
    for arm, label in MIXTURES.items():
        last = [e.metrics for run in records if record_row(run).key == arm for e in run.evaluations[-LAST:]]
        cells = [written.format(fmean(each[name] for each in last)) for name, (_, written) in METRICS.items()]
        yield f"| {label} | {' | '.join(cells)} |".replace("%", " %")


def compare(scores: Scores, better: str, worse: str, model: Model) -> MeanDifference:
    """Compare two arms, paired by trial and test domain."""
    return MeanDifference(group_domains(paired_differences(scores[better, model], scores[worse, model])))


def compute_p_value(difference: MeanDifference) -> float:
    """Compute the two-sided p-value of no difference on these test domains: that of the t interval."""
    return float(2 * t.sf(abs(difference.mean) / difference.error, difference.freedom))


def find_detectable(difference: MeanDifference) -> float:
    """Find the difference that this test detects with 80 % power at Holm's strictest level.

    It is that of one sample with the same error and freedom.
    """
    pairs = difference.freedom + 1
    return detectable_difference(difference.error * math.sqrt(pairs), pairs, LEVEL / len(CLAIMS)) or math.nan


def judge(mean: float, p: float, p_equivalent: float) -> str:
    """Judge a claim by its corrected p-values: of no difference, and of one of the margin or more."""
    small = f"equivalent within ±{MARGIN}" if p_equivalent <= LEVEL else ""
    if p <= LEVEL:
        return ", ".join(
            filter(None, ("supported for these test domains" if mean > 0 else "not supported: worse", small))
        )
    return small or "cannot be decided"


def _name(pair: tuple[str, str]) -> str:
    return " − ".join(ARMS[arm] for arm in pair)


def _write(difference: MeanDifference) -> str:
    own, new = (
        "[{:+.2f}, {:+.2f}]".format(*_ends(each)) for each in (difference.interval(), difference.interval_for_new())
    )
    return f"{difference.mean:+.2f} {own} | {new}"


def _ends(interval: Interval | None) -> Interval:
    return interval or (math.nan, math.nan)


if __name__ == "__main__":
    print("\n".join(describe(unpack(Path(sys.argv[1])))))
