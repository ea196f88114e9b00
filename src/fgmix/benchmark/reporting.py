"""From folders of runs to the text of a report: collect, select, tabulate, compare. No torch."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from fgmix.benchmark.domainbed import from_domainbed as read_domainbed
from fgmix.benchmark.formats import render
from fgmix.benchmark.labels import method_label
from fgmix.benchmark.published import beside
from fgmix.benchmark.selection import Cell, Missing, Rule, Selected, Selection, select
from fgmix.benchmark.statistics import ERM, compare, comparison_table, marked, rank_methods
from fgmix.benchmark.tables import Spread, Table, dataset_table, overall_table
from fgmix.errors import UserError, unknown
from fgmix.files import read_json
from fgmix.records import RunRecord, read_record
from fgmix.spec import RunSpec


def collect(folder: Path, *, from_domainbed: bool = False) -> list[RunRecord]:
    """The finished runs in a folder (or below it), or those of a DomainBed sweep."""
    if from_domainbed:
        return list(read_domainbed(folder).records)
    records = [read_record(path.parent) for path in sorted(folder.rglob("record.json"))]
    if not records:
        raise UserError(f"Expected finished runs in {folder}. Found none. Run `fgmix sweep --out {folder}` first.")
    return records


def report_tables(selection: Selection, *, spread: Spread = "stderr", published: bool = False) -> list[Table]:
    """A table per dataset, the overall one where there are several, and the differences from ERM."""
    comparisons = compare(selection) if ERM in selection.methods() else []
    tables = [dataset_table(selection, name, spread=spread) for name in selection.domains]
    if len(tables) > 1:
        tables.append(overall_table(selection, spread=spread))
    if published:
        tables = [beside(table) for table in tables]  # by label, which a mark changes
    tables = [marked(table, comparisons) if comparisons else table for table in tables]
    return [*tables, comparison_table(comparisons)] if comparisons else tables


def report_text(
    records: Sequence[RunRecord],
    *,
    rule: str = "training_domain",
    format: str = "md",
    spread: str = "stderr",
    published: bool = False,
) -> str:
    """All tables of the records as text."""
    selection = select(records, cast(Rule, rule))
    tables = report_tables(selection, spread=cast(Spread, spread), published=published)
    parts = [render(table, format) for table in tables]
    if format == "md" and (ranking := _ranking_lines(selection)):
        parts.append("\n".join(ranking) + "\n")
    return "\n".join(parts)


def _ranking_lines(selection: Selection) -> list[str]:
    """Average ranks and which of them cannot be told apart; nothing where too little is shared."""
    try:
        ranking = rank_methods(selection)
    except UserError:
        return []
    ranks = ", ".join(f"{method_label(*method)} {rank:.2f}" for method, rank in ranking.ranks.items())
    return [
        "### Ranks",
        "",
        f"Average rank over {ranking.pairs} trials and test domains: {ranks}.",
        "",
        f"Friedman: χ² = {ranking.statistic:.2f}, p = {ranking.p:.3g}. Ranks that differ by less than "
        f"{ranking.critical_difference:.2f} cannot be told apart (Nemenyi, α = 0.05).",
    ]


def explained(
    records: Iterable[RunRecord], dataset: str, algorithm: str, domain: str, *, rule: str = "training_domain"
) -> list[str]:
    """The runs behind a number: what was selected in each trial, from what, and the command that makes it again."""
    selection = select(records, cast(Rule, rule))
    cells = {
        cell: found
        for cell, found in selection.cells.items()
        if (cell.dataset, cell.algorithm, cell.test_domain) == (dataset, algorithm, domain)
    }
    if not cells:
        known = {" ".join((cell.dataset, cell.algorithm, cell.test_domain)) for cell in selection.cells}
        raise unknown("cell", f"{dataset} {algorithm} {domain}", known)
    return [line for cell, found in cells.items() for line in _cell_lines(cell, found)]


def _cell_lines(cell: Cell, found: Selected | Missing) -> list[str]:
    head = f"{method_label(cell.algorithm, cell.model)}, {cell.dataset}, {cell.test_domain}, trial {cell.trial_seed}"
    if isinstance(found, Missing):
        return [f"{head}: no number ({found.reason})", ""]
    record = found.record
    made = _made(record.folder)
    return [
        f"{head}: {100 * found.accuracy:.1f} % (validation {100 * found.validation:.1f} % at step {found.step})",
        f"  run: {record.folder}",
        f"  draw {record.spec.hparams_seed}, the best of {1 + len(found.runners_up)}; settings {record.spec.settings}",
        f"  fgmix {record.fgmix_version}, data {record.data_fingerprint}, {made}",
        f"  {command(record.spec)}",
        "",
    ]


def _made(folder: Path | None) -> str:
    file = folder / "spec.json" if folder else None
    if file is None or not file.exists():
        return "environment not recorded"
    environment = read_json(file)["environment"]
    return ", ".join(f"{name} {value}" for name, value in environment.items() if value is not None)


def command(spec: RunSpec, out: str = "runs") -> str:
    """The command that makes a run again.

    >>> spec = RunSpec(dataset="digits", algorithm="erm", test_domains=("photo",), steps=10, settings={"lr": 0.01})
    >>> command(spec)
    'fgmix train --dataset digits --algorithm erm --test-domain photo --steps 10 --set lr=0.01 --out runs'
    """
    plain = RunSpec(dataset=spec.dataset, algorithm=spec.algorithm, test_domains=spec.test_domains).as_dict()
    words = ["fgmix", "train", "--dataset", spec.dataset, "--algorithm", spec.algorithm]
    for domain in spec.test_domains:
        words += ["--test-domain", domain]
    for name, value in spec.as_dict().items():
        if value != plain[name] and name not in ("settings", "hparams_seed"):
            words += _option(name, value)
    for name, value in spec.settings.items():
        words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(
        [*words, *(_option("hparams_seed", spec.hparams_seed) if spec.hparams_seed else []), "--out", out]
    )


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]
