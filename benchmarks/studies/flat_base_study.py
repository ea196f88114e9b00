"""Print the table of the study of `flat_base` in docs/replication/flat-base.md, or train its runs on rotated digits.

python benchmarks/studies/flat_base_study.py docs/records/flat-base.records.xz
python benchmarks/studies/flat_base_study.py run OUT
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from scipy.stats import t

from fgmix.records.evaluations import Model
from fgmix.records.schema import RunRecord
from fgmix.records.store import unpack
from fgmix.results.intervals import MeanDifference
from fgmix.results.rounding import p_text
from fgmix.results.selection import select
from fgmix.results.statistics import Pair, accuracies_by_row, group_domains, holm, paired_differences

ROOT = Path(__file__).parents[2]
FEATURES, DIGITS = "pacs_resnet50_features", "rotated"  # names of the datasets in the records
OUTSIDE = ("50°", "60°", "70°")  # test angles beyond the sources where random extrapolation pays
SEEDS, STEPS, LAST = 24, 500, 5
Arm = tuple[str, Model]
ERM, FGMIX, AT, ALONE = "erm", "fgmix", "fgmix (at φ′)", "fgmix (φ′ without mixing)"
NAMES: dict[Arm, str] = {
    (ERM, "raw"): "ERM",
    (ERM, "swa"): "(ERM + SWA)",
    (FGMIX, "raw"): "FGMix",
    (AT, "raw"): "FGMix at φ′",
    (ALONE, "raw"): "φ′ without mixing",
    (ALONE, "swa"): "(φ′ without mixing + SWA)",
}
ON_FEATURES: list[tuple[Arm, Arm]] = [  # the first three are primary
    ((ALONE, "raw"), (ERM, "raw")),
    ((AT, "raw"), (ALONE, "raw")),
    ((ALONE, "raw"), (ERM, "swa")),
    ((ALONE, "swa"), (ERM, "swa")),
    ((AT, "raw"), (ERM, "raw")),
    ((FGMIX, "raw"), (ERM, "raw")),
]
ON_DIGITS: list[tuple[Arm, Arm]] = [((ALONE, "raw"), (ERM, "raw")), ((AT, "raw"), (ERM, "raw"))]


def describe(records: Sequence[RunRecord]) -> Iterator[str]:
    """Lines of the differences on both datasets, in percentage points."""
    yield "| difference | these test domains | new domain | p (Holm) |"
    yield "| --- | ---: | ---: | ---: |"
    scores = score_features([each for each in records if Path(each.spec.dataset).stem == FEATURES])
    found = [MeanDifference(group_domains(paired_differences(scores[x], scores[y]))) for x, y in ON_FEATURES]
    corrected = [*holm([compute_p_value(each) for each in found[:3]]), None, None, None]
    for pair, difference, p in zip(ON_FEATURES, found, corrected):
        yield _write_row("PACS features", pair, difference, p)
    digits = score_digits([each for each in records if each.spec.dataset == DIGITS])
    for x, y in ON_DIGITS:
        yield _write_row("rotated digits", (x, y), MeanDifference({DIGITS: digits[x] - digits[y]}), None)


def score_features(records: Sequence[RunRecord]) -> dict[Arm, dict[Pair, float]]:
    """Return the mean accuracy of the last five evaluations by trial and test domain, of every arm and model."""
    found = accuracies_by_row(select(records, "last_evaluations"), None)
    return {(row.key, row.model): accuracies for row, accuracies in found.items()}


def score_digits(records: Sequence[RunRecord]) -> dict[Arm, np.ndarray]:
    """Return the mean accuracy of the last five evaluations and the angles outside of the sources, by seed."""
    arms: dict[Arm, dict[int, float]] = {}
    for record in records:
        last = record.evaluations[-LAST:]
        accuracy = 100 * fmean(each.accuracy["raw"][angle]["train"] for each in last for angle in OUTSIDE)
        settings = record.spec.settings
        arm = ERM if record.spec.algorithm == ERM else AT if settings["n"] else ALONE
        arms.setdefault((arm, "raw"), {})[record.spec.trial_seed] = accuracy
    return {arm: np.array([by_seed[seed] for seed in range(SEEDS)]) for arm, by_seed in arms.items()}


def compute_p_value(difference: MeanDifference) -> float:
    """Compute the two-sided p-value of no difference on these test domains: that of the t interval."""
    return float(2 * t.sf(abs(difference.mean) / difference.error, difference.freedom))


def train_digits(out: Path) -> None:
    """Train the arms of the study on rotated digits; an interrupted run resumes."""
    example = runpy.run_path(str(ROOT / "examples" / "rotated_digits.py"))
    example["METHODS"] |= {
        "at φ′": ("fgmix", {"flat_base": True}),
        "φ′ without mixing": ("fgmix", {"flat_base": True, "n": 0}),
    }
    for method in ("ERM", "at φ′", "φ′ without mixing"):
        for seed in range(SEEDS):
            example["accuracies"](method, seed, STEPS, out)


def _write_row(data: str, pair: tuple[Arm, Arm], difference: MeanDifference, p: float | None) -> str:
    x, y = (NAMES[arm] for arm in pair)
    low, high = difference.interval() or (np.nan, np.nan)
    new = difference.interval_for_new()
    cells = [f"{difference.mean:+.2f} [{low:+.2f}, {high:+.2f}]"]
    cells += ["[{:+.2f}, {:+.2f}]".format(*new) if new else "", "" if p is None else p_text(p)]
    return f"| {data}: {x} − {y} | {' | '.join(cells)} |"


if __name__ == "__main__":
    if sys.argv[1] == "run":
        train_digits(Path(sys.argv[2]))
    else:
        print("\n".join(describe(unpack(Path(sys.argv[1])))))
