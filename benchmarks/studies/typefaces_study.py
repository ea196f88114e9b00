"""Print the tables of the study of many domains in docs/replication/typefaces.md from its records.

python benchmarks/studies/typefaces_study.py docs/records/typefaces.records.xz
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from scipy.stats import t

from fgmix.records.rows import label_arm, label_row
from fgmix.records.schema import RunRecord
from fgmix.records.store import unpack
from fgmix.results.intervals import MeanDifference, detectable_difference
from fgmix.results.selection import select
from fgmix.results.statistics import accuracies_by_row, group_domains, holm, paired_differences

RULE = "last_evaluations"
MARGIN = 1.0  # points within which a method counts as equivalent to its baseline
LAST = 5  # evaluations of the endpoint
MIXING_HEAD = "| arm | extrapolated | loss of mixed codes | margin of mixed codes | gradient ÷ that of the sources |"
HEAD = "| method | accuracy | difference | new domain | p (Holm) | detectable | verdict |"


def tables(records: Sequence[RunRecord]) -> list[str]:
    """Lines of the table: raw models against ERM, averaged ones against averaged ERM, and averaged ERM against ERM."""
    selection = select(records, RULE)
    scores = accuracies_by_row(selection, None)
    erm = {row.model: row for row in scores if row.algorithm == "erm"}
    baselines = {row: erm["raw" if row.algorithm == "erm" else row.model] for row in scores if row != erm["raw"]}
    found = {
        row: MeanDifference(group_domains(paired_differences(scores[row], scores[baseline])))
        for row, baseline in baselines.items()
    }
    corrected = dict(zip(found, holm([compute_p_value(each) for each in found.values()])))
    lines = [HEAD, "| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    for row, accuracies in scores.items():
        cells = _write_cells(found[row], corrected[row]) if row in found else " | | | | "
        lines.append(f"| {label_row(selection.labels, row)} | {fmean(accuracies.values()):.1f} | {cells} |")
    return lines


def describe_mixing(records: Sequence[RunRecord]) -> list[str]:
    """Lines of the table of mixed codes: means over the evaluations of the endpoint and all runs of an arm."""
    arms: dict[str, list[Mapping[str, float]]] = {}
    for record in records:
        measured = [each.metrics for each in record.evaluations[-LAST:] if "mixed_loss" in each.metrics]
        if measured:
            arms.setdefault(label_arm(record.label, record.spec.arm), []).extend(measured)
    lines = [MIXING_HEAD, "| --- | ---: | ---: | ---: | ---: |"]
    for arm, metrics in arms.items():
        extrapolated, loss, margin, ratio = (
            fmean(each[name] for each in metrics)
            for name in ("extrapolated", "mixed_loss", "mixed_margin", "gradient_ratio")
        )
        lines.append(f"| {arm} | {100 * extrapolated:.1f} % | {loss:.3f} | {margin:.2f} | {ratio:.2f} |")
    return lines


def compute_p_value(difference: MeanDifference) -> float:
    """Compute the p-value of no difference in a new domain: Student's t over the means of the domains."""
    means = difference.domain_means
    error = float(means.std(ddof=1)) / math.sqrt(len(means))
    return float(2 * t.sf(abs(difference.mean) / error, len(means) - 1))


def judge(difference: MeanDifference, p: float) -> str:
    """Judge a row by its corrected p-value, else by whether the 90 % interval for new domains is within the margin."""
    if p <= 0.05:
        return "better" if difference.mean > 0 else "worse"
    low, high = difference.interval_for_new(alpha=0.1) or (-math.inf, math.inf)
    return "equivalent" if max(-low, high) < MARGIN else "undecided"


def _write_cells(difference: MeanDifference, p: float) -> str:
    """Write a difference with its intervals for these and new domains, p, what is detectable, and the verdict."""
    own = difference.interval() or (math.nan, math.nan)
    new = difference.interval_for_new() or (math.nan, math.nan)
    means = difference.domain_means
    detectable = detectable_difference(float(means.std(ddof=1)), len(means)) or math.nan
    cells = "{:+.2f} [{:+.2f}, {:+.2f}] | [{:+.2f}, {:+.2f}]".format(difference.mean, *own, *new)
    shown = f"{p:.3f}" if p >= 0.001 else "< 0.001"
    return f"{cells} | {shown} | {detectable:.2f} | {judge(difference, p)}"


if __name__ == "__main__":
    runs = unpack(Path(sys.argv[1]))
    print("\n".join([*tables(runs), "", *describe_mixing(runs)]))
