"""The headlines of the page: for each dataset, the main result and what was run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fgmix.records.schema import ResolvedSpec, RunRecord
from fgmix.report.html import Html, element
from fgmix.results.domainbed import is_domainbeds
from fgmix.results.labels import split_origin
from fgmix.results.report import Comparisons
from fgmix.results.rounding import accuracy_text, difference_text, p_equation
from fgmix.results.selection import Method, Selection
from fgmix.results.statistics import BASELINE, Comparison
from fgmix.results.tables import Table, dataset_table

SEVERAL = 3  # up to so many values are listed; more are counted


@dataclass(frozen=True)
class Headline:
    """A dataset's result.

    Args:
        dataset: its name.
        found: a sentence with the best method and its difference from ERM.
        run: what was run.
    """

    dataset: str
    found: str
    run: str

    def html(self) -> Html:
        return element(
            "div",
            element("p", element("strong", self.dataset), ": ", self.found, class_="found"),
            element("p", self.run, class_="caption"),
        )


def headlines(selection: Selection, records: Sequence[RunRecord], against_erm: Comparisons) -> list[Headline]:
    """One headline for each dataset.

    Args:
        selection: the selected models.
        records: the runs they were selected from.
        against_erm: every method against ERM, by dataset.
    """
    return [
        Headline(
            dataset,
            finding(dataset_table(selection, dataset), against_erm[dataset]),
            what_was_run([record for record in records if record.dataset == dataset]),
        )
        for dataset in selection.domains
    ]


def finding(table: Table, comparisons: Sequence[Comparison]) -> str:
    """The best average of a dataset's table, and how it differs from ERM's.

    Args:
        table: methods by test domains; the last column is their average.
        comparisons: its methods against ERM.
    """
    averages = {row.method: row.entries[-1].value for row in table.rows}
    known = {method: value for method, value in averages.items() if value is not None}
    names = {row.method: table.label(row) for row in table.rows}
    if not known:
        return _so_far(table)
    best = max(known, key=lambda method: known[method])
    reached = f"{names[best]} reaches {accuracy_text(known[best])} % on average"
    if len(known) == 1:
        alone = "It is the only method." if len(names) == 1 else "No other method has a result for every test domain."
        return f"{reached}. {alone}"
    sentence = f"{reached}, the highest of {len(known)} results"
    compared = {c.method: c for c in comparisons if c.difference is not None}
    if best in compared:
        return f"{sentence}: {_difference(compared[best], names)}."
    others = [method for method in known if method in compared]
    if split_origin(best.algorithm)[0] != BASELINE:
        return f"{sentence}. There is no ERM to compare it with."
    if not others:
        return f"{sentence}. There is no other method to compare it with."
    second = max(others, key=lambda method: known[method])
    return f"{sentence}. The best other method is {names[second]}: {_difference(compared[second], names)}."


def _so_far(table: Table) -> str:
    """The results so far, if no method has a result for every test domain."""
    measured = [
        (table.label(row), [(name, e.value) for name, e in zip(table.columns, row.entries) if e.value is not None])
        for row in table.rows
    ]
    having = [(label, numbers) for label, numbers in measured if numbers]
    if not having:
        return "no run has a result yet."
    if len(having) > SEVERAL or any(len(numbers) > SEVERAL for _, numbers in having):
        return f"{len(having)} methods have results, none of them for every test domain yet."
    parts = [
        f"{label} reaches {', '.join(f'{accuracy_text(value)} % on {name}' for name, value in numbers)}"
        for label, numbers in having
    ]
    return f"{'; '.join(parts)}. The other test domains have no result yet."


def _difference(c: Comparison, names: dict[Method, str]) -> str:
    """A difference from ERM in words."""
    assert c.difference is not None
    found = f"{difference_text(c.difference)} points against {names[c.baseline]}"
    if c.interval is not None:
        low, high = (difference_text(end) for end in c.interval)
        found += f" ({100 * (1 - c.alpha):g} % interval {low} to {high})"
    verdict = {
        "different": "a significant difference",
        "not significant": "no significant difference",
        "too few pairs": f"too few trials to test ({c.pairs} pairs of trial and test domain)",
        "not tested": f"not tested, because it is identical to {names[c.copy_of or c.baseline]}",
    }[c.verdict]
    p = f" ({p_equation(c.p_holm)}, Wilcoxon, Holm)" if c.p_holm is not None and c.verdict != "too few pairs" else ""
    return f"{found}, {verdict}{p}"


def what_was_run(records: Sequence[RunRecord]) -> str:
    """Domains, networks, steps, protocol, trials, hyper-parameter samples and runs of a dataset, in words."""
    specs = [record.spec for record in records]
    ours = [record.spec for record in records if not is_domainbeds(record)]  # DomainBed's records lack defaults
    held_out = {name for spec in specs for name in spec.test_domains}
    parts = [
        f"{len(held_out)} of {_counted(len(records[0].domains), 'domain')} held out",
        _listed(map(_network, ours), "networks"),
        _listed((f"{spec.steps:,} steps" for spec in ours), "numbers of steps"),
        _listed((f"protocol {spec.protocol}" for spec in ours), "protocols"),
        "DomainBed's records" if len(ours) < len(specs) else "",
        _counted(len({spec.trial_seed for spec in specs}), "trial"),
        _counted(len({spec.hparams_seed for spec in specs}), "hyper-parameter sample"),
        _counted(len(records), "run"),
    ]
    return " · ".join(filter(None, parts))


def _network(spec: ResolvedSpec) -> str:
    start = "local weights" if spec.weights else "pre-trained" if spec.pretrained else "random initialisation"
    return f"{spec.backbone}, {start}"


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def _listed(values: Iterable[str], things: str) -> str:
    """The distinct values, the most frequent first; only their number if there are more than `SEVERAL`."""
    found = list(values)
    different = sorted(dict.fromkeys(found), key=lambda value: -found.count(value))
    return f"{len(different)} {things}" if len(different) > SEVERAL else " or ".join(different)
