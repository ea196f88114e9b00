"""The arrays of figures that need records only: curves, tables, ranks. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fgmix.analysis.arrays import Ablation, Cost, Curves, Floats, Ranks, Sensitivity
from fgmix.analysis.metrics import COUNT, MIXING, metric_name
from fgmix.errors import UserError
from fgmix.records.schema import RunRecord, Scores
from fgmix.results.costs import ERM, Costs
from fgmix.results.grids import PAPER_DATASET, Grid, grid_tables
from fgmix.results.labels import Labels, method_label, split_origin
from fgmix.results.paper_rows import PAPER, beside, lacking
from fgmix.results.published import sensitivity, step_milliseconds
from fgmix.results.ranks import Ranking, not_ranked
from fgmix.results.selection import Method, Rule, Selection
from fgmix.results.tables import SPREADS, Spread, Table, dataset_table

VARIANTS = ("erm", *(f"fgmix_{variant}" for variant in "abcdef"), "fgmix")


def run_curves(record: RunRecord) -> Curves:
    """Accuracy, loss and the method's metrics of one run, at each evaluation."""
    if not record.evaluations:
        raise UserError(
            f"Expected a run with evaluations. Found {record.folder}, which diverged before the first. Train it with a "
            "lower learning rate."
        )
    metrics = [name for name in sorted(record.evaluations[0].metrics) if name not in (COUNT, "skipped")]

    counts = [evaluation.metrics.get(COUNT, np.nan) for evaluation in record.evaluations]
    begun = next((i for i, count in enumerate(counts) if count > 0), 0)

    def value(i: int, name: str) -> float:
        """NaN for metrics of mixing before it starts; at the first evaluation after, the mean over the mixing steps."""
        found = record.evaluations[i].metrics[name]
        if name not in MIXING or np.isnan(counts[i]):
            return found
        if counts[i] == 0:
            return float("nan")
        # Steps without mixing are recorded as 0, except for λ.
        return found if i != begun or name == "lam" else found * max(counts) / counts[i]

    def holdout(by_model: Mapping[str, Scores]) -> list[list[float]]:
        """Scores on holdout parts; NaN for missing ones: records of DomainBed have no losses."""
        scores = [by_model.get(model, {}) for model in record.models]
        return [[of.get(name, {}).get("holdout", np.nan) for name in record.domains] for of in scores]

    return Curves(
        title=f"{record.label}, test domain {' and '.join(record.spec.test_domains)}",
        steps=np.array([e.step for e in record.evaluations]),
        models=np.array(record.models),
        domains=np.array(record.domains),
        is_test=np.isin(record.domains, record.spec.test_domains),
        accuracy=100 * np.array([holdout(e.accuracy) for e in record.evaluations]).transpose(1, 2, 0),
        loss=np.array([holdout(e.loss) for e in record.evaluations]).transpose(1, 2, 0),
        metrics=np.array([metric_name(name) for name in metrics], dtype=np.str_),
        metric_values=np.array([[value(i, name) for i in range(len(record.evaluations))] for name in metrics]),
    )


def grid_sensitivities(grid: Grid, *, rule: Rule = "training_domain", spread: Spread = "stderr") -> list[Sensitivity]:
    """A heat map for each dataset and method of a grid of settings."""
    return [Sensitivity(**_numbers(table)) for table in grid_tables(grid, rule=rule, spread=spread)]


def paper_sensitivity() -> Sensitivity:
    """The paper's accuracies by λ₀ and α."""
    found = {(lam, alpha): value for (_, lam, alpha), value in sensitivity().items()}
    lams, alphas = sorted({lam for lam, _ in found}), sorted({alpha for _, alpha in found})
    value = np.array([[found[lam, alpha] for alpha in alphas] for lam in lams])
    return Sensitivity(
        title=f"{PAPER_DATASET}: FGMix by λ₀ and α ({PAPER})",
        corner="λ₀",
        rows=np.array([f"{lam:g}" for lam in lams]),
        algorithms=np.full(len(lams), "fgmix"),
        published=np.full(len(lams), True),
        columns=np.array([f"α = {alpha:g}" for alpha in alphas]),
        value=value,
        spread=np.full_like(value, np.nan),
    )


def with_variants(selection: Selection, least: int = 1) -> list[tuple[str, str]]:
    """Datasets and origins ("" for a single folder) that have at least `least` of `VARIANTS`."""
    found: dict[tuple[str, str], set[str]] = {}
    for cell in selection.cells:
        own, origin = split_origin(cell.algorithm)
        found.setdefault((cell.dataset, origin), set()).update({own} & set(VARIANTS))
    return [place for place, variants in found.items() if len(variants) >= least]


def variant_ablation(
    selection: Selection, dataset: str, *, origin: str = "", spread: Spread = "stderr", published: bool = False
) -> Ablation:
    """Accuracy of ERM, the variants A to F and FGMix (raw models) by test domain.

    Args:
        selection: the selected models.
        dataset: which dataset.
        origin: which of several folders; "" for a single one.
        spread: what ± is.
        published: whether to add the paper's numbers; `about` names those that the paper lacks.
    """
    table = dataset_table(selection, dataset, algorithms=VARIANTS, spread=spread)
    rows = tuple(
        replace(row, method=Method(own))
        for row, (own, of) in ((row, split_origin(row.method.algorithm)) for row in table.rows)
        if own in VARIANTS and of == origin and row.method.model == "raw"
    )
    if not rows:
        raise UserError(
            f"Expected runs of the variants of FGMix on {dataset}. Found none. Run `fgmix sweep --preset "
            "paper-ablation`, or a sweep over fgmix_a … fgmix_f."
        )
    ours = replace(table, rows=rows, title=f"{table.title} ({origin})" if origin else table.title)
    trials = max((entry.trials or 0 for row in rows for entry in row.entries), default=0)
    notes = [
        f"Lines: ± {SPREADS[spread]}, {trials} trials." if trials > 1 else "One trial, hence no ±.",
        lacking(ours) if published else "",
    ]
    return Ablation(**_numbers(beside(ours) if published else ours), about=" ".join(filter(None, notes)))


def step_cost(costs: Costs) -> Cost:
    """Time per step relative to ERM, ours and the paper's."""
    ours, theirs = costs.milliseconds, step_milliseconds()
    if ERM not in ours:
        raise UserError("Expected the time of a step of ERM to divide by. Found none. Measure erm, too.")
    value = np.array(
        [
            [time / ours[ERM], theirs[method] / theirs[ERM] if method in theirs else np.nan]
            for method, time in ours.items()
        ]
    )
    return Cost(
        title="Time of a training step ÷ ERM's",
        corner="Method",
        rows=np.array([method_label(costs.labels, *method) for method in ours]),
        algorithms=np.array([method.algorithm for method in ours]),
        published=np.full(len(ours), False),
        columns=np.array(["ours", "paper"]),
        value=value,
        spread=np.full_like(value, np.nan),
    )


def method_ranks(ranking: Ranking, labels: Labels) -> Ranks:
    """Average ranks, and the groups without a significant difference."""
    place = {method: i for i, method in enumerate(ranking.ranks)}
    return Ranks(
        methods=np.array([method_label(labels, *method) for method in ranking.ranks]),
        algorithms=np.array([method.algorithm for method in ranking.ranks]),
        ranks=np.array(list(ranking.ranks.values())),
        cliques=np.array([(place[c[0]], place[c[-1]]) for c in ranking.cliques()], dtype=np.int64).reshape(-1, 2),
        critical_difference=ranking.critical_difference,
        pairs=ranking.pairs,
        p=ranking.p,
        not_ranked=not_ranked(ranking, labels),
    )


def _numbers(table: Table) -> dict[str, Any]:
    """The table as fields of `Numbers`."""
    return {
        "title": table.title,
        "corner": table.corner,
        "rows": np.array([table.label(row) for row in table.rows], dtype=np.str_),
        "algorithms": np.array([row.method.algorithm for row in table.rows], dtype=np.str_),
        "published": np.array([bool(row.source) for row in table.rows], dtype=np.bool_),
        "columns": np.array(table.columns, dtype=np.str_),
        "value": _matrix([[entry.value for entry in row.entries] for row in table.rows]),
        "spread": _matrix([[entry.spread for entry in row.entries] for row in table.rows]),
    }


def _matrix(entries: Sequence[Sequence[float | None]]) -> Floats:
    return np.array([[np.nan if value is None else value for value in row] for row in entries], dtype=np.float64)
