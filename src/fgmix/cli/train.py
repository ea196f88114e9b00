"""fgmix train: train one run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fgmix.cli.files import RunFile, read_run, take_names, take_path, take_table
from fgmix.cli.help import REQUIRED
from fgmix.cli.options import (
    EVERYDAY,
    Device,
    Flags,
    Quiet,
    Set,
    Targets,
    flags,
    option_names,
    override,
    parse_settings,
)
from fgmix.errors import UserError
from fgmix.records.metrics import NAMES, unbalanced
from fgmix.records.schema import RunRecord, RunSpec, flag_of, to_plain


@flags(options=Flags(RunSpec, everyday=EVERYDAY, required=("dataset", "algorithm")))
def train(
    context: typer.Context,
    options: dict[str, Any],
    file: RunFile = None,
    test_domain: Annotated[
        list[str] | None, typer.Option(help="domain to hold out; repeat for several", rich_help_panel=REQUIRED)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="where the run gets a folder", rich_help_panel=REQUIRED)] = None,
    set_: Set = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the resolved run as JSON and train nothing")
    ] = False,
    device: Device = "auto",
    quiet: Quiet = False,
    log: Targets = None,
) -> None:
    """Train one run.

    Rerun the same command to resume it, or to read its record once it is finished.

    FILE has a line `name = value` for each option (`batch_size = 32`, `test_domains = ["photo"]`), and the method's
    settings below `[settings]`. Paths in it are relative to the current folder.

    Example: fgmix train --dataset digits --algorithm fgmix --test-domain photo --out runs
    """
    from fgmix.logs import Log, check_names
    from fgmix.training.loop import train as train_run
    from fgmix.training.prepare import rehearse
    from fgmix.training.resolve import notes_of

    spec, out = describe_run(context, file, options, test_domain, set_, out)
    if dry_run:
        resolved = rehearse(spec, progress=not quiet)
        for note in notes_of(spec, resolved):
            print(f"note: {note}", file=sys.stderr)
        print(json.dumps({"name": resolved.name, **to_plain(resolved)}, indent=1, ensure_ascii=False))
        return
    with Log(check_names(log or []), out) as follow:
        record = train_run(spec, out, device=device, progress=not quiet, on_evaluation=follow)
        follow.complete(record)
    print("\n".join(summarize(record)))


def describe_run(
    context: typer.Context,
    file: Path | None,
    options: dict[str, Any],
    test_domains: list[str] | None,
    texts: list[str] | None,
    out: Path | None,
) -> tuple[RunSpec, Path]:
    """Merge a file with the flags; return the run and the folder to put it in.

    Args:
        context: of the command.
        file: a run file, or None.
        options: given as flags.
        test_domains: given as `--test-domain`.
        texts: of `--set name=value`.
        out: given as `--out`.
    """
    values = read_run(file, {*option_names(RunSpec), "test_domains", "settings", "out"})
    settings, named = take_table(values, "settings"), take_names(values, "test_domains")
    folder = take_path(values, "out")
    folder = out or folder
    values = override(context, values, options)
    required = {name: values.get(name) for name in ("dataset", "algorithm")}
    for name, value in {**required, "test_domain": test_domains or named, "out": folder}.items():
        if not value:
            raise UserError(f"Missing option '{flag_of(name)}'. Pass it, or name a file that has it.")
    settings |= parse_settings(values["algorithm"], texts)
    return RunSpec(**values, test_domains=tuple(test_domains or named), settings=settings), Path(folder or "")


def summarize(record: RunRecord) -> list[str]:
    """Summarize a finished run: scores of the selected models, and its folder."""
    if record.status == "diverged":
        return [f"The loss was not finite at step {record.diverged_at}: the run diverged.", f"Run: {record.folder}"]
    lines = []
    for model in record.models:
        best = record.selected(model)
        validation = 100 * best.validation(record.sources, model)
        lines.append(f"{model}: best validation {NAMES[record.spec.metric]} {validation:.1f} % at step {best.step}")
        for name, parts in best.accuracy[model].items():
            role = "source" if name in record.sources else "test"
            scores = ", ".join(f"{part} {100 * value:.1f} %" for part, value in sorted(parts.items()))
            lines.append(f"  {name} ({role}): {scores}")
    longer = ["Still improving at the last step: raise --steps."] if record.still_improving else []
    return [*lines, *_describe_unseen(record), *longer, f"Run: {record.folder}"]


def _describe_unseen(record: RunRecord) -> list[str]:
    """List all metrics of the run's final model (averaged if there is one) on the test domains."""
    from fgmix.results.unseen import confusion_table, metrics_table, pooled_confusion, recall_table

    model = record.models[-1]
    metrics = record.unseen.get(model, {})
    if not metrics:
        return []
    confusion = confusion_table(record.classes, pooled_confusion(metrics))
    tables = [metrics_table(metrics), recall_table(record.classes, metrics), *([confusion] if confusion else [])]
    rows = [sum(row) for row in pooled_confusion(metrics)]
    suggestion = "The classes are unbalanced, which accuracy hides: consider --metric balanced_accuracy."
    advised = rows and unbalanced(rows) and record.spec.metric == "accuracy"
    return [f"{model} on the test domains (the part that tables report):", *tables, *([suggestion] if advised else [])]
