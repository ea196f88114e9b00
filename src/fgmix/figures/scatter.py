"""Points: accuracy on the line, what mixed codes are worth, accuracy against compute, compatibility and cosine.

The claim of accuracy on the line: a run that is better on the source domains is better on the test domain, so that
training-domain validation can select. Spearman's ρ decides it, which does not depend on the scale of the axes.
Miller et al., "Accuracy on the Line", 2021, https://arxiv.org/abs/2107.04649.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from fgmix.figures.arrays import Bools, Findings, Floats, Ints, Texts
from fgmix.figures.curves import COUNT, name_metric
from fgmix.figures.description import MOST, Axis, Chart, Line, Mark, Panel, Points, thin
from fgmix.figures.looks import GREY, OURS, choose_look, list_looks
from fgmix.records.rows import Row, label_row, record_row, shorten_labels
from fgmix.records.schema import RunRecord
from fgmix.results.costs import ERM, Costs
from fgmix.results.other_metrics import average_metric, collect_metrics
from fgmix.results.selection import Selected, Selection
from fgmix.results.tables import dataset_table

NORMAL = 1.959964  # quantile of the normal distribution for a 95 % interval
LEAST = 5  # runs of a panel of accuracy on the line
CLAIM = (
    "Claim: a run that is better on the source domains is better on the test domain: Spearman's ρ is above 0 (95 % "
    "interval in brackets, as if runs were independent)."
)
MANY = 12  # methods from which on all points have one colour, because a legend would be longer than the figure
SHARE = "extrapolated"
WIDE = 100  # times the lowest value from which on a metric is shown as its logarithm
SHOWN = ("mixed_loss", "mixed_margin", "flat")  # metrics of mixed codes: a panel for each that some run has recorded


def _mark_methods(
    labels: Texts, algorithms: Texts, method: Ints, x: Floats, y: Floats, write: Callable[[str, float, float], str]
) -> list[Points]:
    """Describe the points of each method; `write` says what hovering over one shows, from its label, x and y."""
    marks = []
    for m, (label, look) in enumerate(zip(labels.tolist(), list_looks(algorithms))):
        a, b = x[method == m], y[method == m]
        if len(a):
            texts = [write(label, *point) for point in zip(a, b)]
            marks.append(Points(label, a, b, look.ink, look.marker, texts))
    return marks


def correlate(x: Floats, y: Floats) -> float:
    """Compute Spearman's ρ, the correlation of ranks (ties: mean rank); NaN if either is constant.

    >>> correlate(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    from scipy.stats import spearmanr

    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")  # without scipy's warning
    return float(spearmanr(x, y).statistic)


def bound_rho(rho: float, n: int) -> tuple[float, float]:
    """Compute the 95 % interval of Spearman's ρ of n pairs, by Fisher's z and Bonett and Wright's variance (2000).

    https://doi.org/10.1007/BF02294183

    >>> low, high = bound_rho(0.5, 200)
    >>> round(low, 2), round(high, 2)
    (0.38, 0.6)
    """
    if n < 4 or not abs(rho) < 1:
        return rho, rho
    half = NORMAL * math.sqrt((1 + rho**2 / 2) / (n - 3))
    z = math.atanh(rho)
    return math.tanh(z - half), math.tanh(z + half)


# Accuracy on the line


@dataclass(frozen=True, eq=False)
class Agreement:
    """Validation and test accuracy of runs."""

    dataset: str  # its name
    metric: str  # what both are, usually "accuracy"
    domains: Texts  # test domains (d,)
    methods: Texts  # labels of the methods (m,)
    algorithms: Texts  # their keys (m,)
    domain: Ints  # test domain of each point (n,)
    method: Ints  # its method (n,)
    validation: Floats  # on the holdout parts of the source domains, in percent (n,)
    accuracy: Floats  # on the test domain, in percent (n,)


def collect_agreements(findings: Findings) -> Iterator[tuple[str, Agreement]]:
    """Collect the runs of each dataset, by test domain: raw weights at the step that validation selects."""
    for dataset, domains in findings.selection.domains.items():
        runs = [each for each in findings.runs.records if each.dataset == dataset and each.evaluations]
        # Runs for leave-one-domain-out validation hold out one more domain, and have one source less.
        fewest = min((len(run.spec.test_domains) for run in runs if run.spec.test_domains), default=0)
        points = [(t, run) for run in runs if len(run.spec.test_domains) == fewest for t in run.spec.test_domains]
        counts = [sum(t == name for t, _ in points) for name in domains]
        held_out = [name for name, count in zip(domains, counts) if count >= LEAST]
        if held_out:
            points = [(t, run) for t, run in points if t in held_out]
            yield dataset, _measure(findings, dataset, held_out, points)


def _measure(findings: Findings, dataset: str, domains: list[str], points: list[tuple[str, RunRecord]]) -> Agreement:
    rows = list(dict.fromkeys(record_row(run) for _, run in points))
    labels = shorten_labels(findings.selection.labels, rows)
    places = [run.best() for _, run in points]
    scores = [run.score(place, "raw", t, "train") for (t, run), (place, _) in zip(points, places)]
    return Agreement(
        dataset=dataset,
        metric=findings.selection.metric,
        domains=np.array(domains),
        methods=np.array([label_row(labels, row) for row in rows]),
        algorithms=np.array([row.key for row in rows]),
        domain=np.array([domains.index(t) for t, _ in points]),
        method=np.array([rows.index(record_row(run)) for _, run in points]),
        validation=100 * np.array([value for _, value in places]),
        accuracy=100 * np.array(scores),
    )


def correlate_domains(arrays: Agreement) -> list[tuple[float, int]]:
    """Compute Spearman's ρ of each test domain, and its number of runs; NaN where all are equal."""
    every = [arrays.domain == d for d in range(len(arrays.domains))]
    return [(correlate(arrays.validation[own], arrays.accuracy[own]), int(own.sum())) for own in every]


def claim_agreement(rows: Sequence[Agreement]) -> list[str]:
    """State whether validation orders the runs of each test domain as its accuracy does."""
    lines = [
        f"Test domain {name}: {_write_rho(rho, n)}, {n} runs."
        for arrays in rows
        for name, (rho, n) in zip(arrays.domains, correlate_domains(arrays))
    ]
    return [CLAIM, *lines]


def _write_rho(rho: float, n: int) -> str:
    low, high = bound_rho(rho, n)
    return "ρ is not defined" if np.isnan(rho) else f"ρ = {rho:.2f} [{low:.2f}, {high:.2f}]"


def describe_agreement(arrays: Agreement) -> Chart:
    """Describe a panel for each test domain with its ρ, and a dashed line where both accuracies are equal."""
    x, y = Axis(f"Source validation {arrays.metric} (%)"), Axis(f"Test {arrays.metric} (%)")
    panels = [
        Panel(f"{name}, {_write_rho(rho, n)}", x, y, _describe_domain(arrays, d))
        for d, (name, (rho, n)) in enumerate(zip(arrays.domains, correlate_domains(arrays)))
    ]
    most = int(np.bincount(arrays.domain).max())
    caption = (
        "Every run, of every trial and hyper-parameter sample, with its raw weights at the step that training-domain "
        f"validation selects ({most} runs per test domain at most). Dashed: both are equal. ρ: Spearman's correlation "
        f"with its 95 % interval.{f' {MOST} runs per panel are drawn; ρ is that of all.' if most > MOST else ''}"
    )
    title = f"Accuracy on the line: {arrays.dataset}"
    return Chart(title, "\n".join([caption, CLAIM]), panels)


def _describe_domain(arrays: Agreement, domain: int) -> list[Mark]:
    places = thin(np.flatnonzero(arrays.domain == domain))
    x, y, method = arrays.validation[places], arrays.accuracy[places], arrays.method[places]
    low, high = max(x.min(), y.min()), min(x.max(), y.max())
    # Drawn where both axes reach it
    marks: list[Mark] = [Line("", [low, high], [low, high], GREY, dashed=True, width=1)] if low < high else []
    if len(arrays.methods) > MANY:
        return [*marks, Points("", x, y, OURS)]
    where = arrays.domains[domain]

    def write(label: str, a: float, b: float) -> str:
        return f"{label}: {a:.1f} on sources, {b:.1f} on {where}"

    return [*marks, *_mark_methods(arrays.methods, arrays.algorithms, method, x, y, write)]


# Mixed codes. One that is extrapolated away from the boundary has a small loss: the share alone does not tell what the
# base model learns from it.


@dataclass(frozen=True, eq=False)
class Mixing:
    """Metrics of mixed codes in the last steps of runs."""

    dataset: str  # its name
    methods: Texts  # labels of methods and arms (m,)
    algorithms: Texts  # their keys (m,)
    method: Ints  # of each run (n,)
    share: Floats  # of extrapolated codes, in percent (n,)
    metrics: Texts  # names of the metrics (q,)
    values: Floats  # NaN where a run did not record it (q, n)


def collect_mixing(findings: Findings) -> Iterator[tuple[str, Mixing]]:
    """Collect the runs of each dataset that mixed codes until the end."""
    for dataset in findings.datasets:
        runs = [each for each in findings.runs.records if each.dataset == dataset]
        found = [(record_row(run), metrics) for run in runs if (metrics := _read_last(run))]
        known = [name for name in SHOWN if any(name in metrics for _, metrics in found)]
        if known:
            rows = list(dict.fromkeys(row for row, _ in found))
            labels = shorten_labels(findings.selection.labels, rows)
            arrays = Mixing(
                dataset=dataset,
                methods=np.array([label_row(labels, row) for row in rows]),
                algorithms=np.array([row.key for row in rows]),
                method=np.array([rows.index(row) for row, _ in found]),
                share=100 * np.array([metrics[SHARE] for _, metrics in found]),
                metrics=np.array([name_metric(name) for name in known]),
                values=np.array([[metrics.get(name, np.nan) for _, metrics in found] for name in known]),
            )
            yield dataset, arrays


def _read_last(run: RunRecord) -> dict[str, float]:
    """Read the metrics of the steps before the last evaluation that mixed; empty if none did."""
    last = run.evaluations[-1].metrics if run.evaluations else {}
    if SHARE not in last or not last.get(COUNT):
        return {}
    most = max(evaluation.metrics.get(COUNT, 0.0) for evaluation in run.evaluations)
    part = last[COUNT] / most  # of the steps; the others count as 0 in the means
    return {name: last[name] / part for name in (SHARE, *SHOWN) if name in last}


def describe_mixing(arrays: Mixing) -> Chart:
    """Describe a panel for each metric, with a point for each run."""
    x = Axis("Extrapolated codes (%)")
    panels = []
    for name, values in zip(arrays.metrics, arrays.values):
        known = values[np.isfinite(values)]
        low, high = known.min(initial=np.inf), known.max(initial=0.0)
        wide = low > 0 and WIDE * low < high
        shown, title = (np.log10(values), f"log₁₀ {name}") if wide else (values, str(name))
        panels.append(Panel(title, x, Axis(), _describe_runs(arrays, shown)))
    caption = (
        "Every run, of every trial, test domain and hyper-parameter sample: means over the steps before its last "
        "evaluation."
    )
    return Chart(f"Mixed codes: {arrays.dataset}", caption, panels)


def _describe_runs(arrays: Mixing, values: Floats) -> list[Points]:
    known = [thin(np.flatnonzero((arrays.method == m) & np.isfinite(values))) for m in range(len(arrays.methods))]
    own = np.concatenate(known)
    return _mark_methods(
        arrays.methods,
        arrays.algorithms,
        arrays.method[own],
        arrays.share[own],
        values[own],
        lambda label, a, b: f"{label}: {b:.3g} at {a:.1f} % extrapolated",
    )


# Accuracy and calibration error against the compute of training


@dataclass(frozen=True, eq=False)
class Budget:
    """Compute of rows, and what they reach with it."""

    dataset: str  # its name
    metric: str  # what `accuracy` is, usually "accuracy"
    rows: Texts  # labels (r,)
    algorithms: Texts  # keys of their algorithms (r,)
    averaged: Bools  # whether the weights are averages (r,)
    compute: Floats  # samples that a run trains on, times the cost of a step relative to ERM's (r,)
    accuracy: Floats  # average over the test domains, in percent (r,)
    calibration_error: Floats  # likewise; NaN where it was not recorded (r,)


def collect_budgets(findings: Findings) -> Iterator[tuple[str, Budget]]:
    """Collect the rows of each dataset whose cost is known: from their records, or from measured times."""
    selection = findings.selection
    unseen = collect_metrics(selection)
    for dataset in findings.datasets:
        compute = _measure_compute(selection, dataset, findings.runs.costs)
        averages = {row.row: row.entries[-1].value for row in dataset_table(selection, dataset).rows}
        rows = [row for row, average in averages.items() if row in compute and average is not None]
        errors = [average_metric(unseen.get(dataset, {}).get(row, {}), "calibration_error").value for row in rows]
        if len(rows) > 1:
            labels = shorten_labels(selection.labels, rows)
            arrays = Budget(
                dataset=dataset,
                metric=selection.metric,
                rows=np.array([label_row(labels, row) for row in rows]),
                algorithms=np.array([row.key for row in rows]),
                averaged=np.array([row.model != "raw" for row in rows]),
                compute=np.array([compute[row] for row in rows]),
                accuracy=np.array([averages[row] for row in rows], dtype=np.float64),
                calibration_error=np.array(errors, dtype=np.float64),  # None becomes NaN
            )
            yield dataset, arrays


def _measure_compute(selection: Selection, dataset: str, costs: Costs | None) -> dict[Row, float]:
    """Average the compute of the selected runs of each row; without those of unknown cost."""
    runs: dict[Row, list[RunRecord]] = defaultdict(list)
    for cell, outcome in selection.cells.items():
        if cell.dataset == dataset and isinstance(outcome, Selected):
            runs[cell.row].append(outcome.record)
    times = {} if costs is None else costs.milliseconds
    relative = {row: time / times[ERM] for row, time in times.items()} if ERM in times else {}
    compute = {}
    for row, records in runs.items():
        cost = records[0].cost or relative.get(Row(row.algorithm))
        if cost is not None:
            compute[row] = cost * fmean(each.spec.steps * each.spec.batch_size * len(each.sources) for each in records)
    return compute


def describe_budget(arrays: Budget) -> Chart:
    """Describe a point for each row: its accuracy, and its calibration error where that is known, against compute."""
    x = Axis("Training samples × cost of a step (ERM = 1)", low=0.0)
    panels = [
        Panel(title, x, Axis("%"), _describe_rows(arrays, y))
        for title, y in (
            (f"Average {arrays.metric}", arrays.accuracy),
            ("Expected calibration error", arrays.calibration_error),
        )
        if np.isfinite(y).any()
    ]
    caption = (
        "Means over test domains and trials of the selected runs. Compute of one run: steps × samples per step × "
        "operations of a step relative to ERM's; a search takes as many times more as it has samples."
        f"{' Pale: averaged weights.' if arrays.averaged.any() else ''}"
    )
    return Chart(f"Accuracy and compute: {arrays.dataset}", caption, panels)


def _describe_rows(arrays: Budget, y: Floats) -> list[Points]:
    marks = _mark_methods(
        arrays.rows,
        arrays.algorithms,
        np.arange(len(y)),
        arrays.compute,
        y,
        lambda label, a, b: f"{label}: {b:.1f} % with {a:,.0f} samples of ERM",
    )
    return [replace(mark, faint=faint) for mark, faint in zip(marks, arrays.averaged.tolist())]


# Learned compatibility against the cosine. Its claim: A_ω rises with the cosine.


@dataclass(frozen=True, eq=False)
class Scores:
    """Learned compatibility against the cosine, for pairs of domains."""

    pairs: Texts  # "i → j", domains of g_i and g_j (p,)
    score: Floats  # A_ω(g_i, g_j) (p, n)
    cosine: Floats  # cos(g_i, g_j) (p, n)
    rho: Floats  # Spearman's ρ of the two (p,)
    inputs: str  # what g_i and g_j are: "gradients" or "codes"
    test_domains: str  # the domains held out, in words

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """The interval of each ρ."""
        return [bound_rho(float(rho), self.score.shape[1]) for rho in self.rho]


def claim_scores(rows: Sequence[Scores]) -> list[str]:
    """State in which pairs of domains A_ω rises with the cosine."""
    lines = [
        f"Claim: A_ω rises with the cosine of {rows[0].inputs}: Spearman's ρ is above 0 (95 % interval in brackets)."
    ]
    for row in rows:
        values = [
            f"{pair} {rho:.2f} [{low:.2f}, {high:.2f}]"
            for pair, rho, (low, high) in zip(row.pairs, row.rho, row.intervals)
        ]
        lines.append(f"Test domain {row.test_domains}: {_count_rising(row)}; {', '.join(values)}.")
    return lines


def _count_rising(arrays: Scores) -> str:
    """Say in how many pairs of domains A_ω rises with the cosine."""
    return f"it does in {sum(low > 0 for low, _ in arrays.intervals)} of {len(arrays.rho)} pairs of domains"


def describe_scores(arrays: Scores) -> Chart:
    """Describe a scatter plot for each ordered pair of domains, all on the same axes."""
    colour = choose_look("fgmix").colour
    x = Axis(f"Cosine of {arrays.inputs}", None, *_span(arrays.cosine))
    y = Axis("A_ω", None, *_span(arrays.score))
    panels = []
    for pair, rho, (low, high), cosine, score in zip(
        arrays.pairs, arrays.rho, arrays.intervals, arrays.cosine, arrays.score
    ):
        texts = [f"cosine {c:.3f}, A_ω {s:.3f}" for c, s in zip(cosine, score)]
        title = f"{pair}, ρ = {rho:.2f} [{low:.2f}, {high:.2f}]"
        panels.append(Panel(title, x, y, [Points("", cosine, score, colour, "o", texts)]))
    caption = [
        "Learned compatibility and cosine, for pairs of samples of two source domains; ρ: Spearman's correlation with "
        "its 95 % interval.",
        claim_scores([arrays])[0],
        f"Test domain {arrays.test_domains}: {_count_rising(arrays)}.",  # the numbers are the titles of the panels
    ]
    title = f"Compatibility and cosine, test domain {arrays.test_domains}"
    return Chart(title, "\n".join(caption), panels, columns=min(3, len(panels)))


def _span(values: Floats) -> tuple[float, float]:
    """Return one range for all panels, with a margin."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin
