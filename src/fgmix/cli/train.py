"""fgmix train: train one run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fgmix.cli.help import REQUIRED
from fgmix.cli.options import (
    EVERYDAY,
    LOG,
    AcceptCode,
    Device,
    Flags,
    Quiet,
    declare,
    flags,
    parse_settings,
    require,
)
from fgmix.records.files import check_path
from fgmix.records.schema import RunRecord, RunSpec, to_plain
from fgmix.terminal import print_lines, print_markdown, print_notes, print_phase

DIVERGED = 1  # exit code of a run whose loss was not finite
RUN_FILE = "run.toml, or the folder or spec.json of a run to repeat; flags override it"


@dataclass(frozen=True, kw_only=True)
class Rest:
    """What a file says about a run besides its options."""

    test_domains: tuple[str, ...] = declare(
        (), help="domain to hold out; repeat for several", group=REQUIRED, flag="--test-domain", metavar="NAME"
    )
    out: str = declare("", help="where the run gets a folder", group=REQUIRED)
    settings: Mapping[str, Any] = declare(help="setting of the method; may be repeated", group="Method", flag="--set")


@flags(RUN_FILE, options=Flags(RunSpec, everyday=EVERYDAY, required=("dataset", "algorithm")), rest=Flags(Rest))
def train(
    options: dict[str, Any],
    rest: dict[str, Any],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the resolved run as JSON and train nothing")
    ] = False,
    device: Device = "auto",
    quiet: Quiet = False,
    log: Annotated[list[str] | None, typer.Option("--log", help=LOG)] = None,
    accept_code: AcceptCode = False,
) -> None:
    """Train one run.

    Rerun to resume it, or to read its record once it is finished. Exits with 1 if it diverged.

    FILE has a line `name = value` for each option (`batch_size = 32`, `test_domains = ["photo"]`), and the method's
    settings below `[settings]`. Paths in it are relative to the current folder.

    Example: fgmix train --dataset digits --algorithm fgmix --test-domain photo --out runs
    """
    require(
        dataset=options.get("dataset"),
        algorithm=options.get("algorithm"),
        test_domain=rest["test_domains"],
        out=rest.get("out"),
    )
    print_phase("loading torch and the data", quiet=quiet)
    from fgmix.results.other_metrics import summarize_run
    from fgmix.training.loop import train as train_run

    settings = parse_settings(options["algorithm"], rest["settings"]) if rest["settings"] else {}
    spec = RunSpec(**options, test_domains=rest["test_domains"], settings=settings)
    out = check_path("out", rest["out"])
    if dry_run:
        from fgmix.training.prepare import rehearse
        from fgmix.training.resolve import list_notes

        resolved = rehearse(spec, progress=not quiet)
        print_notes(*list_notes(spec, resolved))
        print(json.dumps({"name": resolved.name, **to_plain(resolved)}, indent=1, ensure_ascii=False))
        return
    train_one: Callable[..., RunRecord] = train_run
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun has started this process
        from fgmix.training.distributed import find_role, follow, lead

        if (role := find_role()) == "follower":
            follow(spec, device=device)
            return
        train_one = lead if role == "leader" else train_one
    how: dict[str, Any] = {"device": device, "progress": not quiet, "accept_code": accept_code}
    if log:
        from fgmix.logs import Log, check_names

        with Log(check_names(log), out) as logger:
            record = train_one(spec, out, on_evaluation=logger, **how)
            logger.complete(record)
    else:
        record = train_one(spec, out, **how)
    scores, tables, folder = summarize_run(record)
    print_lines(scores)
    if tables:
        print_markdown(tables)
    print_lines([folder])
    if record.status == "diverged":
        raise typer.Exit(DIVERGED)
