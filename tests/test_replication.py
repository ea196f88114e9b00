"""The tables of the replication come from records in the repository, and its verdicts from their intervals."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np

from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord
from fgmix.records.store import unpack
from fgmix.results.differences import mark_rows
from fgmix.results.formats import markdown
from fgmix.results.intervals import MeanDifference, detectable_difference
from fgmix.results.selection import select
from fgmix.results.statistics import accuracies_by_row, compare, group_domains, paired_differences
from fgmix.results.tables import dataset_table

ROOT = Path(__file__).resolve().parent.parent
SHORT = (ROOT / "docs" / "replication.md").read_text()
PAGE = "\n".join([SHORT, *(page.read_text() for page in sorted((ROOT / "docs" / "replication").glob("*.md")))])
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
        cells = " | ".join(_difference(MeanDifference({angle: d[:, i]})) for d in differences.values())
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


def _difference(d: MeanDifference) -> str:
    low, high = d.interval() or (np.nan, np.nan)
    return f"{d.mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def test_the_tables_of_frozen_features() -> None:
    selection = select(unpack(RECORDS / "pacs-features.records.xz"), "training_domain")
    (dataset,) = selection.domains
    comparisons = compare(selection, dataset=dataset)
    for line in markdown(mark_rows(dataset_table(selection, dataset), comparisons)).splitlines()[2:51]:
        assert line in PAGE
    scores = {method.algorithm: values for method, values in accuracies_by_row(selection, dataset).items()}
    for claim, better, worse in PAIRS:
        d = paired_differences(scores[better], scores[worse])
        mean = MeanDifference(group_domains(d))
        low, high = mean.interval_for_new() or (np.nan, np.nan)
        detectable = detectable_difference(float(np.std([*d.values()], ddof=1)), 80)
        assert len(d) == 80
        assert f"| {claim} | {_difference(mean)} | [{low:+.2f}, {high:+.2f}] | {detectable:.2f} |" in PAGE


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


def test_the_tables_of_typefaces() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "typefaces_study.py"))
    records = unpack(RECORDS / "typefaces.records.xz")
    assert len(records) == 7 * 30 * 3
    rows = [*script["tables"](records), *script["describe_mixing"](records)]
    assert len(rows) == 2 + 14 + 2 + 3
    for row in rows:
        assert row in PAGE


def test_the_tables_of_pacs_at_224_pixels() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "pacs224_study.py"))
    records = unpack(RECORDS / "pacs224.records.xz")
    assert len(script["complete_trials"](records)) == len(records) == 8 * 4 * 9
    rows = [line for line in script["describe"](records) if line.startswith("| ")]
    assert len(rows) == 3 * 4 + 10 + 6 + 10 + 8
    assert [row for row in rows if row not in PAGE] == []


def test_the_table_of_flat_base() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "flat_base_study.py"))
    records = unpack(RECORDS / "flat-base.records.xz")
    assert len(records) == 4 * 4 * 20 + 3 * 24
    rows = list(script["describe"](records))
    assert len(rows) == 2 + 8
    assert [row for row in rows if row not in PAGE] == []


def test_gains_on_typefaces_are_counted() -> None:
    scores = accuracies_by_row(select(unpack(RECORDS / "typefaces.records.xz"), "last_evaluations"), None)
    above = {}
    for name in ("selfreg", "sd", "coral"):
        means = group_domains(paired_differences(scores[Row(name)], scores[Row("erm")]))
        above[name] = sum(np.mean(each) > 0 for each in means.values())
    assert above == {"selfreg": 29, "sd": 28, "coral": 28}


def test_the_verdicts_on_pacs_follow_their_intervals() -> None:
    script, records = _load_study()
    d = script["claimed_differences"](script["select"](records, script["RULES"][0]))
    printed = "\n".join([*script["tables"](records), *_figures()])
    _, _, table = PAGE.partition("| claim | last five | detectable | verdict |\n| --- | ---: | ---: | --- |\n")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.split("\n\n")[0].splitlines()]
    by_interval = {script["_written"](each): name for name, each in d.items()}
    judged = set()
    for claim, found, detectable, verdict in rows:
        if name := by_interval.get(found):
            assert verdict.startswith(script["judge"](name, d[name])), claim
            assert detectable == script["_detectable"](d[name]), claim
            judged.add(name)
        elif "[" in found:
            assert found in printed, claim
    assert judged == set(d) - {"FGMix − A (λ = 3)"}
    assert by_interval[rows[0][1]] == script["STRONGEST"]
    strongest = np.array([*d[script["STRONGEST"]].values()])
    assert "[{:+.2f}, {:+.2f}]".format(*_student(strongest)).replace("-", "−") in PAGE  # pairs taken as independent
    mean = MeanDifference(group_domains(d[script["STRONGEST"]]))
    assert f"p = {mean.test_equivalence(0.5):.3f}, and" in rows[0][3]


def test_summaries_have_the_numbers_of_the_records() -> None:
    """README and the short page: the main differences with their intervals."""
    script, records = _load_study()
    d = script["claimed_differences"](script["select"](records, script["RULES"][0]))
    for text in ((ROOT / "README.md").read_text(), SHORT):
        plain = " ".join(text.replace("−", "-").split())
        for name in (script["STRONGEST"], "FGMix − ERM", "FGMix − A"):
            interval = script["_written"](d[name]).split(" ", 1)[1]
            assert interval in plain, name
        assert script["_new"](d[script["STRONGEST"]]) in plain


def _student(d: np.ndarray) -> tuple[float, float]:
    return MeanDifference({"": d}).interval() or (np.nan, np.nan)


def _study() -> list[str]:
    script, records = _load_study()
    return list(script["tables"](records))


def _load_study() -> tuple[dict[str, Any], list[RunRecord]]:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "pacs_study.py"))
    records = script["complete"](unpack(RECORDS / "pacs.records.xz"))
    assert len(records) == 44 * len({record.spec.trial_seed for record in records}) > 0
    return script, records


def _figures() -> list[str]:
    script = runpy.run_path(str(ROOT / "benchmarks" / "studies" / "pacs_figures.py"))
    return list(script["tables"](RECORDS / "pacs-figures"))
