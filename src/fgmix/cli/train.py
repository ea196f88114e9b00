"""fgmix train: train one run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.options import Device, Quiet, Set, Targets, TestDomains, flags, settings_of
from fgmix.records.metrics import NAMES, unbalanced
from fgmix.records.schema import RunRecord, RunSpec


@flags(RunSpec, "options")
def train(
    options: dict[str, Any],
    test_domain: TestDomains,
    out: Annotated[Path, typer.Option(help="folder in which the run's folder is created")],
    set_: Set = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the resolved run as JSON and train nothing")
    ] = False,
    device: Device = "auto",
    quiet: Quiet = False,
    log: Targets = None,
) -> None:
    """Train one run; rerun the same command to resume it, or to read its record once it is finished.

    Example: fgmix train --dataset digits --algorithm fgmix --test-domain photo --out runs
    """
    from fgmix.logs import Log, check
    from fgmix.training.loop import train as train_run
    from fgmix.training.prepare import rehearse
    from fgmix.training.resolve import notes_of

    settings = settings_of(options["algorithm"], set_)
    spec = RunSpec(**options, test_domains=tuple(test_domain), settings=settings)
    if dry_run:
        resolved = rehearse(spec, progress=not quiet)
        for note in notes_of(spec, resolved):
            print(f"note: {note}", file=sys.stderr)
        print(json.dumps({"name": resolved.name, **resolved.as_dict()}, indent=1, ensure_ascii=False))
        return
    with Log(check(log or []), out) as follow:
        record = train_run(spec, out, device=device, progress=not quiet, on_evaluation=follow)
        follow.complete(record)
    print("\n".join(summary(record)))


def summary(record: RunRecord) -> list[str]:
    """Summary of a finished run: scores of the selected models, and its folder."""
    if record.status == "diverged":
        return [f"The loss was not finite at step {record.diverged_at}: the run diverged.", f"Run: {record.folder}"]
    lines = []
    for model in record.models:
        best = record.selected(model)
        validation = 100 * best.validation(record.sources, model)
        lines.append(f"{model}: best validation {NAMES[record.spec.metric]} {validation:.1f} % at step {best.step}")
        for name, parts in best.accuracy[model].items():
            role = "source" if name in record.sources else "test"
            scores = ", ".join(f"{part} {100 * value:.1f} %" for part, value in parts.items())
            lines.append(f"  {name} ({role}): {scores}")
    longer = ["Still improving at the last step: raise --steps."] if record.still_improving else []
    return [*lines, *_unseen(record), *longer, f"Run: {record.folder}"]


def _unseen(record: RunRecord) -> list[str]:
    """All metrics of the run's final model (averaged if there is one) on the test domains."""
    from fgmix.results.unseen import confusion_table, metrics_table, pooled_confusion, recall_table

    model = record.models[-1]
    found = record.metrics_of(model)
    if not found:
        return []
    confusion = confusion_table(record.classes, pooled_confusion(found))
    tables = [metrics_table(found), recall_table(record.classes, found), *([confusion] if confusion else [])]
    rows = [sum(row) for row in pooled_confusion(found)]
    suggestion = "The classes are unbalanced, which accuracy hides: consider --metric balanced_accuracy."
    advised = rows and unbalanced(rows) and record.spec.metric == "accuracy"
    return [f"{model} on the test domains (the part that tables report):", *tables, *([suggestion] if advised else [])]
