"""Tables and their formats, with numbers worked out by hand."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest

from copying import replace
from fgmix.errors import UserError
from fgmix.records.rows import Row
from fgmix.results.formats import Tables, comma_separated, latex, markdown
from fgmix.results.selection import select
from fgmix.results.tables import Entry, Table, TableRow, dataset_table, overall_table
from results.made import finished, run, sweep

# accuracies[algorithm][trial][domain]
ACCURACIES = {
    "coral": [[0.50, 0.60, 0.70], [0.54, 0.60, 0.76]],
    "erm": [[0.50, 0.62, 0.70], [0.50, 0.58, 0.70]],
}
RECORDS = sweep(ACCURACIES)


def values(table: Table, row: int) -> list[float | None]:
    return [entry.value for entry in table.rows[row].entries]


def test_dataset_table_by_hand() -> None:
    table = dataset_table(select(RECORDS), "toy")
    assert table.columns == ("a", "b", "c", "Avg")
    assert [table.label(row) for row in table.rows] == ["ERM", "CORAL"]
    assert values(table, 0) == pytest.approx([50, 60, 70, 60])
    assert values(table, 1) == pytest.approx([52, 60, 73, 185 / 3])
    # CORAL on c: 70 and 76: std 3 (divided by 2, not by 1), standard error 3/√2
    assert table.rows[1].entries[2].spread == pytest.approx(3 / math.sqrt(2))
    assert table.rows[1].entries[3].spread is None
    assert "standard error" in table.caption
    assert "training-domain validation" in table.caption


def test_std_on_request_and_the_caption_says_so() -> None:
    table = dataset_table(select(RECORDS), "toy", spread="std")
    assert table.rows[1].entries[2].spread == pytest.approx(3)
    assert "± standard deviation over trials." in table.caption
    with pytest.raises(UserError, match="spread 'sem'"):
        dataset_table(select(RECORDS), "toy", spread="sem")  # type: ignore[arg-type]


def test_the_caption_names_methods_that_adapt_to_the_test_domain() -> None:
    adapted = [
        replace(record, label="T3A", spec=replace(record.spec, algorithm="t3a", settings={"test_batch_size": 64}))
        for record in RECORDS
        if record.spec.algorithm == "erm"
    ]
    assert "adapts" not in dataset_table(select(RECORDS), "toy").caption
    assert dataset_table(select([*RECORDS, *adapted]), "toy").caption.endswith(
        "T3A adapts to the unlabelled samples of the test domain."
    )


def test_overall_table_averages_trials_over_domains_first() -> None:
    other = sweep({"erm": [[0.2, 0.4]], "coral": [[0.1, 0.3]]}, domains="x y", dataset="two")
    table = overall_table(select([*RECORDS, *other]))
    assert table.columns == ("toy", "two", "Avg")
    assert values(table, 0) == pytest.approx([60, 30, 45])
    # CORAL's trials on toy: means 60 and 190/3; half their distance is the std, over √2 the standard error
    assert table.rows[1].entries[0].spread == pytest.approx((190 / 3 - 60) / 2 / math.sqrt(2))
    assert table.rows[1].entries[1].spread is None  # one trial


def labels(table: Table) -> list[str]:
    return [table.label(row) for row in table.rows]


def test_rows_are_in_the_order_of_the_paper() -> None:
    records = sweep({name: [[0.5, 0.5, 0.5]] for name in ("mine", "fgmix", "fgmix_a", "coral", "erm", "mixup")})
    assert labels(dataset_table(select(records), "toy")) == ["ERM", "Mixup", "CORAL", "FGMix-A", "FGMix", "mine"]


def test_averaged_models_stand_below_the_raw_ones() -> None:
    parts = {20: {"a": (0.5, 0.5), "b": (None, 0.5)}}
    records = [run("a", parts, swa=parts, algorithm=name) for name in ("erm", "l2a_ot")]
    assert labels(overall_table(select(records))) == ["ERM", "L2A-OT", "ERM + SWA", "L2A-OT + SWA"]


def test_labels_come_from_the_records_and_rows_hold_keys() -> None:
    plugin = replace(finished("a", 0.5, algorithm="my_plugin"), label="My Plug-in")
    table = dataset_table(select([plugin, finished("b", 0.5, algorithm="bare")]), "toy")
    assert labels(table) == ["bare", "My Plug-in"]
    assert [row.row for row in table.rows] == [Row("bare"), Row("my_plugin")]
    older = replace(plugin, label="my_plugin")  # of before the method declared a label
    assert labels(dataset_table(select([older, plugin]), "toy")) == ["My Plug-in"]


def test_what_is_missing_says_why() -> None:
    table = dataset_table(select([*RECORDS[:3], *RECORDS[4:]]), "toy")  # without CORAL's a in trial 1
    coral = table.rows[1].entries
    assert (coral[0].value, coral[0].trials, coral[0].spread) == (50, 1, None)
    assert coral[0].note == "1 of 2 trials; trial 1: no finished run holds out a"
    alone = dataset_table(select([finished("a", 0.5)], test_domains={"toy": "abc"}), "toy").rows[0].entries
    assert [entry.shown for entry in alone] == ["50.0", "–", "–", "–"]
    assert alone[1].note == "trial 0: no finished run holds out b"
    assert alone[3].note == "no number for b, c"


def test_a_trial_without_a_domain_is_left_out_of_the_overall_mean() -> None:
    selection = select([*RECORDS[:3], *RECORDS[4:]])
    entry = overall_table(selection).rows[1].entries[0]
    assert (entry.value, entry.trials) == (pytest.approx(60), 1)
    assert entry.note == "1 of 2 trials; trial 1: no finished run holds out a"
    # DomainBed averages what is there: (60 + (60 + 76) / 2) / 2
    table = overall_table(selection, partial_trials=True)
    assert table.rows[1].entries[0].value == pytest.approx(64)
    assert "as in DomainBed" in table.caption


def test_a_method_that_never_ran_on_a_dataset() -> None:
    other = sweep({"erm": [[0.2, 0.4]]}, domains="x y", dataset="two")
    selection = select([*RECORDS, *other])
    coral = overall_table(selection).rows[1].entries
    assert coral[1].note == "trial 0: not run"
    assert coral[2].note == "no number for two"
    assert labels(dataset_table(selection, "two")) == ["ERM"]
    with pytest.raises(UserError, match=r"dataset of these records 'tow'.*'two'"):
        dataset_table(selection, "tow")


def test_markdown() -> None:
    assert markdown(dataset_table(select(RECORDS), "toy")).splitlines()[:6] == [
        "### toy",
        "",
        "| Method | a | b | c | Avg |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| ERM | 50.0 ± 0.0 | **60.0 ± 1.4** | 70.0 ± 0.0 | 60.0 |",
        "| CORAL | **52.0 ± 1.4** | **60.0 ± 0.0** | **73.0 ± 2.1** | **61.7** |",
    ]


def test_footnotes_are_numbered_once_each() -> None:
    records = [finished("a", 0.5), finished("a", 0.6, algorithm="coral")]
    text = markdown(dataset_table(select(records, test_domains={"toy": "abc"}), "toy"))
    assert "| CORAL | **60.0** | – [1] | – [2] | – [3] |" in text
    assert text.count("trial 0: no finished run holds out b") == 1


def test_latex() -> None:
    table = dataset_table(select(sweep({"l2a_ot": [[0.5, 0.6]], "my_own": [[0.7, 0.6]]}, domains="+90% x_y")), "toy")
    lines = latex(table).splitlines()
    assert lines[:2] == [r"% needs \usepackage{booktabs}", r"\begin{table}"]
    assert r"Method & +90\% & x\_y & Avg \\" in lines
    assert r"L2A-OT & 50.0 & \textbf{60.0} & 55.0 \\" in lines
    assert r"my\_own & \textbf{70.0} & \textbf{60.0} & \textbf{65.0} \\" in lines
    assert [line for line in lines if line.endswith("rule")] == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_every_table_has_a_label_of_its_own() -> None:
    tables = [Table(title, "", (), ()) for title in ("PACS: recall", "PACS (recall)", "λ", "γ")]
    text = Tables(tables).to_text("latex")
    labels = [line for line in text.splitlines() if line.startswith(r"\label")]
    assert labels == [rf"\label{{tab:{name}}}" for name in ("pacs-recall", "pacs-recall-2", "table", "table-2")]


def test_latex_needs_no_unicode() -> None:
    table = dataset_table(select([*RECORDS[:3], *RECORDS[4:]]), "toy")
    text = latex(table)
    assert text.isascii()
    assert r"CORAL & \textbf{50.0}\textsuperscript{1} & \textbf{60.0 $\pm$ 0.0}" in text  # one trial: no ±
    assert r"\par\footnotesize\textsuperscript{1} 1 of 2 trials; trial 1: no finished run holds out a" in text


def test_csv_is_not_rounded() -> None:
    table = dataset_table(select(RECORDS), "toy")
    lines = list(csv.DictReader(io.StringIO(comma_separated([table]))))
    assert len(lines) == 2 * 4
    c = next(line for line in lines if (line["row"], line["column"]) == ("coral", "c"))
    assert float(c["value"]) == table.rows[1].entries[2].value
    assert float(c["spread"]) == table.rows[1].entries[2].spread
    assert (c["trials"], c["shown"], c["note"]) == ("2", "73.0 ± 2.1", "")


def test_csv_of_many_tables_has_one_header() -> None:
    tables = [Table(name, "", ("x",), (TableRow(Row("m"), (Entry(1.5),)),)) for name in ("t", "u")]
    assert Tables(tables).to_text("csv").splitlines() == [
        "table,row,model,source,column,value,spread,trials,shown,note",
        "t,m,raw,,x,1.5,,,1.5,",
        "u,m,raw,,x,1.5,,,1.5,",
    ]


def test_csv_rows_are_keys_without_marks() -> None:
    rows = (
        TableRow(Row("fgmix"), (Entry(1.0),), mark="≈"),
        TableRow(Row("fgmix", model="swa"), (Entry(2.0),), mark="†"),
        TableRow(Row("fgmix"), (Entry(3.0),), source="paper"),
        TableRow(Row("fgmix"), (Entry(4.0),), name="3"),
    )
    table = Table("t", "", ("x",), rows, {Row("fgmix"): "FGMix"})
    assert labels(table) == ["FGMix ≈", "FGMix + SWA †", "FGMix (paper)", "3"]
    lines = list(csv.DictReader(io.StringIO(comma_separated([table]))))
    assert [(line["row"], line["model"], line["source"]) for line in lines] == [
        ("fgmix", "raw", ""),
        ("fgmix", "swa", ""),
        ("fgmix", "raw", "paper"),
        ("3", "raw", ""),
    ]


def test_best_counts_our_rows_only() -> None:
    ours = [TableRow(Row("a"), (Entry(50.04),)), TableRow(Row("b"), (Entry(49.96),))]
    table = Table("t", "", ("x",), (*ours, TableRow(Row("b"), (Entry(99.0),), source="paper")))
    assert [table.is_best(row, 0) for row in table.rows] == [True, True, False]  # both print 50.0
    assert not Table("t", "", ("x",), tuple(ours[:1])).is_best(ours[0], 0)  # nothing to be better than


def test_means_are_taken_as_domainbed_takes_them() -> None:
    """The mean first, then percent: of these two trials the other order prints another last digit."""
    trials = [0.25, 0.285]
    theirs = 100 * np.mean(trials)
    assert f"{theirs:.1f}" != f"{np.mean([100 * x for x in trials]):.1f}"
    (entry, *_) = dataset_table(select(sweep({"erm": [[x, x] for x in trials]}, domains="a b")), "toy").rows[0].entries
    assert entry.value == theirs


def test_unknown_format() -> None:
    with pytest.raises(UserError, match=r"table format 'cvs'.*'csv'"):
        Tables().to_text("cvs")
    assert Tables([Table("t", "c", (), ())]).to_text().startswith("### t")
