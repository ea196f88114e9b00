"""The main job on the embedded data: every domain of `digits` held out in turn, ERM, FGMix-A and FGMix compared."""

from __future__ import annotations

from pathlib import Path

from fgmix.benchmark.formats import markdown
from fgmix.benchmark.selection import select
from fgmix.benchmark.tables import dataset_table
from fgmix.data import load
from fgmix.files import make_folder, write_atomically
from fgmix.records import RunRecord
from fgmix.spec import RunSpec
from fgmix.training import fit

ALGORITHMS = ("erm", "fgmix_a", "fgmix")


def run_demo(out: Path, *, steps: int | None = None) -> Path:
    """Run (or go on with) the demo under `out`, print its table, and return the path of the report.

    Args:
        out: folder for the runs and the report.
        steps: optimisation steps of each run; the dataset's default if None.
    """
    make_folder(out)
    dataset = load("digits")
    records = [
        fit(
            RunSpec(dataset="digits", algorithm=algorithm, test_domains=(domain,), steps=steps),
            out / "runs",
            dataset=dataset,
        )
        for domain in dataset.domain_names
        for algorithm in ALGORITHMS
    ]
    text = report(records)
    path = out / "report.md"
    write_atomically(path, lambda file: file.write(text.encode()))
    print(text)
    print(f"Report: {path}")
    return path


def report(records: list[RunRecord]) -> str:
    """The report as Markdown: the table, and what was run."""
    table = dataset_table(select(records), "digits", algorithms=ALGORITHMS)
    spec = records[0].spec
    return "\n".join(
        [
            "# Demo: `digits`, every domain held out in turn",
            "",
            markdown(table).rstrip(),
            "",
            f"One trial of {spec.steps} steps each (seed {spec.seed}, split {spec.trial_seed}, {spec.backbone}): "
            "differences of a few points are noise. Rows with SWA are the averaged weights of the same runs.",
            "",
            "Made by `fgmix demo`; the runs are in `runs/`.",
            "",
        ]
    )
