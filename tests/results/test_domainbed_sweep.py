"""DomainBed's own recorded sweep: ERM on VLCS, two trials of two hyper-parameter samples, with pairs of test domains.

`domainbed_sweep.csv` holds how many samples of each split were correct at each evaluation: the numbers of the forty
results.jsonl in domainbed/misc/test_sweep_data (facebookresearch/DomainBed, MIT licence), each accuracy times its
split's size. What must come out is what DomainBed's collect_results is recorded to print for them.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest

from fgmix.cli import app
from fgmix.results.read import read_runs
from fgmix.results.report import Choices, all_tables
from fgmix.results.selection import Rule, select
from fgmix.sweeps.search import sample_hparams
from results.test_domainbed import write_run

COUNTS = Path(__file__).parent / "domainbed_sweep.csv"
SIZES = (1132, 283, 2125, 531, 2626, 656, 2701, 675)  # of Caltech101, LabelMe, SUN09 and VOC2007: in, out
PRINTED: dict[Rule, str] = {
    "training_domain": "| ERM | 98.0 ± 0.2 | 64.2 ± 0.8 | 74.1 ± 0.4 | 77.1 ± 0.2 | 78.3 |",
    "leave_one_out": "| ERM | 96.9 ± 1.0 | 64.4 ± 0.9 | 70.5 ± 0.5 | 76.7 ± 0.1 | 77.1 |",
    "oracle": "| ERM | 96.9 ± 1.0 | 65.9 ± 0.5 | 71.6 ± 1.3 | 76.9 ± 0.3 | 77.8 |",
}
AVERAGES: dict[Rule, str] = {
    "training_domain": "78.3 ± 0.0",
    "leave_one_out": "77.1 ± 0.1",
    "oracle": "77.8 ± 0.3",
}
# Draw 1 of both trials, as its records have it: learning rate, weight decay, batch, dropout.
DRAWN = {
    0: (2.7028930742148706e-05, 0.00044832883881609976, 39, 0.5),
    1: (2.2352558725944602e-05, 1.9967320578799288e-06, 8, 0.5),
}


def write_sweep(folder: Path, dataset: str) -> Path:
    """The recorded numbers as DomainBed's folders, one a run."""
    runs: dict[tuple[str, str, str], list[tuple[int, list[float]]]] = defaultdict(list)
    with COUNTS.open() as file:
        for trial, test_envs, h, step, *counts in list(csv.reader(file))[1:]:
            accuracies = [int(right) / size for right, size in zip(counts, SIZES, strict=True)]
            runs[trial, test_envs, h].append((int(step), accuracies))
    for (trial, test_envs, h), lines in runs.items():
        name = f"{dataset} trial {trial} test {test_envs} draw {h}"
        args = {"dataset": dataset, "trial_seed": int(trial), "hparams_seed": int(h), "steps": 1001}
        write_run(folder / name, [int(env) for env in test_envs.split()], lines, **args)
    return folder


@pytest.mark.parametrize("rule", PRINTED)
def test_the_table_is_the_one_that_domainbed_printed(
    tmp_path: Path, rule: Rule, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path, "VLCS")
    app(["report", "--from-domainbed", str(tmp_path), "--selection", rule], standalone_mode=False)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert PRINTED[rule] in printed.out.splitlines()


@pytest.mark.parametrize("rule", AVERAGES)
def test_so_is_the_spread_of_the_average(tmp_path: Path, rule: Rule) -> None:
    """Over trials of their means over domains. The overall table takes two datasets: the same numbers, twice."""
    write_sweep(write_sweep(tmp_path, "VLCS"), "Again")
    results = read_runs(from_domainbed=tmp_path)
    tables = all_tables(results, select(results.records, rule), Choices(rule))
    (overall,) = (table for table in tables if table.title == "Overall")
    assert [entry.shown for entry in overall.rows[0].entries[:2]] == [AVERAGES[rule]] * 2


@pytest.mark.parametrize("trial", DRAWN)
def test_its_draws_are_ours(trial: int) -> None:
    drawn = sample_hparams("erm", "VLCS", "images", 1, trial, "domainbed")
    settings = drawn["settings"]
    assert (settings["lr"], settings["weight_decay"], drawn["batch_size"], drawn["dropout"]) == DRAWN[trial]
