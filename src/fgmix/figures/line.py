"""Accuracy on the line: validation on the source domains against accuracy on the test domain, a point for each run.

Its claim: a run that is better on the source domains is better on the test domain, so that training-domain validation
can select. Spearman's ρ decides it, which does not depend on the scale of the axes.

Miller et al., "Accuracy on the Line", 2021, https://arxiv.org/abs/2107.04649.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fgmix.figures.arrays import Findings, Floats, Ints, Texts
from fgmix.figures.description import MOST, Axis, Chart, Line, Mark, Panel, Points, thin, to_ink
from fgmix.figures.looks import GREY, OURS, assign_looks
from fgmix.figures.scores import bound_rho
from fgmix.records.rows import label_row, record_row
from fgmix.records.schema import RunRecord

LEAST = 5  # runs of a panel
MANY = 12  # methods from which on all points have one colour, because a legend would be longer than the figure


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
    places = [run.best() for _, run in points]
    scores = [run.score(place, "raw", t, "train") for (t, run), (place, _) in zip(points, places)]
    return Agreement(
        dataset=dataset,
        metric=findings.selection.metric,
        domains=np.array(domains),
        methods=np.array([label_row(findings.selection.labels, row) for row in rows]),
        algorithms=np.array([row.key for row in rows]),
        domain=np.array([domains.index(t) for t, _ in points]),
        method=np.array([rows.index(record_row(run)) for _, run in points]),
        validation=100 * np.array([value for _, value in places]),
        accuracy=100 * np.array(scores),
    )


def correlate(arrays: Agreement) -> list[tuple[float, int]]:
    """Compute Spearman's ρ of each test domain, and its number of runs; NaN where all are equal."""
    from scipy.stats import rankdata

    found = []
    for d in range(len(arrays.domains)):
        own = arrays.domain == d
        x, y = (rankdata(values[own]) for values in (arrays.validation, arrays.accuracy))
        varies = x.std() > 0 and y.std() > 0
        found.append((float(np.corrcoef(x, y)[0, 1]) if varies else float("nan"), int(own.sum())))
    return found


def claim_agreement(rows: Sequence[Agreement]) -> list[str]:
    """State whether validation orders the runs of each test domain as its accuracy does."""
    claim = (
        "Claim: a run that is better on the source domains is better on the test domain: Spearman's ρ is above 0 (95 % "
        "interval in brackets, as if runs were independent)."
    )
    lines = [
        f"Test domain {name}: {_write_rho(rho, n)}, {n} runs."
        for arrays in rows
        for name, (rho, n) in zip(arrays.domains, correlate(arrays))
    ]
    return [claim, *lines]


def _write_rho(rho: float, n: int) -> str:
    low, high = bound_rho(rho, n)
    return "ρ is not defined" if np.isnan(rho) else f"ρ = {rho:.2f} [{low:.2f}, {high:.2f}]"


def describe_agreement(arrays: Agreement) -> Chart:
    """Describe a panel for each test domain with its ρ, and a dashed line where both accuracies are equal."""
    panels = [
        Panel(
            f"{name}, {_write_rho(rho, n)}",
            Axis(f"Source validation {arrays.metric} (%)"),
            Axis(f"Test {arrays.metric} (%)"),
            _describe_domain(arrays, d),
        )
        for d, (name, (rho, n)) in enumerate(zip(arrays.domains, correlate(arrays)))
    ]
    most = int(np.bincount(arrays.domain).max())
    caption = (
        "Every run, of every trial and hyper-parameter sample, with its raw weights at the step that training-domain "
        f"validation selects ({most} runs per test domain at most). Dashed: both are equal. ρ: Spearman's correlation "
        f"with its 95 % interval.{f' {MOST} runs per panel are drawn; ρ is that of all.' if most > MOST else ''}"
    )
    title = f"Accuracy on the line: {arrays.dataset}"
    return Chart(title, "\n".join([caption, *claim_agreement([arrays])]), panels)


def _describe_domain(arrays: Agreement, domain: int) -> list[Mark]:
    places = thin(np.flatnonzero(arrays.domain == domain))
    x, y = arrays.validation[places], arrays.accuracy[places]
    low, high = max(x.min(), y.min()), min(x.max(), y.max())
    # Drawn where both axes reach it
    marks: list[Mark] = [Line("", [low, high], [low, high], GREY, dashed=True, width=1)] if low < high else []
    if len(arrays.methods) > MANY:
        return [*marks, Points("", x, y, OURS)]
    looks = assign_looks(arrays.algorithms.tolist())
    for m, label in enumerate(map(str, arrays.methods)):
        own = arrays.method[places] == m
        look = looks[str(arrays.algorithms[m])]
        texts = [f"{label}: {a:.1f} on sources, {b:.1f} on {arrays.domains[domain]}" for a, b in zip(x[own], y[own])]
        marks.append(Points(label, x[own], y[own], to_ink(look.colour), look.marker, texts))
    return marks
