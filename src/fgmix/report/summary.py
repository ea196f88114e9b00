"""The headlines of the page: for each dataset, the main result and what was run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fgmix.records.rows import Labels, label_row
from fgmix.records.schema import ResolvedSpec, RunRecord
from fgmix.results.differences import COVERAGE, explain_sharing
from fgmix.results.domainbed import is_from_domainbed
from fgmix.results.report import Choices, compare_all
from fgmix.results.rounding import accuracy_text, difference_text, p_equation, points_text
from fgmix.results.selection import Selection
from fgmix.results.statistics import BASELINE, Comparison
from fgmix.results.tables import Table, dataset_table

SEVERAL = 3  # maximum number of values to list before showing only a count


@dataclass(frozen=True)
class Headline:
    """A dataset's result."""

    dataset: str  # its name
    result: str  # a sentence with the best method and its difference from the baseline
    run: str  # what was run


def write_headlines(
    selection: Selection,
    records: Sequence[RunRecord],
    choices: Choices = Choices(),  # noqa: B008 (frozen)
) -> list[Headline]:
    """Write one headline for each dataset, from the runs and the models selected from them."""
    compared = compare_all(selection, choices.baseline, choices.margin)
    return [
        Headline(
            dataset,
            state_result(dataset_table(selection, dataset), compared[dataset]),
            describe_runs([record for record in records if record.dataset == dataset]),
        )
        for dataset in selection.domains
    ]


def state_result(table: Table, comparisons: Sequence[Comparison]) -> str:
    """State the best average of a dataset's table, and how it differs from the baseline's."""
    averages = {row.row: row.entries[-1].value for row in table.rows}  # the last column
    known = {method: value for method, value in averages.items() if value is not None}
    names = {row.row: table.label(row) for row in table.rows}
    if not known:
        return "no method has a result for every test domain yet."
    best = max(known, key=lambda method: known[method])
    where = "average" if len(table.columns) > 2 else table.columns[0]  # the last is the average
    reached = f"{names[best]} reaches {accuracy_text(known[best])} % on {where}"
    if len(known) == 1:
        alone = "It is the only method." if len(names) == 1 else "No other method has a result for every test domain."
        return f"{reached}. {alone}"
    sentence = f"{reached}, the highest of {len(known)} results"
    compared = {c.row: c for c in comparisons if c.difference is not None and c.row in known}
    if best in compared:
        return f"{sentence}: {_write_difference(compared[best], table.labels)}."
    if not compared:
        missing = "other method" if comparisons or best.runs.anywhere.key == BASELINE else "ERM"
        return f"{sentence}. There is no {missing} to compare it with."
    second = max(compared, key=lambda method: known[method])
    return f"{sentence}. Next best: {names[second]}, {_write_difference(compared[second], table.labels)}."


def _write_difference(c: Comparison, labels: Labels) -> str:
    """Write a difference from the baseline in words."""
    assert c.difference is not None
    ends = [
        f"{where}: {' to '.join(map(difference_text, interval))}"
        for where, interval in (("for these test domains", c.interval), ("for a new test domain", c.new_interval))
        if interval is not None
    ]
    text = f"{difference_text(c.difference)} points relative to {label_row(labels, c.baseline)}"
    if ends:
        text += f" ({COVERAGE} interval {', '.join(ends)})"
    if c.copy_of is not None:
        return f"{text}, not tested, because it is identical to {label_row(labels, c.copy_of)}"
    found = {
        "different": "a significant difference",
        "equivalent": f"equivalent within ±{c.margin:g}" if c.margin else "",
        "undecided": f"which cannot be decided with {c.pairs} pairs of trial and test domain",
        "not tested": "not tested",
    }[c.verdict]
    p = f" ({p_equation(c.p_holm)}, Wilcoxon, Holm)" if c.p_holm is not None and c.significant else ""
    could = f": {points_text(c.detectable)} points are detectable" if c.detectable and c.verdict == "undecided" else ""
    return ". ".join(filter(None, (f"{text}, {found}{p}{could}", explain_sharing([c], labels).removesuffix("."))))


def describe_runs(records: Sequence[RunRecord]) -> str:
    """Describe domains, networks, steps, protocol, trials, hyper-parameter samples and runs of a dataset, in words."""
    specs = [record.spec for record in records]
    ours = [record.spec for record in records if not is_from_domainbed(record)]  # DomainBed's records lack defaults
    held_out = {name for spec in specs for name in spec.test_domains}
    parts = [
        f"{len(held_out)} of {_count(len(records[0].domains), 'domain')} held out",
        _list(map(_name_network, ours), "networks"),
        _list((f"{spec.steps:,} steps" for spec in ours), "numbers of steps"),
        _list((f"protocol {spec.protocol}" for spec in ours), "protocols"),
        "DomainBed's records" if len(ours) < len(specs) else "",
        _count(len({spec.trial_seed for spec in specs}), "trial"),
        _count(len({spec.hparams_seed for spec in specs}), "hyper-parameter sample"),
        _count(len(records), "run"),
    ]
    return " · ".join(filter(None, parts))


def _name_network(spec: ResolvedSpec) -> str:
    start = "local weights" if spec.weights else "pre-trained" if spec.pretrained else "random initialisation"
    return f"{spec.backbone}, {start}" + (f" on {spec.pretraining}" if spec.pretraining else "")


def _count(count: int, thing: str) -> str:
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def _list(values: Iterable[str], things: str) -> str:
    """List the distinct values, the most frequent first; only their number if there are more than `SEVERAL`."""
    every = list(values)
    different = sorted(dict.fromkeys(every), key=lambda value: -every.count(value))
    return f"{len(different)} {things}" if len(different) > SEVERAL else " or ".join(different)
