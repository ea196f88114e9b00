"""Print the tables of the PACS study in docs/replication/pacs.md from its records.

    python benchmarks/studies/pacs_study.py docs/records/pacs.records.xz

Trials that lack a test domain of an arm are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fgmix.records.evaluations import Evaluation
from fgmix.records.metrics import Floats
from fgmix.records.rows import record_row
from fgmix.records.schema import RunRecord
from fgmix.records.store import unpack
from fgmix.results.differences import comparison_table
from fgmix.results.formats import markdown
from fgmix.results.intervals import Interval, MeanDifference, detectable_difference
from fgmix.results.rounding import difference_text, p_text
from fgmix.results.selection import Rule, Selection, select
from fgmix.results.statistics import Pair, accuracies_by_row, compare, group_domains, paired_differences, wilcoxon
from fgmix.results.tables import dataset_table

RULES: tuple[Rule, ...] = ("last_evaluations", "training_domain")  # the endpoints, the primary one first
FIRST = 500  # the first evaluation after mixing began; later ones are means over 50 steps that all mix
BATCH, N = 96, 32  # source and mixed codes of a step
MIXED = 21 / 50  # of the steps before the first evaluation, 480 to 500 mix
RANDOM, FASTER, RMS, ABSOLUTE = "fgmix_a (λ = 3)", "fgmix (η₂ = 1e-2)", "fgmix (scale = rms)", "fgmix (γ = 10)"
CLAIMS = [  # difference, what is compared with what, and the paper's gain; None where it has none
    ("FGMix − ERM", "fgmix", "erm", 1.3),
    ("FGMix − A", "fgmix", "fgmix_a", 2.1),
    ("C − A", "fgmix_c", "fgmix_a", 0.9),
    ("D − C", "fgmix_d", "fgmix_c", 0.4),
    ("E − D", "fgmix_e", "fgmix_d", 0.7),
    ("FGMix − E", "fgmix", "fgmix_e", 0.1),
    ("A (λ = 3) − A", RANDOM, "fgmix_a", None),
    ("FGMix − A (λ = 3)", "fgmix", RANDOM, None),
    ("FGMix − F", "fgmix", "fgmix_f", 0.6),
]
STRONGEST, SWA, MORE = "FGMix + SWA − (ERM + SWA)", "SWA on FGMix", "SWA on FGMix − SWA on ERM"
GAINS = {STRONGEST: 1.4, **{name: gain for name, _, _, gain in CLAIMS}, SWA: 1.6, MORE: 0.1}  # the paper's
POLICY = {  # metric → how it is written
    "extrapolated": "{:.1%}",
    "entropy": "{:.3f}",
    "lam": "{:.2f}",
    "noise_to_margin": "{:.2f}",
    "input_norm": "{:.1f}",
    "flat": "{:.3f}",
    "discriminator": "{:.3f}",
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
LEARNED = ("fgmix_e", "fgmix_f", "fgmix", FASTER, RMS, ABSOLUTE)


def complete(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records of the trials that have every arm on every test domain."""
    by_trial: dict[int, list[RunRecord]] = {}
    for record in records:
        by_trial.setdefault(record.spec.trial_seed, []).append(record)
    cells = {trial: {(record_row(r).key, r.spec.test_domains) for r in runs} for trial, runs in by_trial.items()}
    whole = {(method, (domain,)) for method in ("erm", *ARMS) for domain in records[0].domains}
    return [record for trial, runs in by_trial.items() if whole <= cells[trial] for record in runs]


def tables(records: Sequence[RunRecord]) -> list[str]:
    """Lines of all tables: accuracies and differences from ERM, claims, their history, spreads, and the policies."""
    lines = []
    selections = [select(records, rule) for rule in RULES]
    for rule, selection in zip(RULES, selections):
        (dataset,) = selection.domains
        comparisons = compare(selection, dataset=dataset)
        for table in (dataset_table(selection, dataset), comparison_table(comparisons, selection.labels)):
            lines += [f"{rule}: {table.title}", "", *markdown(table).splitlines(), ""]
    parts = (
        claimed(selections),
        history(records),
        spreads(selections),
        noise(records),
        policy(records),
        implied_losses(records),
        course(records),
    )
    return lines + [line for part in parts for line in (*part, "")] + shares(records, selections[0])


def claimed(selections: Sequence[Selection]) -> list[str]:
    """Two lines for each difference: both intervals, detectable size and p-value of both endpoints; means by domain."""
    primary, selected = map(claimed_differences, selections)
    (domains,) = selections[0].domains.values()
    head = "| difference | paper | last five | new domain | p | detectable | selected | new domain | detectable |"
    lines = [head, f"| --- |{' ---: |' * 8}"]
    for name, d in primary.items():
        gain = "" if GAINS[name] is None else f"{GAINS[name]:+.1f}"
        p = p_text(wilcoxon(np.array([*d.values()])))
        other = selected[name]
        cells = [gain, _written(d), _new(d), p, _detectable(d), _written(other), _new(other), _detectable(other)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", f"| difference, last five | {' | '.join(domains)} |", f"| --- |{' ---: |' * len(domains)}"]
    return lines + [f"| {name} | {' | '.join(_mean_at(d, each) for each in domains)} |" for name, d in primary.items()]


def judge(name: str, d: Mapping[Pair, float]) -> str:
    """Return the verdict on a claim, from its interval for these test domains and from what was detectable."""
    mean, gain = MeanDifference(group_domains(d)), GAINS[name]
    interval = mean.interval()
    assert interval is not None
    low, high = interval
    if low > 0 or high < 0:
        return "supported" if low > 0 else "not supported"
    testable = gain is not None and gain >= float(_detectable(d))
    return "not supported at the paper's size" if testable and gain > high else f"cannot be decided with {len(d)} pairs"


def _by_key(selection: Selection) -> dict[tuple[str, str], dict[Pair, float]]:
    """Selected accuracies by the key of a row and its model."""
    return {(row.key, row.model): scores for row, scores in accuracies_by_row(selection, None).items()}


def claimed_differences(selection: Selection) -> dict[str, dict[Pair, float]]:
    """The differences that the paper claims, each by pair; the last two are about averaging."""
    scores = _by_key(selection)
    rows = {STRONGEST: paired_differences(scores["fgmix", "swa"], scores["erm", "swa"])}
    rows |= {name: paired_differences(scores[better, "raw"], scores[worse, "raw"]) for name, better, worse, _ in CLAIMS}
    rows[SWA] = paired_differences(scores["fgmix", "swa"], scores["fgmix", "raw"])
    # Rounded once, so that equal shares of counts are ties.
    own, erm = ({i: x - scores[name, "raw"][i] for i, x in scores[name, "swa"].items()} for name in ("fgmix", "erm"))
    return {**rows, MORE: paired_differences(own, erm)}


def history(records: Sequence[RunRecord]) -> list[str]:
    """A line for each difference of the primary endpoint: what it was after each trial."""
    trials = sorted({record.spec.trial_seed for record in records})
    after = []
    for last in trials:
        known = [record for record in records if record.spec.trial_seed <= last]
        after.append(claimed_differences(select(known, RULES[0])))
    counts = [f"{i} trial{'s' if i > 1 else ''}" for i in range(1, len(trials) + 1)]
    lines = [f"| difference, last five | {' | '.join(counts)} |", f"| --- |{' ---: |' * len(trials)}"]
    return lines + [f"| {name} | {' | '.join(_written(each[name]) for each in after)} |" for name in after[0]]


def _mean_at(by_pair: Mapping[Pair, float], domain: str) -> str:
    return difference_text(float(np.mean([value for pair, value in by_pair.items() if pair[2] == domain])))


def _written(d: Mapping[Pair, float]) -> str:
    """Two decimals: an interval for these test domains that ends close to zero shows on which side."""
    mean = MeanDifference(group_domains(d))
    return _interval(mean.mean, mean.interval())


def _new(d: Mapping[Pair, float]) -> str:
    return _interval(None, MeanDifference(group_domains(d)).interval_for_new())


def _interval(mean: float | None, interval: Interval | None) -> str:
    parts = ["" if mean is None else f"{mean:+.2f}", "[{:+.2f}, {:+.2f}]".format(*interval) if interval else ""]
    return " ".join(filter(None, parts))


def _detectable(d: Mapping[Pair, float]) -> str:
    points = detectable_difference(float(np.std([*d.values()], ddof=1)), len(d))
    return f"{points:.2f}"


def spreads(selections: Sequence[Selection]) -> list[str]:
    """A line on what L_adv does to the spread over trials: FGMix's standard deviation over E's, which lacks L_adv.

    The geometric mean over test domains, with a t interval over them; nothing where there is one trial.
    """
    ratios = []
    for selection in selections:
        scores = _by_key(selection)
        own, without = (_deviations(scores[name, "raw"]) for name in ("fgmix", "fgmix_e"))
        if min([*own, *without]) == 0:
            return []
        d = MeanDifference({place: np.array([ratio]) for place, ratio in enumerate(np.log(own / without))})
        ratios.append([float(np.exp(each)) for each in (d.mean, *(d.interval_for_new() or ()))])
    written = [f"{ratio:.2f} [{low:.2f}, {high:.2f}]" for ratio, low, high in ratios]
    head = ["| ratio of standard deviations | last five | selected |", "| --- | ---: | ---: |"]
    return [*head, f"| FGMix ÷ E | {' | '.join(written)} |"]


def _deviations(scores: Mapping[tuple[str, int, str], float]) -> Floats:
    """The standard deviation over trials on each test domain; 0 of one trial."""
    by_domain: dict[str, list[float]] = {}
    for (_, _, domain), accuracy in sorted(scores.items()):
        by_domain.setdefault(domain, []).append(accuracy)
    return np.array([np.std(found, ddof=1) if len(found) > 1 else 0.0 for found in by_domain.values()])


def noise(records: Sequence[RunRecord]) -> list[str]:
    """A line on how much the checkpoints of one run differ: standard deviation of its last five, median over runs."""
    found = []
    for model in ("raw", "swa"):
        accuracies = [
            [e.accuracy[model][domain]["train"] for e in record.evaluations[-5:]]
            for record in records
            for domain in record.spec.test_domains
        ]
        found.append(f"{100 * np.median(np.std(accuracies, axis=1, ddof=1)):.1f}")
    head = ["| standard deviation | raw | with SWA |", "| --- | ---: | ---: |"]
    return [*head, f"| of the last five evaluations of a run, median over runs | {' | '.join(found)} |"]


def policy(records: Sequence[RunRecord]) -> list[str]:
    """A line for each arm: means of what its policy did over the steps that mix, test domains and trials."""
    lines = [f"| arm | {' | '.join(POLICY)} |", f"| --- |{' ---: |' * len(POLICY)}"]
    for method, label in ARMS.items():
        after = [
            _metrics(r, e) for r in records if record_row(r).key == method for e in r.evaluations if e.step > FIRST
        ]
        found = [
            written.format(np.mean([metrics[name] for metrics in after])) if name in after[0] else ""
            for name, written in POLICY.items()
        ]
        lines.append(f"| {label} | {' | '.join(found)} |")
    return lines


def implied_losses(records: Sequence[RunRecord]) -> list[str]:
    """A line for each arm: the loss of its mixed codes, not recorded by these runs, ± standard error over runs.

    The recorded loss is the mean over 96 source and 32 mixed codes. That of the sources is taken from ERM's run of the
    same trial and test domain, so the value is below zero where an arm's own is lower than ERM's.
    """
    losses = {
        arm: {_pair(r): np.mean([e.metrics["loss"] for e in r.evaluations if e.step > FIRST]) for r in own}
        for arm in ("erm", *ARMS)
        for own in [[r for r in records if record_row(r).key == arm]]
    }
    lines = ["| arm | loss of mixed codes, implied |", "| --- | ---: |"]
    for arm, label in ARMS.items():
        found = np.array(
            [(BATCH + N) / N * losses[arm][pair] - BATCH / N * loss for pair, loss in losses["erm"].items()]
        )
        lines.append(f"| {label} | {found.mean():.3f} ± {found.std(ddof=1) / np.sqrt(len(found)):.3f} |")
    erm = np.array([*losses["erm"].values()])
    return [*lines, f"| source codes, ERM | {erm.mean():.3f} ± {erm.std(ddof=1) / np.sqrt(len(erm)):.3f} |"]


def course(records: Sequence[RunRecord]) -> list[str]:
    """Two lines for each learned policy, over the steps: extrapolated share and discriminator's loss."""
    steps = [e.step for e in records[0].evaluations if e.step >= FIRST]
    lines = [f"| over the steps | 480–{' | '.join(map(str, steps))} |", f"| --- |{' ---: |' * len(steps)}"]
    for metric in ("extrapolated", "discriminator"):
        for method in LEARNED:
            runs = [record for record in records if record_row(record).key == method]
            at = {step: [_metrics(r, e) for r in runs for e in r.evaluations if e.step == step] for step in steps}
            if metric in at[FIRST][0]:
                means = {step: np.mean([metrics[metric] for metrics in found]) for step, found in at.items()}
                means[FIRST] /= MIXED
                cells = [POLICY[metric].format(mean) for mean in means.values()]
                lines.append(f"| {ARMS[method]}, {metric} | {' | '.join(cells)} |")
    return lines


def shares(records: Sequence[RunRecord], selection: Selection) -> list[str]:
    """FGMix's share of extrapolated codes over all mixing steps, by test domain; and whether arms with more are better.

    The second is Spearman's ρ over the arms with a learned policy, of mean share and mean accuracy.
    """
    from scipy.stats import spearmanr

    share = {
        method: {pair: _share(r) for r in records if record_row(r).key == method for pair in [_pair(r)]}
        for method in LEARNED
    }
    (domains,) = selection.domains.values()
    found = [np.mean([value for pair, value in share["fgmix"].items() if pair[1] == domain]) for domain in domains]
    scores = _by_key(selection)
    rho = {
        model: spearmanr(
            [np.mean(list(share[method].values())) for method in LEARNED],
            [np.mean(list(scores[method, model].values())) for method in LEARNED],
        ).statistic
        for model in ("raw", "swa")
    }
    return [
        f"| | {' | '.join(domains)} | all |",
        f"| --- |{' ---: |' * (len(domains) + 1)}",
        f"| extrapolated by FGMix after τ | {' | '.join(f'{each:.1%}' for each in [*found, np.mean(found)])} |",
        "",
        "| Spearman's ρ over six arms | raw | with SWA |",
        "| --- | ---: | ---: |",
        f"| mean share and mean accuracy (last five) | {rho['raw']:+.2f} | {rho['swa']:+.2f} |",
    ]


def _pair(record: RunRecord) -> tuple[int, str]:
    return record.spec.trial_seed, record.spec.test_domains[0]


def _share(record: RunRecord) -> float:
    """Mean over the steps from τ on; those before the first evaluation that do not mix count as zero in it."""
    after = [e for e in record.evaluations if e.step >= FIRST]
    return float(np.sum([e.metrics["extrapolated"] for e in after]) / (MIXED + len(after) - 1))


def _metrics(record: RunRecord, evaluation: Evaluation) -> dict[str, float]:
    """What was recorded, and the discriminator's loss: `disc` is α times it, and 2 log 2 = 1.386 is chance."""
    found = dict(evaluation.metrics)
    if "disc" in found:
        found["discriminator"] = found["disc"] / record.spec.settings["alpha"]
    return found


if __name__ == "__main__":
    print("\n".join(tables(complete(unpack(Path(sys.argv[1]))))))
