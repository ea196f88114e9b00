"""Model selection: a number is always one that was measured, at a step that the rule prefers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fgmix.records.schema import RunRecord
from fgmix.results.selection import Selected, select
from properties.quickly import quickly
from results.made import Parts, run

DOMAINS = ("a", "b", "c")
ACCURACY = st.sampled_from([0.0, 0.25, 0.5, 0.5, 0.75, 1.0])  # few values: ties are common


@st.composite
def some_runs(draw: st.DrawFn) -> list[RunRecord]:
    """Hyper-parameter samples of one method and trial for each test domain, in any order."""
    records = []
    steps = sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=4)))
    for test in DOMAINS:
        for sample in range(draw(st.integers(0, 3))):
            found: dict[int, Parts] = {s: {d: (draw(ACCURACY), draw(ACCURACY)) for d in DOMAINS} for s in steps}
            records.append(run(test, found, draw=sample))
    return draw(st.permutations(records))


def numbers(records: list[RunRecord], rule: str) -> dict[str, Selected]:
    """What is selected, by test domain."""
    cells = select(records, rule).cells  # type: ignore[arg-type]
    return {cell.test_domain: found for cell, found in cells.items() if isinstance(found, Selected)}


@quickly
@given(some_runs(), st.sampled_from(["training_domain", "oracle"]))
def test_a_number_was_measured_by_a_run_that_held_the_domain_out(records: list[RunRecord], rule: str) -> None:
    found = numbers(records, rule)
    assert set(found) == {record.spec.test_domains[0] for record in records}
    for domain, chosen in found.items():
        assert chosen.record.spec.test_domains == (domain,)
        (evaluation,) = (e for e in chosen.record.evaluations if e.step == chosen.step)
        assert chosen.accuracy == evaluation.accuracy["raw"][domain]["train"]


@quickly
@given(some_runs())
def test_no_other_sample_or_step_validates_better(records: list[RunRecord]) -> None:
    for domain, chosen in numbers(records, "training_domain").items():
        values = {
            (e.validation(record.sources), record.spec.hparams_seed, -e.step)
            for record in records
            if record.spec.test_domains == (domain,)
            for e in record.evaluations
        }
        assert (chosen.validation, chosen.record.spec.hparams_seed, -chosen.step) == max(values)


@quickly
@given(some_runs(), st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(records: list[RunRecord], random: object) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for rule in ("training_domain", "last_evaluations", "oracle"):
        first, second = ({d: (f.accuracy, f.step) for d, f in numbers(r, rule).items()} for r in (records, shuffled))
        assert first == second


@quickly
@given(some_runs())
def test_a_run_alone_reports_what_its_record_says(records: list[RunRecord]) -> None:
    for record in records:
        (chosen,) = numbers([record], "training_domain").values()
        assert chosen.accuracy == record.test_accuracy()
