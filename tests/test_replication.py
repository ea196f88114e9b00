"""The tables of docs/replication.md come from records in the repository, and its verdicts from their intervals."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np

from fgmix.records.schema import RunRecord
from fgmix.records.store import unpack
from fgmix.results.formats import markdown
from fgmix.results.selection import select
from fgmix.results.statistics import accuracies_by_row, bootstrap_interval
from fgmix.results.tables import dataset_table

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "replication.md").read_text()
RECORDS = ROOT / "docs" / "records"
ANGLES = ("10°", "30°", "50°", "60°", "70°", "80°")
DIGITS = {  # method of examples/rotated_digits.py → algorithm and what is not its default
    "A": ("fgmix_a", {"lam": 1.0}),
    "A (λ = 3)": ("fgmix_a", {"lam": 3.0}),
    "FGMix": ("fgmix", {"scale": "raw", "gamma": None, "eta2": 1e-3}),
    "FGMix (scale = rms)": ("fgmix", {"scale": "rms", "gamma": None}),
    "FGMix (γ = 10)": ("fgmix", {"scale": "raw", "gamma": 10.0}),
    "FGMix (η₂ = 0.01)": ("fgmix", {"eta2": 1e-2}),
}
PAIRS = [  # claim, then its two methods
    ("FGMix − ERM", "fgmix", "erm"),
    ("FGMix − A", "fgmix", "fgmix_a"),
    ("B − A", "fgmix_b", "fgmix_a"),
    ("C − B", "fgmix_c", "fgmix_b"),
    ("D − C", "fgmix_d", "fgmix_c"),
    ("E − D", "fgmix_e", "fgmix_d"),
    ("FGMix − E", "fgmix", "fgmix_e"),
    ("FGMix − F", "fgmix", "fgmix_f"),
]


def test_the_table_of_rotated_digits() -> None:
    records = unpack(RECORDS / "rotated-digits.records.xz")
    erm = _by_seed(records, "erm", {})
    differences = {name: _by_seed(records, *method) - erm for name, method in DIGITS.items()}
    assert erm.shape == (24, len(ANGLES))
    assert f"| test angle | ERM | {' | '.join(DIGITS)} |" in PAGE
    for i, angle in enumerate(ANGLES):
        cells = " | ".join(_difference(d[:, i]) for d in differences.values())
        assert f"| {angle} | {erm[:, i].mean():.1f} | {cells} |" in PAGE


def test_the_shares_of_rotated_digits() -> None:
    records = unpack(RECORDS / "rotated-digits.records.xz")
    for name, (algorithm, settings) in DIGITS.items():
        runs = [r for r in records if _is(r, algorithm, settings)]
        share = 100 * np.mean([e.metrics["extrapolated"] for r in runs for e in r.evaluations if e.step >= 360])
        entropy = np.mean([e.metrics["entropy"] for r in runs for e in r.evaluations if e.step >= 360])
        assert f"| {name} | {share:.1f} % | {entropy:.3f} |" in PAGE


def _by_seed(records: list[RunRecord], algorithm: str, settings: dict[str, object]) -> np.ndarray:
    """Accuracy in percent (seeds, test angles): mean over the last five evaluations."""
    runs = sorted((r for r in records if _is(r, algorithm, settings)), key=lambda r: r.spec.trial_seed)
    accuracies = [[[e.accuracy["raw"][a]["train"] for a in ANGLES] for e in r.evaluations[-5:]] for r in runs]
    return 100 * np.array(accuracies).mean(axis=1)


def _is(record: RunRecord, algorithm: str, settings: dict[str, object]) -> bool:
    return record.spec.algorithm == algorithm and settings.items() <= dict(record.spec.settings).items()


def _difference(d: np.ndarray) -> str:
    low, high = bootstrap_interval(d)
    return f"{d.mean():+.2f} [{low:+.2f}, {high:+.2f}]"


def test_the_tables_of_frozen_features() -> None:
    selection = select(unpack(RECORDS / "pacs-features.records.xz"), "training_domain")
    (dataset,) = selection.domains
    unmarked = PAGE.replace(" ≈ |", " |")
    for line in markdown(dataset_table(selection, dataset)).splitlines()[2:51]:
        assert line in unmarked
    scores = {method.algorithm: values for method, values in accuracies_by_row(selection, dataset).items()}
    for claim, better, worse in PAIRS:
        pairs = sorted(scores[better].keys() & scores[worse].keys())
        d = np.array([scores[better][pair] - scores[worse][pair] for pair in pairs])
        assert len(d) == 80
        assert f"| {claim} | {_difference(d)} |" in PAGE


def test_the_tables_of_pacs() -> None:
    rows = [line for line in _study() if line.startswith("| ")]
    assert len(rows) > 150
    assert [row for row in rows if row not in PAGE] == []


def test_the_tables_of_the_figures_of_pacs() -> None:
    rows = [line for line in _figures() if line.startswith("| ")]
    assert len(rows) > 20
    assert [row for row in rows if row not in PAGE] == []


def test_the_tables_of_lambda_and_alpha() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "feature_grid.py"))
    records = unpack(RECORDS / "pacs-features-grid.records.xz")
    assert len(records) == 16 * 4 * len({record.spec.trial_seed for record in records})
    rows = [line for line in script["tables"](records) if line.startswith("| ")]
    assert len(rows) == 12
    assert [row for row in rows if row not in PAGE] == []


def test_the_verdicts_on_pacs_follow_their_intervals() -> None:
    """Supported: the interval of a difference or correlation lies above 0; not supported: below it."""
    printed = "\n".join([*_study(), *_figures()])
    _, _, table = PAGE.partition("| claim | last five | selected | verdict |\n| --- | ---: | ---: | --- |\n")
    rows = [line.strip("| ").split("|") for line in table.split("\n\n")[0].splitlines()]
    decided = {}
    for claim, *cells, verdict in rows:
        found = [re.search(r"[+-]?[\d.]+ \[([+-]?[\d.]+), ([+-]?[\d.]+)\]", cell) for cell in cells]
        assert all(each[0] in printed for each in found if each), claim
        if found[0] and found[0][0].startswith(("+", "-")):  # ratios have no sign
            low, high = float(found[0][1]), float(found[0][2])
            decided[claim] = "supported" if low > 0 else "not supported" if high < 0 else "undecided"
            assert verdict.strip().startswith(decided[claim]), claim
    assert len(decided) == 12


def _study() -> list[str]:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "pacs_study.py"))
    records = script["complete"](unpack(RECORDS / "pacs.records.xz"))
    assert len(records) == 44 * len({record.spec.trial_seed for record in records}) > 0
    return list(script["tables"](records))


def _figures() -> list[str]:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "pacs_figures.py"))
    return list(script["tables"](RECORDS / "pacs-figures"))
