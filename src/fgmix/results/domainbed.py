"""DomainBed's sweep folders, read as our records and written from them.

A sweep is a folder of runs; a run is a folder with `results.jsonl`, one line per evaluation, and `done`, written last.
A line has "step", "env{i}_in_acc" and "env{i}_out_acc" of every domain i, the loss and its terms, "hparams", and
"args" with the dataset, the algorithm, the test domains' numbers, and the seeds. "in" is our "train", "out" our
"holdout". DomainBed's report reads the lines of every run, done or not, and so does this module.

Lines that this module wrote have an entry "fgmix" besides: what the row of the run is, which a name such as
"FGMix (γ = 10) + SWA" does not tell for certain, and the names of the domains.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from fgmix.errors import UserError
from fgmix.records.benchmarks import from_domainbed_dataset, known_domains, to_domainbed_dataset
from fgmix.records.evaluations import Evaluation, Evaluations, Model
from fgmix.records.files import make_folder, read_bytes, write_bytes
from fgmix.records.rows import label_arm, label_model, record_row
from fgmix.records.schema import ResolvedSpec, RunRecord, RunSpec, check_record, to_spec
from fgmix.results.runs import Runs
from fgmix.results.selection import find_test_domains

_ACCURACY = re.compile(r"env(\d+)_(in|out)_acc")
_PARTS = {"in": "train", "out": "holdout"}
_NEEDED_ARGS = {"dataset", "algorithm", "test_envs", "hparams_seed", "trial_seed"}
# Keys of a line that are neither accuracies nor metrics of training.
_NOT_METRICS = {"args", "hparams", "step", "epoch", "step_time", "mem_gb", "fgmix"}
_MAKER = "DomainBed"  # in place of fgmix's version, the digest of the data and the backbone in our records
# Used if DomainBed's results do not contain these options, also for killed runs: runs of a method that differ in them
# would not be selected together.
_STEPS, _EVAL_EVERY = 5001, 300


class _Ours(msgspec.Struct, frozen=True):
    """What a line of DomainBed's does not have a place for."""

    run: str  # its name: the models of a run are separate runs in DomainBed's folders
    algorithm: str
    arm: str
    model: Model
    label: str  # of the algorithm
    domains: tuple[str, ...]  # in the order of their numbers
    averaging_start: int = 0  # 0 in folders of earlier versions


def from_domainbed(folder: str | Path) -> Runs:
    """Read a DomainBed sweep, with notes on skipped lines and on runs that are not done.

    Incomplete lines (of a run that was killed while writing) are skipped, unknown keys are ignored.

    `folder` is the --output_dir of the sweep.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"Expected a folder with runs of DomainBed at {folder}. Found none. Check the path.")
    records: dict[tuple[Path | str, ...], RunRecord] = {}
    notes: list[str] = []
    for run in sorted(path.parent for path in folder.glob("*/results.jsonl")):
        try:
            lines = _read_lines(run, notes)
            record = check_record(_to_record(run, lines)) if lines else None
        except UserError as error:
            notes.append(f"{run.name}: skipped. {error}")
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            notes.append(f"{run.name}: skipped; not what DomainBed writes ({type(error).__name__}: {error})")
        else:
            if record:
                ours = lines[0].ours
                key = (run,) if ours is None else (ours.run, ours.arm)
                records[key] = _join_models(records[key], record) if key in records else record
    if not records:
        usable = f"none that can be used ({notes[0].rstrip('.')})" if notes else "none"
        raise UserError(
            f"Expected runs of DomainBed in {folder}, each with a results.jsonl. Found {usable}. "
            "Give the --output_dir of the sweep."
        )
    every = [*records.values()]
    return Runs(every, partial_trials=True, notes=tuple(notes), test_domains=find_test_domains(every))


@dataclass(frozen=True)
class _Line:
    """One evaluation, with the domains by number."""

    step: int
    args: dict[str, Any]
    hparams: dict[str, Any]
    accuracy: dict[int, dict[str, float]]
    metrics: dict[str, float]
    ours: _Ours | None  # of a line that this module wrote


def _read_lines(run: Path, notes: list[str]) -> list[_Line]:
    """Read the complete lines of a run in order of steps, with notes on what is missing."""
    lines, broken = [], 0
    for text in read_bytes(run / "results.jsonl").decode("utf-8", "replace").splitlines():
        try:
            lines.append(_parse_line(json.loads(text)))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            broken += 1  # incomplete, or without what selection needs
    if broken:
        notes.append(f"{run.name}: skipped {broken} unreadable line{'s' if broken > 1 else ''}")
    if not lines:
        notes.append(f"{run.name}: no evaluation")
    elif not (run / "done").exists():
        used = "evaluations are" if len(lines) > 1 else "evaluation is"
        notes.append(f"{run.name}: not done; its {len(lines)} {used} used")
    return sorted(lines, key=lambda line: line.step)


def _parse_line(content: dict[str, Any]) -> _Line:
    accuracy: dict[int, dict[str, float]] = defaultdict(dict)
    metrics = {}
    for key, value in content.items():
        if match := _ACCURACY.fullmatch(key):
            accuracy[int(match[1])][_PARTS[match[2]]] = float(value)
        elif key not in _NOT_METRICS and isinstance(value, int | float):
            metrics[key] = float(value)
    args = content["args"]
    needed = [accuracy[env][part] for env in args["test_envs"] for part in _PARTS.values()]
    needed += [parts["holdout"] for parts in accuracy.values()]
    by_number = dict(sorted(accuracy.items()))
    is_numbered = list(by_number) == list(range(len(by_number)))
    if not (args["test_envs"] and args.keys() >= _NEEDED_ARGS and is_numbered and all(map(math.isfinite, needed))):
        raise ValueError("an incomplete line")
    ours = msgspec.convert(content["fgmix"], _Ours) if "fgmix" in content else None
    return _Line(int(content["step"]), args, dict(content.get("hparams") or {}), by_number, metrics, ours)


def _to_record(run: Path, lines: list[_Line]) -> RunRecord:
    args, hparams, ours = lines[0].args, dict(lines[0].hparams), lines[0].ours
    dataset = from_domainbed_dataset(args["dataset"])
    known, count = known_domains(dataset), len(lines[0].accuracy)
    unnamed = known if len(known) == count else tuple(f"env{i}" for i in range(count))
    names = ours.domains if ours else unnamed
    values = {
        "dataset": dataset,
        "dataset_name": dataset,
        "data": _MAKER,
        "algorithm": ours.algorithm if ours else name_algorithm(args["algorithm"]),
        "arm": ours.arm if ours else "",
        "test_domains": tuple(names[env] for env in args["test_envs"]),
        "batch_size": hparams.pop("batch_size", 32),
        "dropout": float(hparams.pop("resnet_dropout", 0.0)),
        "settings": hparams,  # under DomainBed's names
        "steps": args.get("steps") or _STEPS,
        "eval_every": args.get("checkpoint_freq") or _EVAL_EVERY,
        "holdout_fraction": args.get("holdout_fraction", 0.2),
        "seed": args.get("seed", 0),
        "trial_seed": args["trial_seed"],
        "hparams_seed": args["hparams_seed"],
        "protocol": "domainbed-2020",
        "averaging": "none",
        "averaging_start": ours.averaging_start if ours else 0,
        "backbone": _MAKER,
        "pretrained": True,
        "freeze_bn": True,
        "channels_last": False,
        "input_shape": (),
    }
    model = ours.model if ours else "raw"
    evaluations = [
        {
            "step": line.step,
            "accuracy": {model: {names[env]: parts for env, parts in line.accuracy.items()}},
            "loss": {},
            "metrics": line.metrics,
        }
        for line in lines
    ]
    return RunRecord(
        spec=to_spec(values, ResolvedSpec),
        status="done",
        fgmix_version=_MAKER,
        domains=names,
        # checks that accuracies are shares
        evaluations=Evaluations(msgspec.convert(evaluations, list[Evaluation])),
        label=ours.label if ours else args["algorithm"],
        domainbed_name=None if ours else args["algorithm"],
        folder=run,
    )


def _join_models(first: RunRecord, second: RunRecord) -> RunRecord:
    """Join two models of a run of ours, which DomainBed's folders keep apart: their rows are compared by kind."""
    at_step = {evaluation.step: evaluation for evaluation in first.evaluations}
    for evaluation in second.evaluations:
        known = at_step.get(evaluation.step, evaluation)
        at_step[evaluation.step] = replace(known, accuracy={**known.accuracy, **evaluation.accuracy})
    return replace(first, evaluations=[at_step[step] for step in sorted(at_step)])


def name_algorithm(name: str) -> str:
    """Return our name of an algorithm in DomainBed's files: in lower case, with words joined by underscores.

    >>> name_algorithm("ANDMask"), name_algorithm("L2A-OT + SWA")
    ('andmask', 'l2a_ot + swa')
    """
    return re.sub(r"(?<=\w)[ -](?=\w)", "_", name.lower())


def is_from_domainbed(record: RunRecord) -> bool:
    """Say whether a record was read from a DomainBed sweep."""
    return record.fgmix_version == _MAKER


def collect_hparams(spec: RunSpec) -> dict[str, Any]:
    """Collect the hyper-parameters in DomainBed's sense; settings keep their names."""
    return {**spec.settings, "batch_size": spec.batch_size, "resnet_dropout": spec.dropout}


def to_domainbed(records: Iterable[RunRecord], folder: str | Path, variant: str = "") -> list[Path]:
    """Write records as a DomainBed sweep that its `collect_results` reads; returns the folders of the runs.

    Every arm, and the averaged model of a run, is written as an algorithm of its own, such as "FGMix (γ = 10) + SWA";
    `from_domainbed` reads the rows that were written, by an entry "fgmix" of each line. Hyper-parameters keep our
    names; the report of DomainBed does not read them. A run that diverged has its lines but no `done`, and the
    report reads its last line as the last step. The report lists only the datasets of DomainBed.

    Args:
        records: the runs.
        folder: where to write; created if it does not exist.
        variant: distinguishes these runs from others of the same methods and hyper-parameter samples, such as a point
            of a grid; it becomes part of the arm.
    """
    folder = make_folder(Path(folder), "--to-domainbed")
    return [_write_run(record, model, folder, variant) for record in records for model in record.models]


def _write_run(record: RunRecord, model: Model, folder: Path, variant: str) -> Path:
    spec, known = record.spec, known_domains(record.dataset)
    names = known if set(known) == set(record.domains) else record.domains  # DomainBed's order, if it is known
    row = record_row(record)
    arm = ", ".join(filter(None, (row.arm, row.origin, variant)))
    ours = _Ours(spec.name, spec.algorithm, arm, model, record.label, names, spec.averaging_start)
    args = {
        "dataset": to_domainbed_dataset(record.dataset),
        "algorithm": label_model(label_arm(record.domainbed_name or record.label, arm), model),
        "test_envs": sorted(names.index(name) for name in spec.test_domains),
        "holdout_fraction": spec.holdout_fraction,
        "hparams_seed": spec.hparams_seed,
        "task": "domain_generalization",
        "trial_seed": spec.trial_seed,
        "seed": spec.seed,
        "steps": spec.steps,
    }
    # DomainBed names a run by its arguments; hyper-parameters are added, so that no two of our runs share a folder.
    hparams = collect_hparams(spec)
    digest = hashlib.md5(json.dumps([args, hparams], sort_keys=True).encode()).hexdigest()
    run = make_folder(folder / digest)
    lines = [
        {
            "args": {**args, "output_dir": str(run)},
            "hparams": hparams,
            "fgmix": msgspec.to_builtins(ours),
            "step": evaluation.step,
            **evaluation.metrics,
            **_name_scores(evaluation, model, names),
        }
        for evaluation in record.evaluations
        if evaluation.has(model)
    ]
    text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)
    write_bytes(run / "results.jsonl", text.encode())
    if record.status == "done":
        write_bytes(run / "done", b"done")
    return run


def _name_scores(evaluation: Evaluation, model: Model, names: tuple[str, ...]) -> dict[str, float]:
    theirs = {ours: part for part, ours in _PARTS.items()}
    return {
        f"env{names.index(name)}_{theirs[part]}_acc": value
        for name, parts in evaluation.accuracy[model].items()
        for part, value in parts.items()
    }
