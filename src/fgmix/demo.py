"""`fgmix demo`: ERM, FGMix-A and FGMix compared on the embedded `digits`, with every domain held out in turn."""

from __future__ import annotations

import os
from pathlib import Path

from fgmix.errors import MachineError, UserError
from fgmix.records.files import write_bytes
from fgmix.records.schema import RunRecord
from fgmix.records.store import read_record
from fgmix.report.page import write_report
from fgmix.results.formats import markdown
from fgmix.results.read import read_runs
from fgmix.results.selection import select
from fgmix.results.tables import dataset_table
from fgmix.sweeps.design import Sweep

ALGORITHMS = ("erm", "fgmix_a", "fgmix")
SHOWN = "photo"  # the held-out domain that figures are drawn for: the hardest
FAST = {"steps": 20, "averaging_start": 15}  # all runs together: a few minutes on two cores
TRY_OUT = "A quick test with too few steps to compare methods; run `fgmix demo` for a comparison."


def run_demo(out: Path, *, steps: int | None = None, fast: bool = False) -> Path:
    """Run (or resume) the demo under `out`, print its table, and return the path of the HTML report.

    `steps` are those of the dataset by default; `fast` takes so few that the whole demo takes a few minutes.
    """
    if fast and steps is not None:
        raise UserError("Expected --fast or --steps. Found both. Drop one.")
    sweep = Sweep(
        datasets=("digits",),
        algorithms=ALGORITHMS,
        trials=1,
        hparams=1,
        space="paper",
        common={"keep": "all", **(FAST if fast else {} if steps is None else {"steps": steps})},
    )
    # One core per run: for so small a network, two parallel runs are faster than two cores for each.
    result = sweep.run(out / "runs", workers=os.cpu_count() or 1)
    if result.waiting:
        raise MachineError(result.stopped_by)
    if result.failed:
        failed = len(result.failed)
        raise UserError(
            f"Expected 12 finished runs. {failed} failed. `fgmix status {out / 'runs'}` prints the reasons."
        )
    records = [read_record(out / "runs" / name) for name in result.done]
    options = " --fast" if fast else "" if steps is None else f" --steps {steps}"
    text = write_table(records, f"fgmix demo{options}", TRY_OUT if fast else "")
    write_bytes(out / "report.md", text.encode())
    print(text)
    draw_figures(records, out / "figures")
    title = "Demo: digits, every domain held out in turn" + " (a quick test, not a comparison)" * fast
    path = write_report(read_runs(out), title=title)
    print(f"Report: {path} (open it in a browser; the table alone is in {out / 'report.md'})")
    return path


def draw_figures(records: list[RunRecord], out: Path) -> None:
    """Draw latent codes and flatness of the runs that hold out `SHOWN`, as `fgmix plot` draws them."""
    from fgmix.figures.compute.plot import plot_models

    runs = {r.spec.algorithm: r for r in records if r.spec.test_domains == (SHOWN,)}
    every = [runs[name] for name in ALGORITHMS]
    for kind, shown in (("tsne", every[-1:]), ("flatness", every)):
        plot_models(kind, shown, device="cpu").save(out / f"{kind}-{SHOWN}")


def write_table(records: list[RunRecord], command: str, warning: str = "") -> str:
    """Write the report in Markdown: the warning, if any, the table, what was run, and the command."""
    table = dataset_table(select(records), "digits")
    spec = records[0].spec
    return "\n".join(
        [
            "# Demo: `digits`, every domain held out in turn",
            "",
            *([warning, ""] if warning else []),
            markdown(table).rstrip(),
            "",
            f"One trial of {spec.steps} steps each (split {spec.trial_seed}, {spec.backbone}): differences of a few "
            "points are noise. Rows with SWA are the averaged weights of the same runs.",
            "",
            f"Made by `{command}`; the runs are in `runs/`.",
            "",
        ]
    )
