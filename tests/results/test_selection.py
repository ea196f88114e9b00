"""Selection, on examples small enough to work out on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from copying import replace
from fgmix.data import DomainDataset, LoadOptions, from_arrays, registry
from fgmix.errors import UserError
from fgmix.records.rows import Row
from fgmix.records.schema import RunRecord, RunSpec
from fgmix.records.store import read_record
from fgmix.results.read import read_runs
from fgmix.results.selection import LAST, RULES, Cell, Missing, Rule, Selected, Selection, select
from fgmix.results.tables import dataset_table
from fgmix.training.loop import train
from results.made import Parts, finished, random_sweep, run, sweep

# Domains a, b, c; a is held out; three draws, evaluated at steps 10 and 20. Entries: (train, holdout).
# validation = (b + c) / 2 of holdout:   draw 0: .50, .50   draw 1: .60, .60   draw 2: .55, .60
DRAWS = [
    {
        10: {"a": (0.11, 0.9), "b": (None, 0.4), "c": (None, 0.6)},
        20: {"a": (0.12, 0.3), "b": (None, 0.5), "c": (None, 0.5)},
    },
    {
        10: {"a": (0.21, 0.1), "b": (None, 0.5), "c": (None, 0.7)},
        20: {"a": (0.22, 0.7), "b": (None, 0.6), "c": (None, 0.6)},
    },
    {
        10: {"a": (0.31, 0.2), "b": (None, 0.5), "c": (None, 0.6)},
        20: {"a": (0.32, 0.7), "b": (None, 0.7), "c": (None, 0.5)},
    },
]
SINGLES = [run("a", steps, draw=draw) for draw, steps in enumerate(DRAWS)]
CELL = Cell("toy", Row("erm"), 0, "a")


def test_runs_that_select_by_another_metric_report_it() -> None:
    """Accuracy would choose the first step; the runs' own metric is highest at the second, and is what is reported."""
    record = run("a", {10: {"a": (0.9, 0.9), "b": (None, 0.9)}, 20: {"a": (0.8, 0.8), "b": (None, 0.8)}})
    headline = [{"raw": {"a": {"train": v, "holdout": v}, "b": {"holdout": v}}} for v in (0.5, 0.6)]
    evaluations = tuple(replace(e, headline=h) for e, h in zip(record.evaluations, headline, strict=True))
    balanced = replace(record, spec=replace(record.spec, metric="balanced_accuracy"), evaluations=evaluations)
    for rule in ("training_domain", "oracle"):
        found = select([balanced], rule)
        chosen = found.cells[CELL]
        assert isinstance(chosen, Selected)
        assert (chosen.step, chosen.validation, chosen.accuracy) == (20, 0.6, 0.6)
        assert dataset_table(found, "toy").caption.startswith("Balanced accuracy (%) on the test domain.")
    mixed = select([balanced, replace(record, spec=replace(record.spec, algorithm="coral"))])
    reasons = {found.reason for found in mixed.cells.values() if isinstance(found, Missing)}
    assert any("different metrics (accuracy, balanced_accuracy)" in reason for reason in reasons)


def pair(test: str, at_10: float, at_20: float, draw: int) -> RunRecord:
    """A run that holds out two domains; only the second one's train accuracy matters here."""
    first, second = test.split()
    other = ({"a", "b", "c"} - {first, second}).pop()
    parts = {s: {first: (0.0, 0.0), second: (x, 0.0), other: (None, 0.0)} for s, x in ((10, at_10), (20, at_20))}
    return run(test, parts, draw=draw)


# value at a step = mean of b's train accuracy in {a, b} and c's in {a, c}
PAIRS = [
    pair("a b", 0.2, 0.4, 0), pair("a c", 0.6, 0.4, 0),  # draw 0: .4, .4  a tie of steps: 10
    pair("a b", 0.3, 0.1, 1), pair("a c", 0.5, 0.1, 1),  # draw 1: .4, .1
    pair("a b", 0.1, 0.3, 2), pair("a c", 0.1, 0.3, 2),  # draw 2: .1, .3
]  # fmt: skip


def found(selection: Selection, cell: Cell = CELL) -> Selected:
    outcome = selection.cells[cell]
    assert isinstance(outcome, Selected)
    return outcome


def reason(selection: Selection, cell: Cell = CELL) -> str:
    outcome = selection.cells[cell]
    assert isinstance(outcome, Missing)
    return outcome.reason


def test_training_domain_takes_the_earliest_step_and_the_highest_draw_of_equals() -> None:
    chosen = found(select(SINGLES))
    assert (chosen.record, chosen.step) == (SINGLES[2], 20)  # draws 1 and 2 tie at .60
    assert chosen.validation == pytest.approx(0.6)
    assert chosen.accuracy == 0.32
    # draw 1 ties at both of its steps: the earlier
    assert [(c.record, c.step, c.accuracy) for c in chosen.runners_up] == [
        (SINGLES[1], 10, 0.21),
        (SINGLES[0], 10, 0.11),
    ]


def test_oracle_reads_the_last_step_alone() -> None:
    chosen = found(select(SINGLES, "oracle"))  # .3, .7, .7 at step 20; draw 0's .9 at step 10 does not count
    assert (chosen.record, chosen.step, chosen.validation, chosen.accuracy) == (SINGLES[2], 20, 0.7, 0.32)


def test_leave_one_out_takes_the_step_from_the_pairs() -> None:
    chosen = found(select([*SINGLES, *PAIRS], "leave_one_out"))  # draws 0 and 1 tie at .4, both at step 10
    assert (chosen.record, chosen.step, chosen.accuracy) == (SINGLES[1], 10, 0.21)
    assert chosen.validation == pytest.approx(0.4)
    assert chosen.validated_by == (PAIRS[2], PAIRS[3])
    assert [(c.record, c.step) for c in chosen.runners_up] == [(SINGLES[0], 10), (SINGLES[2], 20)]


def test_leave_one_out_takes_swad_at_its_end() -> None:
    """SWAD chooses its window by itself: the model is the one after the last step, whatever was better on the way."""

    def averaged(record: RunRecord) -> RunRecord:
        evaluations = [replace(e, accuracy={**e.accuracy, "swad": e.accuracy["raw"]}) for e in record.evaluations]
        return replace(record, evaluations=tuple(evaluations), spec=replace(record.spec, averaging="swad"))

    selection = select([averaged(record) for record in (*SINGLES, *PAIRS)], "leave_one_out")
    assert found(selection).step == 10  # the raw model, as above
    assert found(selection, CELL._replace(row=Row("erm", model="swad"))).step == 20


def test_pairs_do_not_enter_the_other_rules() -> None:
    for rule in ("training_domain", "last_evaluations", "oracle"):
        assert select([*SINGLES, *PAIRS], rule).cells[CELL] == select(SINGLES, rule).cells[CELL]


def test_order_of_records_does_not_matter() -> None:
    records = [*SINGLES, *PAIRS]
    for rule in ("training_domain", "leave_one_out", "oracle"):
        assert select(records, rule).cells[CELL] == select(records[::-1], rule).cells[CELL]


def test_averaged_model_is_a_row_of_its_own_with_its_own_choice() -> None:
    record = run("a", DRAWS[0], swa=DRAWS[2])
    selection = select([record])
    assert found(selection).accuracy == 0.11
    assert found(selection, CELL._replace(row=Row("erm", model="swa"))).accuracy == 0.32
    assert selection.rows() == [Row("erm"), Row("erm", model="swa")]
    assert select(SINGLES).rows() == [Row("erm")]


def test_every_domain_and_trial_has_a_cell_for_every_method() -> None:
    selection = select([*SINGLES, finished("b", 0.7, algorithm="coral", trial=3)])
    assert len(selection.cells) == 2 * 2 * 2  # methods, trials, domains that are held out
    assert selection.trials("toy") == [0, 3]
    assert reason(selection, Cell("toy", Row("coral"), 0, "a")) == "no finished run holds out a"
    planned = select([*SINGLES], test_domains={"toy": ("c", "a")})
    assert (planned.domains, planned.all_domains) == ({"toy": ("a", "c")}, {"toy": ("a", "b", "c")})
    assert reason(planned, CELL._replace(test_domain="c")) == "no finished run holds out c"


def held_out_together(test: str, *accuracies: float, **keys: Any) -> RunRecord:
    values = dict(zip(test.split(), accuracies))
    parts = {name: (values.get(name), values.get(name, 0.5)) for name in "abcde"}
    return run(test, {20: parts}, **keys)


def test_several_test_domains_of_a_run_are_several_cells() -> None:
    records = [held_out_together("b c", 0.6 + trial / 10, 0.7, trial=trial) for trial in (0, 1)]
    selection = select(records)
    assert selection.domains == {"toy": ("b", "c")}
    table = dataset_table(selection, "toy")
    assert table.columns == ("b", "c", "Avg")
    assert [entry.value for entry in table.rows[0].entries] == pytest.approx([65, 70, 67.5])
    assert "b, c (2 of the 5 domains)" in table.caption
    alone = select([*records, finished("a", 0.5, domains="a b c d e")])  # then b and c are a pair that validates a
    assert alone.domains == {"toy": ("a",)}
    several = select([*records, held_out_together("c d", 0.1, 0.2)])  # trained on other domains
    assert "together with different domains (b,c; c,d)" in reason(several, CELL._replace(test_domain="c"))
    assert found(several, CELL._replace(test_domain="b")).accuracy == 0.6


def test_the_study_of_rotated_digits_has_a_table() -> None:
    """Every run holds out six angles; its settings have no arms, and are rows of their own."""
    records = read_runs(Path(__file__).parents[2] / "docs" / "records" / "rotated-digits.records.xz").records
    table = dataset_table(select(records), "rotated")
    assert table.columns == ("10°", "30°", "50°", "60°", "70°", "80°", "Avg")
    labels = [table.label(row) for row in table.rows]
    assert labels[:3] == ["ERM", "FGMix-A (λ₀ = 1)", "FGMix-A (λ₀ = 3)"]
    assert len(labels) == 7
    assert all(entry.value is not None and entry.trials in (24, None) for row in table.rows for entry in row.entries)


def test_a_run_that_diverged_counts_with_what_it_had() -> None:
    broken = run("a", {10: DRAWS[2][20]}, draw=3, status="diverged")
    assert found(select([*SINGLES[:2], broken])).record is broken
    assert found(select([*SINGLES[:2], broken], "oracle")).record is SINGLES[1]
    assert reason(select([broken], "oracle")) == "the only run diverged before the last step"


def test_reasons() -> None:
    nothing = [run("a", {}, draw=draw, status="diverged") for draw in range(2)]
    others = [finished("b", 0.5)]
    assert reason(select([*nothing, *others])) == "all 2 runs diverged before the first evaluation"
    assert reason(select(others, test_domains={"toy": "ab"})) == "no finished run holds out a"
    assert reason(select([*others, *PAIRS[:1]], test_domains={"toy": "ab"})) == "no finished run holds out a alone"
    assert reason(select([*SINGLES, *PAIRS[:1]], "leave_one_out")) == (
        "no evaluated run of hyper-parameter sample 0 holds out a and c: run the sweep with --pairs"
    )
    assert reason(select(SINGLES, "leave_one_out")) == (
        "leave-one-domain-out selection needs runs with pairs of test domains: run the sweep with --pairs"
    )
    apart = [run("a b", {7: {"c": (None, 0.1), "b": (0.1, 0.1), "a": (0.1, 0.1)}}), PAIRS[1], SINGLES[0]]
    assert "have no evaluated step in common" in reason(select(apart, "leave_one_out"))
    measured = {10: {"a": (None, 0.5), "b": (0.5, 0.5), "c": (None, 0.5)}}
    averaged = run("b", measured, swa=measured)
    swa = CELL._replace(row=Row("erm", model="swa"))
    assert reason(select([SINGLES[0], averaged]), swa) == (
        "no run that holds out a has averaged weights: train with --averaging swa"
    )


def test_incomplete_draws_are_left_out_of_leave_one_out() -> None:
    chosen = found(select([*SINGLES, *PAIRS[4:]], "leave_one_out"))
    assert (chosen.record, chosen.runners_up) == (SINGLES[2], ())


def test_runs_that_answer_different_questions_are_not_mixed() -> None:
    longer = run("a", DRAWS[0], draw=3, steps=5000)
    assert reason(select([*SINGLES, longer])) == "the runs differ in steps (20, 5000): choose one with --where steps=…"
    again = run("a", DRAWS[0], draw=1, seed=5)
    assert reason(select([*SINGLES, again])) == "2 runs of hyper-parameter sample 1 hold out a: keep one of them"
    # the other domains' cells are not touched by that
    assert found(select([*SINGLES, again, finished("b", 0.5)]), CELL._replace(test_domain="b")).accuracy == 0.5


def test_runs_are_alike_over_trials_and_see_one_dataset() -> None:
    short, long = (finished("a", 0.5, trial=trial, steps=steps) for trial, steps in ((0, 10), (1, 5000)))
    selection = select([short, long, finished("a", 0.5, algorithm="coral", steps=20)])
    for trial in (0, 1):
        cell = CELL._replace(trial_seed=trial)
        assert reason(selection, cell) == "the runs differ in steps (10, 5000): choose one with --where steps=…"
    found(selection, CELL._replace(row=Row("coral")))  # a method may train longer than another
    elsewhere = finished("a", 0.5, algorithm="coral", data="other")
    selection = select([*SINGLES, elsewhere])
    for algorithm in ("erm", "coral"):
        assert "different data under one name" in reason(selection, CELL._replace(row=Row(algorithm)))


def test_trials_may_have_data_of_their_own() -> None:
    """As those of `rotated_mnist` and `colored_mnist`, whose domains are drawn anew in every trial."""
    selection = select([finished("a", 0.5, trial=trial, data=f"of trial {trial}") for trial in (0, 1)])
    assert [found(selection, CELL._replace(trial_seed=trial)).accuracy for trial in (0, 1)] == [0.5, 0.5]


@pytest.mark.parametrize(
    "different", [{"weights_digest": "w"}, {"averaging": "swad"}, {"averaging_start": 7}, {"mean": (0.5,)}]
)
def test_weights_and_averaging_are_no_hyper_parameters(different: dict[str, Any]) -> None:
    (name,) = different
    assert f"differ in {name}" in reason(select([*SINGLES, run("a", DRAWS[0], draw=3, **different)]))


def test_searched_values_may_differ() -> None:
    other = run("a", DRAWS[0], draw=3, seed=9, batch_size=8, dropout=0.5, settings={"lr": 1e-4})
    found(select([*SINGLES, other]))


def test_the_place_of_weights_may_differ() -> None:
    found(select([*SINGLES, run("a", DRAWS[0], draw=3, weights="elsewhere/w.pt", checkpoint_every=5)]))


def test_last_evaluations_are_averaged() -> None:
    """Of seven evaluations the last five count, for the choice and for the number."""

    def at(step: int, accuracy: float, validation: float) -> dict[int, Parts]:
        return {step: {"a": (accuracy, 0.0), "b": (None, validation), "c": (None, validation)}}

    def of(values: list[tuple[float, float]], draw: int) -> RunRecord:
        steps: dict[int, Parts] = {}
        for number, value in enumerate(values):
            steps |= at(10 * number, *value)
        return run("a", steps, draw=draw)

    peaked = of([(0.1, 0.9), (0.1, 0.9), *[(0.5, 0.3)] * 4, (1.0, 0.3)], 0)
    steady = of([(0.2, 0.1), (0.2, 0.1), *[(0.3, 0.4)] * 5], 1)
    chosen = found(select([peaked, steady], "last_evaluations"))
    assert (chosen.record, chosen.step, chosen.accuracy) == (steady, 60, pytest.approx(0.3))
    assert found(select([peaked, steady])).record is peaked  # one lucky checkpoint
    (other,) = chosen.runners_up
    assert (other.accuracy, other.validation) == (pytest.approx(0.6), pytest.approx(0.3))
    assert LAST == 5
    assert "mean over the last 5 evaluations" in RULES["last_evaluations"]


def test_last_evaluations_of_short_diverged_and_swad_runs() -> None:
    short = run("a", DRAWS[0])
    assert found(select([short], "last_evaluations")).accuracy == pytest.approx((0.11 + 0.12) / 2)
    diverged = run("a", DRAWS[2], draw=1, status="diverged")
    assert found(select([short, diverged], "last_evaluations")).runners_up == ()
    swad = run("a", DRAWS[0])
    evaluations = [replace(e, accuracy={**e.accuracy, "swad": e.accuracy["raw"]}) for e in swad.evaluations]
    swad = replace(swad, evaluations=tuple(evaluations))
    assert (
        found(select([swad], "last_evaluations"), CELL._replace(row=Row("erm", model="swad"))).accuracy == 0.12
    )  # its only model


def test_unknown_rule() -> None:
    with pytest.raises(UserError, match=r"selection rule 'oracles'.*'oracle'"):
        select(SINGLES, "oracles")  # type: ignore[arg-type]


def test_domains_come_in_the_datasets_order() -> None:
    order = ("+90%", "+80%", "-90%", "x", "w")  # not sorted
    records = [replace(finished(test, 0.5, domains=" ".join(order)), domains=order) for test in order]
    assert select(records).domains == {"toy": order}


def test_4000_records() -> None:
    """Takes a fraction of a second; a quadratic scan would not end. 20,000 are read in `test_collect`."""
    records = random_sweep(datasets=5, algorithms=5, trials=2, draws=20)
    assert len(records) == 4_000
    assert len(select(records).cells) == 5 * 5 * 2 * 4 * 2  # raw and averaged


def test_a_sweep_of_one_draw_selects_that_draw() -> None:
    selection = select(sweep({"erm": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]}))
    assert list(selection.accuracies().values()) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def test_records_of_real_runs(tmp_path: Path) -> None:
    """What `train` writes is what selection reads: every rule has a number for both models."""
    rng = np.random.default_rng(0)
    y, domain = np.arange(60) % 2, np.arange(60) // 20
    data = from_arrays(rng.normal(size=(60, 3)) + y[:, None], y, domain)
    for test in [("0",), ("0", "1"), ("0", "2")]:
        spec = RunSpec(dataset="arrays", algorithm="erm", test_domains=test, steps=4, eval_every=2, averaging_start=1)
        train(spec, tmp_path, dataset=data, device="cpu", progress=False)
    records = [read_record(folder) for folder in tmp_path.iterdir()]
    for rule in get_args(Rule):
        for model in ("raw", "swa"):
            found(select(records, rule), Cell("arrays", Row("erm", model=model), 0, "0"))


def test_trials_of_a_registered_dataset_with_samples_of_its_own_have_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", {**registry._REGISTRY})

    @registry.register_dataset("own", "samples are drawn anew in every trial")
    def load(options: LoadOptions) -> DomainDataset:
        rng = np.random.default_rng(options.trial_seed)
        y, domain = np.arange(60) % 2, np.arange(60) // 20
        return from_arrays(rng.normal(size=(60, 3)) + y[:, None], y, domain, name="own")

    for trial in (0, 1):
        spec = RunSpec(dataset="own", algorithm="erm", test_domains="0", steps=2, eval_every=1, trial_seed=trial)
        train(spec, tmp_path, device="cpu", progress=False)
    results = read_runs(tmp_path)
    assert len({record.data_fingerprint for record in results.records}) == 2
    (row, *_) = dataset_table(select(results.records), "own").rows
    assert [entry.trials for entry in row.entries] == [2, None]
    assert all(entry.value is not None for entry in row.entries)


def test_each_arm_of_a_method_is_selected_and_labelled_by_itself() -> None:
    plain = sweep({"erm": [[0.5, 0.5, 0.5]], "fgmix": [[0.6, 0.6, 0.6]]})
    arm = sweep({"fgmix": [[0.7, 0.7, 0.7]]}, arm="γ = 10", settings={"gamma": 10.0})
    selection = select([*arm, *plain])
    accuracies = selection.accuracies()
    assert accuracies[Cell("toy", Row("fgmix"), 0, "a")] == 0.6
    assert accuracies[Cell("toy", Row("fgmix", "γ = 10"), 0, "a")] == 0.7
    rows = dataset_table(selection, "toy")
    assert [rows.label(row) for row in rows.rows] == ["ERM", "FGMix", "FGMix (γ = 10)"]
