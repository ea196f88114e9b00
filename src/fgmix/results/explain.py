"""The runs behind a number, and the command that repeats each: `fgmix report --explain`. No torch."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from fgmix.errors import unknown
from fgmix.escape import escape_markdown
from fgmix.records.files import read_json
from fgmix.records.schema import RunRecord, command
from fgmix.records.store import RunFolder
from fgmix.results.differences import HIGHER, LOWER, MARKS
from fgmix.results.domainbed import collect_hparams, is_from_domainbed
from fgmix.results.rounding import accuracy_text
from fgmix.results.runs import Runs, write_value
from fgmix.results.selection import Cell, Missing, Rule, Selected, select

_PRINTED = re.compile(f" ({'|'.join([*MARKS.values(), HIGHER, LOWER])})$")  # the mark after a label in a table
_PLUGIN = re.compile(r"\w+\.py\b")  # in the code of a run, by its file's name


def explain_number(
    runs: Runs, dataset: str, algorithm: str, domain: str, *, rule: Rule = "training_domain"
) -> list[str]:
    """List the runs behind a number: those selected in each trial, the others, and commands to repeat them.

    `algorithm` is the row by its key (all models of its runs) or by its label as printed (one model).
    """
    lines: list[str] = []
    known: set[str] = set()
    for apart, records in runs.groups():
        selection = select(records, rule, runs.test_domains)
        for cell, outcome in selection.cells.items():
            label = selection.label(cell.row)
            known.add(" ".join((cell.dataset, cell.row.key, cell.test_domain)))
            names = (cell.row.key, label, escape_markdown(label))
            is_row = algorithm in names or _PRINTED.sub("", algorithm) in names
            if is_row and (cell.dataset, cell.test_domain) == (dataset, domain):
                lines += _cell_lines(label, apart, cell, outcome)
    if not lines:
        raise unknown("cell", f"{dataset} {algorithm} {domain}", known)
    return lines


def _cell_lines(label: str, apart: str, cell: Cell, outcome: Selected | Missing) -> list[str]:
    parts = (label, apart, cell.dataset, cell.test_domain, f"trial {cell.trial_seed}")
    head = ", ".join(part for part in parts if part)
    if isinstance(outcome, Missing):
        return [f"{head}: no number ({outcome.reason})", ""]
    accuracy, validation = (accuracy_text(100 * value) for value in (outcome.accuracy, outcome.validation))
    samples = 1 + len(outcome.runners_up)
    best = f", the best of {samples} hyper-parameter samples" if samples > 1 else ""
    return [
        f"{head}: accuracy {accuracy} % (validation {validation} % at step {outcome.step}{best})",
        *_run_lines("reported", outcome.record),
        *(line for record in outcome.validated_by for line in _run_lines("validated by", record)),
        *(line for other in outcome.runners_up for line in _run_lines("not selected", other.record)),
        "",
    ]


def _run_lines(role: str, record: RunRecord) -> list[str]:
    code = f" (code {record.code})" if record.code else ""
    maker = f"fgmix {record.fgmix_version}{code}, data {record.data_fingerprint}, {_environment(record.folder)}"
    return [
        f"  {role}: {record.folder or 'a run that was not read from a folder'}",
        f"    hyper-parameter sample {record.spec.hparams_seed}{'' if is_from_domainbed(record) else f', {maker}'}",
        f"    {describe_origin(record)}",
    ]


def describe_origin(record: RunRecord) -> str:
    """Write the command that repeats a run; for a run of DomainBed, which this package cannot repeat, its settings.

    DomainBed has its own names of hyper-parameters; they are mapped to ours in the algorithms' files, which need torch.
    """
    if is_from_domainbed(record):
        hparams = ", ".join(f"{name}={write_value(value)}" for name, value in collect_hparams(record.spec).items())
        return f"run by DomainBed with {hparams}"
    plugins = "".join(f" --plugin {file}" for file in dict.fromkeys(_PLUGIN.findall(record.code)))
    if record.folder:
        return command(record.spec, str(record.folder.parent)) + plugins
    return command(msgspec.structs.replace(record.spec, data_root=""), "runs") + plugins  # packed: of another machine


def _environment(folder: Path | None) -> str:
    file = RunFolder(folder).spec if folder else None
    if file is None or not file.exists():
        return "environment not recorded"
    environment = read_json(file).get("environment")
    if not isinstance(environment, dict):
        return "environment not recorded"
    return ", ".join(f"{name} {value}" for name, value in environment.items() if value is not None)
