"""Print the tables of the PACS study in docs/replication.md from its records.

    python docs/measurements/pacs_study.py docs/records/pacs.records.xz

Trials that lack a test domain of an arm are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fgmix.results.differences import comparison_table
from fgmix.results.formats import markdown
from fgmix.results.packed import unpack
from fgmix.results.report import compared
from fgmix.results.rounding import difference_text
from fgmix.results.selection import Method, Rule, Selection, select
from fgmix.results.statistics import Floats, accuracies_by_method, bootstrap_interval, paired_differences
from fgmix.results.tables import dataset_table
from fgmix.runs.record import RunRecord

RULES: tuple[Rule, ...] = ("last_evaluations", "training_domain")  # the endpoints, the primary one first
MIXING = 500  # an evaluation after this step is a mean over 50 steps that all mix
RANDOM, FASTER, RMS, ABSOLUTE = "fgmix_a (λ = 3)", "fgmix (η₂ = 1e-2)", "fgmix (scale = rms)", "fgmix (γ = 10)"
CLAIMS = [  # difference, then what is compared with what
    ("FGMix − ERM", "fgmix", "erm"),
    ("FGMix − A", "fgmix", "fgmix_a"),
    ("C − A", "fgmix_c", "fgmix_a"),
    ("D − C", "fgmix_d", "fgmix_c"),
    ("E − D", "fgmix_e", "fgmix_d"),
    ("FGMix − E", "fgmix", "fgmix_e"),
    ("A (λ = 3) − A", RANDOM, "fgmix_a"),
    ("FGMix − A (λ = 3)", "fgmix", RANDOM),
    ("FGMix − F", "fgmix", "fgmix_f"),
]
POLICY = {  # metric → how it is written
    "extrapolated": "{:.1%}",
    "entropy": "{:.3f}",
    "lam": "{:.2f}",
    "noise_to_margin": "{:.2f}",
    "input_norm": "{:.1f}",
    "flat": "{:.3f}",
    "disc": "{:.4f}",
}
ARMS = {
    "fgmix_a": "A",
    RANDOM: "A (λ = 3)",
    "fgmix_c": "C",
    "fgmix_d": "D",
    "fgmix_e": "E",
    "fgmix_f": "F",
    "fgmix": "FGMix",
    FASTER: "FGMix (η₂ = 1e-2)",
    RMS: "FGMix (scale = rms)",
    ABSOLUTE: "FGMix (γ = 10)",
}


def complete(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records of the trials that have every arm on every test domain."""
    by_trial: dict[int, list[RunRecord]] = {}
    for record in records:
        by_trial.setdefault(record.spec.trial_seed, []).append(record)
    cells = {trial: {(r.method, r.spec.test_domains) for r in runs} for trial, runs in by_trial.items()}
    whole = {(method, (domain,)) for method in ("erm", *ARMS) for domain in records[0].domains}
    return [record for trial, runs in by_trial.items() if whole <= cells[trial] for record in runs]


def tables(records: Sequence[RunRecord]) -> list[str]:
    """Lines of the tables of accuracies, of differences from ERM and of the differences that the paper claims."""
    lines = []
    for rule in RULES:
        selection = select(records, rule)
        (dataset,) = selection.domains
        comparisons = compared(selection, dataset)
        for table in (dataset_table(selection, dataset), comparison_table(comparisons, selection.labels)):
            lines += [f"{rule}: {table.title}", "", *markdown(table).splitlines(), ""]
    selections = [select(records, rule) for rule in RULES]
    return [*lines, *claimed(selections), "", *spreads(selections), "", *policy(records)]


def claimed(selections: Sequence[Selection]) -> list[str]:
    """A line for each difference, under both rules, and two about averaging."""
    scores = [accuracies_by_method(selection) for selection in selections]
    rows = {
        name: [paired_differences(each[Method(better)], each[Method(worse)]) for each in scores]
        for name, better, worse in CLAIMS
    }
    gains = {method: [_gain(each, method) for each in scores] for method in ("erm", "fgmix")}
    rows["SWA on FGMix"] = gains["fgmix"]
    rows["SWA on FGMix − SWA on ERM"] = [own - erm for own, erm in zip(gains["fgmix"], gains["erm"])]
    head = ["| difference | last five | selected |", "| --- | ---: | ---: |"]
    return head + [f"| {name} | {' | '.join(map(_written, found))} |" for name, found in rows.items()]


def _gain(scores: Mapping[Method, Mapping[tuple[str, int, str], float]], algorithm: str) -> Floats:
    """What averaging adds to a method, by pair."""
    return paired_differences(scores[Method(algorithm, "swa")], scores[Method(algorithm)])


def _written(d: Floats) -> str:
    return difference_text(float(d.mean()), bootstrap_interval(d) if len(d) > 1 else None)


def spreads(selections: Sequence[Selection]) -> list[str]:
    """A line on what L_adv does to the spread over trials: FGMix's standard deviation over E's, which lacks L_adv.

    The geometric mean over test domains, with an interval over them; nothing where there is one trial.
    """
    ratios = []
    for selection in selections:
        scores = accuracies_by_method(selection)
        own, without = (_deviations(scores[Method(name)]) for name in ("fgmix", "fgmix_e"))
        if min([*own, *without]) == 0:
            return []
        d = np.log(own / without)
        ratios.append([float(np.exp(each)) for each in (d.mean(), *bootstrap_interval(d))])
    written = [f"{ratio:.2f} [{low:.2f}, {high:.2f}]" for ratio, low, high in ratios]
    head = ["| ratio of standard deviations | last five | selected |", "| --- | ---: | ---: |"]
    return [*head, f"| FGMix ÷ E | {' | '.join(written)} |"]


def _deviations(scores: Mapping[tuple[str, int, str], float]) -> Floats:
    """The standard deviation over trials on each test domain; 0 of one trial."""
    by_domain: dict[str, list[float]] = {}
    for (_, _, domain), accuracy in sorted(scores.items()):
        by_domain.setdefault(domain, []).append(accuracy)
    return np.array([np.std(found, ddof=1) if len(found) > 1 else 0.0 for found in by_domain.values()])


def policy(records: Sequence[RunRecord]) -> list[str]:
    """A line for each arm: means of what its policy did over the steps that mix, test domains and trials."""
    lines = [f"| arm | {' | '.join(POLICY)} |", f"| --- |{' ---: |' * len(POLICY)}"]
    for method, label in ARMS.items():
        runs = [record for record in records if record.method == method]
        after = [e.metrics for record in runs for e in record.evaluations if e.step > MIXING]
        found = [
            written.format(np.mean([metrics[name] for metrics in after])) if name in after[0] else ""
            for name, written in POLICY.items()
        ]
        lines.append(f"| {label} | {' | '.join(found)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(tables(complete(unpack(Path(sys.argv[1]))))))
