"""Curves: a run over its steps, with the metrics of its algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fgmix.errors import UserError
from fgmix.figures.arrays import Bools, Floats, Ints, Texts
from fgmix.figures.description import INK, Axis, Chart, Mark, Panel, connect_points
from fgmix.figures.looks import assign_domain_looks
from fgmix.records.evaluations import Model, Scores
from fgmix.records.schema import RunRecord

# Names by key; a key that is not listed is printed as words: "critic_class" as "Critic class".
_NAMES = {
    "loss": "Training loss",
    "risk": "Risk (cross-entropy)",
    "flat": "L_flat",
    "adv": "L_adv of the policy",
    "disc": "L_adv of the discriminator",
    "lam": "λ",
    "extrapolated": "Extrapolated share",
    "entropy": "Entropy of the weights a",
    "mixed": "Mixed codes per step",
    "skipped": "Share of steps skipped",
    "noise_to_margin": "Noise ÷ margin",
    "input_norm": "Norm of A_ω's inputs",
    "mixed_loss": "Loss of mixed codes",
    "mixed_margin": "Margin of mixed codes",
    "gradient_ratio": "Gradient of mixed codes ÷ of sources",
    "margin_correlation": "Rank correlation of ã with the margin",
    "gap": "Distance between domains",
    "penalty": "Penalty",
    "variance": "Variance of the risks",
    "worst": "Risk of the worst domain",
    "passed": "Share of gradient components kept",
    "kept": "Share of features kept",
    "conflicts": "Share of conflicting gradients",
    "individual": "Individual loss",
    "hybrid": "Hybrid loss",
    "style": "Loss of the style network",
    "adversary": "Adversarial loss",
}
_EFFECT = ("mixed_loss", "mixed_margin", "gradient_ratio", "margin_correlation")
MIXING = ("flat", "adv", "disc", "lam", "extrapolated", "entropy", "noise_to_margin", "input_norm", *_EFFECT)
COUNT = "mixed"  # mixed codes per step: 0 before mixing starts


@dataclass(frozen=True, eq=False)
class Curves:
    """A run over its steps."""

    title: str  # algorithm and held-out domains
    steps: Ints  # of the evaluations (s,)
    models: Texts  # "raw", and "swa" or "swad" where the weights were averaged (m,)
    domains: Texts  # names of all domains (k,)
    is_test: Bools  # which of them were held out (k,)
    accuracy: Floats  # on the holdout part, in percent (m, k, s)
    loss: Floats  # cross-entropy there (m, k, s)
    metrics: Texts  # names of the algorithm's metrics (q,)
    metric_values: Floats  # means over the steps since the previous evaluation (q, s)


def name_metric(key: str) -> str:
    """Return the name of a metric in figures.

    >>> name_metric("lam"), name_metric("critic_class")
    ('λ', 'Critic class')
    """
    return _NAMES.get(key, key.replace("_", " ").capitalize())


def collect_curves(record: RunRecord) -> Curves:
    """Collect accuracy, loss and the algorithm's metrics of one run, at each evaluation."""
    if not record.evaluations:
        raise UserError(
            f"Expected a run with evaluations. Found {record.folder}, which diverged before the first. Train it with a "
            "lower learning rate."
        )
    evaluations = list(record.evaluations)
    # Of all: some algorithms have metrics of their own in each of their phases.
    names = {name for evaluation in evaluations for name in evaluation.metrics}
    metrics = sorted(names - {COUNT, "skipped"})
    counts = [evaluation.metrics.get(COUNT, np.nan) for evaluation in evaluations]
    begun = next((i for i, count in enumerate(counts) if count > 0), 0)

    def read_metric(i: int, name: str) -> float:
        """NaN for metrics of mixing before it starts; at the first evaluation after, the mean over the mixing steps."""
        value = evaluations[i].metrics.get(name, np.nan)
        if name not in MIXING or np.isnan(counts[i]):
            return value
        if counts[i] == 0:
            return float("nan")
        # Steps without mixing are recorded as 0, except for λ.
        return value if i != begun or name == "lam" else value * max(counts) / counts[i]

    def read_holdout(by_model: Mapping[Model, Scores]) -> list[list[float]]:
        """Scores on holdout parts; NaN for missing ones: records of DomainBed have no losses."""
        scores = [by_model.get(model, {}) for model in record.models]
        return [[of.get(name, {}).get("holdout", np.nan) for name in record.domains] for of in scores]

    return Curves(
        title=f"{record.label}, test domain {' and '.join(record.spec.test_domains)}",
        steps=np.array([e.step for e in evaluations]),
        models=np.array(record.models),
        domains=np.array(record.domains),
        is_test=np.isin(record.domains, record.spec.test_domains),
        accuracy=100 * np.array([read_holdout(e.accuracy) for e in evaluations]).transpose(1, 2, 0),
        loss=np.array([read_holdout(e.loss) for e in evaluations]).transpose(1, 2, 0),
        metrics=np.array([name_metric(name) for name in metrics], dtype=np.str_),
        metric_values=np.array([[read_metric(i, name) for i in range(len(evaluations))] for name in metrics]),
    )


def describe_curves(arrays: Curves) -> Chart:
    """Describe accuracy, loss and a panel for each metric; those of mixing start when mixing does."""
    step = Axis("Step")
    panels = [Panel("Holdout accuracy", step, Axis("%"), _describe_domains(arrays, arrays.accuracy))]
    if np.isfinite(arrays.loss).any():  # records of DomainBed hold none
        panels.append(Panel("Holdout loss", step, Axis(""), _describe_domains(arrays, arrays.loss)))
    known = [
        (str(name), values) for name, values in zip(arrays.metrics, arrays.metric_values) if np.isfinite(values).any()
    ]
    for name, values in known:
        marks = [replace(mark, name="") for mark in connect_points(name, arrays.steps, values, INK, "o")]  # no legend
        panels.append(Panel(name, step, Axis(""), marks))
    caption = [
        "Thick lines: test domain." if arrays.is_test.any() else "",
        "Dashed lines: averaged weights." if len(arrays.models) > 1 else "",
        "Metrics of the method are means over the steps since the previous evaluation." if known else "",
        "What mixing measures begins where mixing does." if any(np.isnan(values).any() for _, values in known) else "",
    ]
    return Chart(arrays.title, " ".join(filter(None, caption)), panels)


def _describe_domains(arrays: Curves, values: Floats) -> list[Mark]:
    marks: list[Mark] = []
    for d, (domain, look) in enumerate(assign_domain_looks(arrays.domains.tolist()).items()):
        for m, model in enumerate(map(str, arrays.models)):
            test = bool(arrays.is_test[d])
            name = domain + (" (test)" if test else "") + ("" if model == "raw" else f", {model.upper()}")
            colour, width = look.ink, 2.5 if test else 1.2
            marks += connect_points(name, arrays.steps, values[m, d], colour, look.marker, model != "raw", width)
    return marks
