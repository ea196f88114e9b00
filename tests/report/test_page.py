"""The page: what it holds, that nothing from data is read as HTML, and that nothing of a user's is overwritten."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fgmix.report
from copying import replace
from fgmix.cli import main, plots
from fgmix.errors import UserError
from fgmix.figures.differences import collect_ranks
from fgmix.figures.kinds import KINDS, save_arrays
from fgmix.records.files import write_json
from fgmix.records.metrics import metrics
from fgmix.records.status import Plan, write_plan
from fgmix.report.page import Frame, load_figures, pack_block, render_page, write_json_block, write_report
from fgmix.results import statistics
from fgmix.results.explain import explain_number
from fgmix.results.formats import Tables
from fgmix.results.ranks import rank_rows
from fgmix.results.read import read_runs
from fgmix.results.report import Choices, all_tables
from fgmix.results.runs import Grid, Runs
from fgmix.results.selection import Selected, select
from figures import made
from report import folders
from report.folders import NASTY
from report.seen import Seen
from results.made import finished, random_sweep, run


def block(page: str, id: str) -> list[dict[str, object]]:
    """What a block of data holds."""
    found = re.search(rf'<script type="application/([a-z-]+)" id="{id}">(.*?)</script>', page)
    assert found
    text = found[2] if found[1] == "json" else zlib.decompress(base64.b64decode(found[2]))
    content: list[dict[str, object]] = json.loads(text)
    return content


FIGURES = ["differences-erm", "ranks", "domains-toy", "line-toy"]  # of the page of `folders.records`


def list_figures(page: str) -> list[str]:
    """The names of the figures of a page, in order."""
    return re.findall(r'<figure id="figure-[0-9]+-([^"]+)"', page)


def page(results: Runs) -> str:
    return render_page(Frame("Title"), results)


def test_tables_statistics_and_runs_are_on_the_page() -> None:
    text = page(Runs(folders.records()))
    seen = Seen(text)
    for part in (
        "Differences from ERM",
        "+3.0 [+3.0, +3.0]",
        "▲: significantly better",
        "Mixup †",
        "64.5 ± 0.6",
    ):
        assert part in seen.text
    assert list_figures(text) == FIGURES
    runs = block(text, "run-rows")
    assert len(runs) == 36
    assert runs[0]["accuracy"] == {"raw": 50.0}
    assert str(runs[0]["command"]).startswith("fgmix train --dataset toy --algorithm erm --test-domain a ")
    assert (runs[0]["method"], runs[0]["algorithm"]) == ("ERM", "erm")
    assert runs[0]["reported"] == ["raw"]


def test_another_baseline_is_named_in_every_sentence() -> None:
    choices = Choices(baseline="fgmix", margin=9)
    text = Seen(render_page(Frame("Title"), Runs(folders.records()), choices)).text
    assert "points relative to FGMix" in text
    assert "Differences from FGMix" in text
    assert "equivalent within ±9" in text
    assert "--kind differences --selection training_domain --baseline fgmix" in text
    assert not re.search("(from|against|to|than) ERM", text)


def test_only_the_selected_hyper_parameter_sample_is_reported() -> None:
    both = [finished("a", 0.5, draw=0, validation=0.7), finished("a", 0.9, draw=1, validation=0.6)]
    assert [run["reported"] for run in block(page(Runs(both)), "run-rows")] == [["raw"], []]


def test_runs_are_in_the_order_of_the_tables() -> None:
    runs = block(page(Runs(folders.records()[::-1])), "run-rows")
    assert [(run["algorithm"], run["domain"], run["trial"]) for run in runs[:5]] == [
        *(("erm", "a", trial) for trial in range(4)),
        ("erm", "b", 0),
    ]
    assert runs[-1]["algorithm"] == "fgmix"


def test_numbers_link_to_the_runs_behind_them() -> None:
    text = page(Runs(folders.records()))
    assert '<a href="#runs" data-dataset="toy" data-algorithm="fgmix" data-domain="b">' in text
    assert '<a href="#runs" data-dataset="toy" data-algorithm="fgmix">' in text  # the average: all domains


def test_text_from_data_is_never_html(tmp_path: Path) -> None:
    domains = f"a b {NASTY.replace(' ', '_')}"
    nasty = [
        finished(test, 0.5, domains=domains, dataset=NASTY, algorithm=name, settings={"x": NASTY})
        for test in domains.split()
        for name in ("erm", NASTY)
    ]
    folder = folders.write(tmp_path / "runs", nasty)
    (folder / "bad").mkdir()
    write_json(folder / "bad" / "error.json", {"error": NASTY, "traceback": ""})
    write_plan(folder, Plan(("bad",), {}), {})
    text = write_report(read_runs(folder)).read_text()
    seen = Seen(text)
    assert "img" not in seen.tags
    assert text.count("</script>") == seen.tags.count("script") == 4
    assert NASTY in seen.text
    assert f"bad: {NASTY}" in seen.text


def test_the_policy_lets_only_the_pages_own_script_run() -> None:
    text = page(Runs(folders.records()))
    policy = Seen(text).attributes["content"]  # the last meta with a content
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (script[0], style[0])]
    assert policy is not None
    assert f"script-src 'sha256-{hashes[0]}'" in policy
    assert f"style-src 'sha256-{hashes[1]}'" in policy
    assert "connect-src 'none'" in policy
    assert "default-src 'none'" in policy


def test_nothing_points_outside() -> None:
    text = page(Runs(folders.records()))
    without_namespace = text.replace('"http://www.w3.org/2000/svg"', "")  # a name, which nothing fetches
    without_namespace = re.sub(r'(octet-stream" id="run-rows">)[^<]*', r"\1", without_namespace)  # any letters
    assert not re.search(r"(https?:)?//[a-z0-9]", without_namespace.replace("// ", ""))


def test_figures_are_taken_from_folders_called_figures(tmp_path: Path) -> None:
    folders.write(tmp_path, folders.records())
    folders.add_figures(tmp_path)
    assert len(load_figures(tmp_path)[0]) == len(KINDS)
    text = write_report(read_runs(tmp_path)).read_text()
    assert text.count('<figure id="figure-') == len(KINDS) + len(FIGURES)
    assert f"fgmix plot results {tmp_path / 'figures' / 'Embedding.npz'}" in text


def test_unfinished_and_broken_figures_do_not_stop_the_page(tmp_path: Path) -> None:
    folders.write(tmp_path, folders.records())
    folders.add_figures(tmp_path)
    (tmp_path / "figures" / ".tsne@.partial.npz").write_bytes(b"half")
    (tmp_path / "figures" / "Embedding.npz").write_bytes(b"PK torn")
    text = Seen(write_report(read_runs(tmp_path)).read_text()).text
    assert f"Expected the arrays of a figure at {tmp_path / 'figures' / 'Embedding.npz'}" in text
    assert "partial" not in text


def test_figures_of_one_name_stay_two(tmp_path: Path) -> None:
    folders.write(tmp_path, folders.records())
    for place, best in (("one", 1.2), ("two", 1.3)):
        (tmp_path / place / "figures").mkdir(parents=True)
        ranks = replace(made.ranks(), ranks=np.array([best, 2.0, 3.1, 3.7]))
        save_arrays(tmp_path / place / "figures" / "ranks.npz", ranks)
    text = write_report(read_runs(tmp_path)).read_text()
    assert list_figures(text) == [*FIGURES, "ranks", "ranks"]


def test_nothing_is_shown_twice(tmp_path: Path) -> None:
    """One figure in two folders, and a saved figure of what the page draws itself."""
    folders.write(tmp_path, folders.records())
    for place in ("one", "two"):
        (tmp_path / place / "figures").mkdir(parents=True)
        save_arrays(tmp_path / place / "figures" / "tsne.npz", made.embedding())
    selection = select(folders.records())
    ranks = collect_ranks(rank_rows(selection), selection.labels)
    save_arrays(tmp_path / "one" / "figures" / "cd.npz", ranks)
    text = write_report(read_runs(tmp_path)).read_text()
    assert list_figures(text) == [*FIGURES, "tsne"]
    assert text.count("<h3>Ranks</h3>") == 1  # the figure, without the table of the same numbers


def test_a_dataset_with_two_methods_has_a_figure_of_its_domains() -> None:
    names = ("erm", "mixup")
    both = [finished("a", 0.5 + 0.1 * i, algorithm=name) for i, name in enumerate(names)] + [
        finished("a", 0.5, algorithm="coral", dataset="other")
    ]
    assert [chart["id"] for chart in block(page(Runs(both)), "charts")] == ["1-domains-toy"]


@pytest.mark.parametrize(
    ("accuracy", "shown"), [(0.0625, "6.2"), (0.5625, "56.2"), (0.62249, "62.2"), (0.62746, "62.7")]
)
def test_one_number_is_rounded_one_way_everywhere(accuracy: float, shown: str) -> None:
    """Ties, which JavaScript rounds up, and numbers that a first rounding would make ties: 62.746 → 62.75 → 62.8."""
    results = Runs([finished("a", accuracy, domains="a b")])
    (table,) = all_tables(results, select(results.records), Choices())
    for format, around in (("md", "| {} |"), ("latex", "& {} &"), ("csv", ",{},")):
        assert around.format(shown) in Tables([table]).to_text(format)
    text = page(results)
    assert f">{shown}</a>" in text
    (run,) = block(text, "run-rows")
    assert run["shown"] == {"raw": shown}
    assert run["accuracy"] == {"raw": 100 * accuracy}  # to sort by
    assert f"accuracy {shown} %" in explain_number(results, "toy", "erm", "a")[0]


def test_no_script_rounds_an_accuracy() -> None:
    """JavaScript rounds ties up, Python to even: the page's script prints what fgmix has rounded."""
    assert "toFixed" not in (Path(fgmix.report.__file__).parent / "assets" / "runs.js").read_text()


def test_accuracies_of_the_list_are_those_of_the_rule() -> None:
    parts = [{"a": (accuracy, accuracy), "b": (None, validation)} for accuracy, validation in ((0.4, 0.9), (0.7, 0.1))]
    record = run("a", dict(zip((10, 20), parts)))
    for rule, shown in (("training_domain", 40.0), ("oracle", 70.0)):
        text = render_page(Frame("Title"), Runs([record]), Choices(rule=rule))
        assert block(text, "run-rows")[0]["accuracy"] == {"raw": shown}


def test_runs_of_a_grid_are_in_their_own_groups() -> None:
    plain = finished("a", 0.5, algorithm="fgmix")
    points = [finished("a", 0.5, algorithm="fgmix", settings={"lam": lam, "alpha": 1.0}) for lam in (1.0, 3.0)]
    grid = Grid({"lam": (1.0, 3.0), "alpha": (1.0,)}, tuple(points))
    runs = block(page(Runs([plain], [grid])), "run-rows")
    assert [run["groups"] for run in runs] == [[""], ["λ₀ = 1, α = 1"], ["λ₀ = 3, α = 1"]]


def test_commands_of_figures_name_their_folder(tmp_path: Path) -> None:
    variants = [finished(test, 0.5, algorithm=f"fgmix_{name}") for name in "ab" for test in "abc"]
    folder = folders.write(tmp_path / "my runs", [*folders.records(), *variants])
    text = Seen(write_report(read_runs(folder)).read_text()).text
    commands = {command.name or command.callback.__name__ for command in plots.registered_commands if command.callback}
    assert set(re.findall(r"fgmix plot (\w+)", text)) == {"cd", "results"} <= commands
    assert f"fgmix plot cd '{folder}' --selection training_domain" in text


def test_names_that_are_no_text(tmp_path: Path) -> None:
    results = Runs([finished("a", 0.5, dataset="x\udcff")])
    assert "x\\udcff" in write_report(results, tmp_path).read_text()


def test_curves_of_a_run_are_behind_it() -> None:
    (run,) = block(page(Runs([finished("a", 0.5)])), "run-rows")
    curves = run["curves"]
    assert isinstance(curves, dict)
    assert [panel["title"] for panel in curves["panels"]] == ["Holdout accuracy"]  # made by hand: without losses


def test_metrics_of_a_test_domain_are_behind_its_run() -> None:
    found = metrics(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0]), np.tile([0.6, 0.4], (4, 1)))
    record = replace(finished("a", 0.75), unseen={"swa": {"a": found}}, classes=("cat", "dog"))
    (run,) = block(page(Runs([record])), "run-rows")
    assert run["unseen"] == [
        "a, SWA weights: accuracy 75.0 %, share of the most frequent class 75.0 %, balanced accuracy 50.0 %, "
        "macro F1 42.9 %, AUROC 50.0 %, calibration error 15.0 %."
    ]
    assert run["confusions"] == [{"domain": "a", "classes": ["cat", "dog"], "matrix": [[3, 0], [1, 0]]}]


def test_a_run_that_diverged_at_once_says_so() -> None:
    diverged = replace(finished("a", 0.5), evaluations=(), status="diverged", diverged_at=3)
    (run,) = block(page(Runs([diverged])), "run-rows")
    assert run["status"] == "diverged at step 3"
    assert run["curves"] is None


def test_nothing_finished_yet() -> None:
    assert "No run has finished yet." in page(Runs([]))


def test_a_file_of_the_users_is_not_overwritten(tmp_path: Path) -> None:
    folders.write(tmp_path, folders.records())
    (tmp_path / "report.html").write_text("my own")
    with pytest.raises(UserError, match=r"Found another file. Choose another path with --out"):
        write_report(read_runs(tmp_path))
    assert (tmp_path / "report.html").read_text() == "my own"
    first = write_report(read_runs(tmp_path), tmp_path / "new" / "r.html").read_text()
    assert write_report(read_runs(tmp_path), tmp_path / "new" / "r.html").read_text() == first


def test_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.write(tmp_path, folders.records(), waiting=2)
    monkeypatch.setattr("sys.argv", ["fgmix", "report", str(tmp_path), "--format", "html", "--spread", "std"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    path = Path(capsys.readouterr().out.strip())
    assert path == tmp_path / "report.html"
    text = Seen(path.read_text()).text
    assert "64.5 ± 1.1" in text
    assert "36 done" in text
    assert "2 waiting" in text


def test_a_report_of_several_folders_has_a_title_and_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, trials in (("laptop", 2), ("cluster", 4)):
        folders.write(tmp_path / name, folders.records(trials))
    words = [str(tmp_path / "laptop"), str(tmp_path / "cluster"), "--format", "html", "--title", "Both <machines>"]
    monkeypatch.setattr("sys.argv", ["fgmix", "report", *words])
    with pytest.raises(SystemExit):
        main()
    text = Path(capsys.readouterr().out.strip()).read_text()
    assert "<h1>Both &lt;machines&gt;</h1>" in text
    seen = Seen(text).text
    assert "FGMix (laptop)" in seen
    assert "FGMix (cluster)" in seen
    runs = block(text, "run-rows")
    assert {(run["origin"], run["algorithm"]) for run in runs if run["method"] == "ERM"} == {
        ("laptop", "erm @ laptop"),
        ("cluster", "erm @ cluster"),
    }


def test_folders_of_one_sweep_and_its_copy(tmp_path: Path) -> None:
    """Copies are named where they are not ranked, commands name all folders, and one figure has all rows."""
    names = ("erm", "fgmix_a", "fgmix")
    records = [
        finished(test, 0.5 + 0.1 * i + 0.01 * trial, algorithm=name, trial=trial)
        for i, name in enumerate(names)
        for trial in range(2)
        for test in "abc"
    ]
    places = [folders.write(tmp_path / name, records) for name in ("z first", "second")]
    text = write_report(read_runs(*places)).read_text()
    seen = Seen(text).text
    assert f"fgmix plot cd '{places[0]}' {places[1]} --selection training_domain" in seen
    assert "Not ranked: ERM (second) (identical to ERM (z first))" in seen
    titles = [str(chart["title"]) for chart in block(text, "charts")]
    assert titles[:2] == ["Differences from ERM", "Ranks"]
    assert len({*titles}) == len(titles) == len(FIGURES)


def test_folders_without_a_dataset_in_common(tmp_path: Path) -> None:
    """No table over datasets that no method spans, no figure twice, ranks of the dataset that has them."""
    theirs = [finished(test, 0.7, dataset="other", trial=trial) for test in "abc" for trial in range(2)]
    places = [folders.write(tmp_path / "ours", folders.records()), folders.write(tmp_path / "theirs", theirs)]
    text = write_report(read_runs(*places)).read_text()
    titles = [str(chart["title"]) for chart in block(text, "charts")]
    assert titles[:2] == ["Differences from ERM", "Ranks, toy"]
    assert len({*titles}) == len(titles) == len(FIGURES)
    seen = Seen(text).text
    assert "Overall" not in seen
    assert "other: ERM reaches 70.0 % on average. It is the only method." in seen
    assert "--dataset toy --selection training_domain" in seen


def test_figures_of_several_datasets_name_theirs() -> None:
    both = [*folders.records(), *(finished(t, 0.5, dataset="other", trial=r) for t in "abc" for r in range(4))]
    both += [finished(t, 0.6, dataset="other", trial=r, algorithm="fgmix") for t in "abc" for r in range(4)]
    titles = [str(chart["title"]) for chart in block(page(Runs(both)), "charts")]
    assert titles[:3] == [f"Differences from ERM, {name}" for name in ("other", "toy", "all datasets")]


def test_the_list_of_runs_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 runs stay below 5 MB: 250 bytes a run beyond those whose curves the page contains."""
    monkeypatch.setattr("fgmix.report.runs.CURVES", 0)
    sizes = [len(page(Runs(random_sweep(1, 2, 2, draws)))) for draws in (2, 12)]
    assert (sizes[1] - sizes[0]) / 160 < 250


def test_the_list_of_runs_shows_arms() -> None:
    records = [finished("a", 0.5, algorithm="fgmix", arm=arm) for arm in ("", "γ = 10")]
    assert [row["method"] for row in block(page(Runs(records)), "run-rows")] == ["FGMix", "FGMix (γ = 10)"]


def test_of_very_many_runs_those_behind_the_numbers_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    records = random_sweep(1, 2, 1, 3)
    monkeypatch.setattr("fgmix.report.runs.MANY", len(records) - 1)
    text = page(Runs(records))
    reported = {id(found.record) for found in select(records).cells.values() if isinstance(found, Selected)}
    assert len(block(text, "run-rows")) == len(reported) < len(records)
    assert f"{len(records)} finished. Listed are the {len(reported)} behind the numbers above" in Seen(text).text


def test_without_torch_and_without_matplotlib() -> None:
    code = "import sys, fgmix.report.page; print({'torch', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_markdown_imports_neither_figures_nor_the_page(tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "runs", folders.records(1))
    code = (
        f"import atexit, sys; sys.argv = ['fgmix', 'report', {str(folder)!r}, '--format', 'md']; "
        "rooms = ('fgmix.figures', 'fgmix.report', 'torch', 'matplotlib'); "
        "atexit.register(lambda: print([name for name in sys.modules if name.startswith(rooms)])); "
        "from fgmix.cli import main; main()"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "| FGMix |" in out
    assert out.splitlines()[-1] == "[]"


def test_a_page_compares_its_methods_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(statistics, "_are_copies", lambda first, second: calls.append((first, second)))
    page(Runs(folders.records()))
    assert len(calls) == 6  # three pairs of rows, on the only dataset and over all: not again for each table and figure


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@settings(max_examples=25)
@given(st.recursive(TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)))
def test_any_data_survives_its_block(content: object) -> None:
    text = write_json_block(content)
    assert "<" not in text
    assert json.loads(text) == content
    assert json.loads(zlib.decompress(base64.b64decode(pack_block(content)))) == content


def test_numbers_that_json_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json_block([float("nan")])
