"""fgmix plan, sweep, status and report, as a user types them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from copying import replace
from fgmix.cli import main
from fgmix.records.digests import seal_json
from fgmix.records.status import Plan, write_plan
from fgmix.sweeps.launchers import local
from results.folders import write
from results.made import sweep
from sweeps.toys import Here, make_data

RECORDS = Path(__file__).parents[2] / "docs" / "records" / "pacs.records.xz"
Fgmix = Callable[..., tuple[int, str, str]]
QUICK = [
    *("--trials", "1", "--hparams", "1"),
    *("--steps", "4", "--eval-every", "2", "--averaging-start", "2", "--device", "cpu"),
]

ERM = ["--datasets", "digits", "--algorithms", "erm"]


@pytest.fixture
def data(tmp_path: Path) -> str:
    return make_data(tmp_path)


@pytest.fixture
def fgmix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fgmix:
    """Exit code, output and errors of a command; its workers are this process."""

    def here(runs: Any, out: Path, report: Any, **_: Any) -> Any:
        return Here()(runs, out, report)

    monkeypatch.setattr(local, "run_local", here)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fgmix", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return call


def test_a_plan_prints_the_notes_of_its_runs(fgmix: Fgmix, data: str) -> None:
    what = ["--datasets", data, "--algorithms", "erm", "--test-domains", "us", *QUICK]
    assert fgmix("plan", *what)[2] == ""
    assert "note: No averaged model" in fgmix("plan", *what, "--averaging-start", "100")[2]


def test_a_report_accepts_runs_of_other_code_when_told(fgmix: Fgmix, tmp_path: Path) -> None:
    first, *others = sweep({"erm": [[0.5] * 3, [0.6] * 3]})
    write(tmp_path, [replace(first, code="old"), *(replace(other, code="new") for other in others)])
    code, printed, errors = fgmix("report", str(tmp_path))
    assert code == 0
    assert "| ERM | – [1] |" in printed
    assert "note: ERM on toy: 1 run of code old" in errors
    code, printed, errors = fgmix("report", str(tmp_path), "--accept-code")
    assert (code, errors) == (0, "")
    assert "| ERM | 55.0 ± 3.5 |" in printed
    packed = str(tmp_path / "all.records.xz")
    assert fgmix("report", str(tmp_path), "--accept-code", "--pack", packed)[0] == 2  # the codes would be lost


def test_from_plan_to_report(fgmix: Fgmix, data: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    what = ["--datasets", data, "--algorithms", "erm,coral", *QUICK]

    code, printed, _ = fgmix("plan", *what, "--workers", "2", "--budget", "8h")
    _, *by_method, whole, fits, power, spread = printed.splitlines()
    assert code == 0
    assert [line.split()[:4] for line in by_method] == [["scans", "erm", "3", "runs"], ["scans", "coral", "3", "runs"]]
    assert re.fullmatch(
        r"6 runs, about .+ on 2 workers, 0\.\d\d GB of weights, and up to 0\.\d\d GB of checkpoints .*\.", whole
    )
    assert fits == "The first 6 of 6 runs finish within 8 h 0 min, 6 of trial 0."
    assert power == "scans: 1 trial × 3 test domains detect about 6.5 points; 10 trials 1.1."
    assert "vary by 2.0 points" in spread

    code, printed, errors = fgmix("sweep", *what, "--out", out)
    assert code == 0
    assert printed == f"6 runs done in {out}. Tables: fgmix report {out}\n"
    assert "sweep: 6/6" in errors

    code, printed, errors = fgmix("plan", *what, "--out", out, "--spread-from", str(RECORDS))
    assert (code, errors) == (0, "")
    assert printed.startswith("0 runs")
    assert f"vary by 3.3 points between trials and test domains (the median of the methods in {RECORDS})" in printed
    assert fgmix("status", out)[1] == "6 done, 0 diverged, 0 running, 0 failed, 0 waiting\n"
    assert fgmix("status", out, "--watch")[1] == fgmix("status", out)[1]  # nothing left to watch
    code, printed, _ = fgmix("report", out, "--spread", "std")
    assert code == 0
    assert printed.startswith("### scans\n")
    assert "| CORAL" in printed
    code, printed, _ = fgmix("report", out, "--explain", "scans", "coral", "us")
    assert code == 0
    assert f"  reported: {out}/scans-coral-us-" in printed
    assert "    fgmix train --dataset" in printed

    files = [str(tmp_path / name) for name in ("one.records.xz", "two.records.xz")]
    assert [fgmix("report", out, "--pack", file)[0] for file in files] == [0, 0]
    there = tmp_path / "there"
    code, printed, _ = fgmix("sweep", *what, "--out", str(there), "--records", files[0], "--records", files[1])
    assert (code, printed) == (0, f"6 runs done in {there}. Tables: fgmix report {there}\n")
    assert len(list(there.glob("*/record.json"))) == 6
    assert not list(there.glob("*/sessions.jsonl"))  # none was trained


def test_a_grid_by_hand(fgmix: Fgmix, data: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    what = ["--datasets", data, "--algorithms", "fgmix", "--test-domains", "us", *QUICK]
    assert fgmix("sweep", *what, "--grid", "lam=1,3", "--grid", "alpha=0.1,0.3", "--out", out)[0] == 0
    printed = fgmix("report", out)[1]
    assert "### scans: FGMix by λ₀ and α" in printed
    assert "### scans: FGMix + SWA by λ₀ and α" in printed


def test_a_failed_run_is_told_with_exit_code_1(fgmix: Fgmix, data: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    what = ["--datasets", data, "--algorithms", "erm,l2a_ot", "--test-domains", "us", *QUICK, "--out", out]
    code, printed, _ = fgmix("sweep", *what)
    assert code == 1
    assert printed.startswith("1 runs done")
    assert "--retry-failed" in printed
    assert "convolutional" in fgmix("status", out)[1]
    assert fgmix("sweep", *what, "--retry-failed")[0] == 1


def test_domainbeds_folders_out_and_in(fgmix: Fgmix, data: str, tmp_path: Path) -> None:
    out, theirs = str(tmp_path / "out"), str(tmp_path / "domainbed")
    fgmix("sweep", "--datasets", data, "--algorithms", "erm", *QUICK, "--out", out)
    ours = fgmix("report", out, "--to-domainbed", theirs)[1]
    read = fgmix("report", "--from-domainbed", theirs)[1]
    assert re.findall(r"\| ERM \|.*", read)[0] == re.findall(r"\| ERM \|.*", ours)[0]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sweeps and options that `fgmix sweep` would run."""
    from fgmix.sweeps import execute

    given: list[Any] = []

    def instead(sweeps: Any, *_: Any, **options: Any) -> Any:
        given.append((sweeps, options))
        return execute.SweepResult((), ())

    monkeypatch.setattr(execute, "run_sweeps", instead)
    return given


def test_a_list_may_be_given_in_several_flags(fgmix: Fgmix, given: list[Any], tmp_path: Path) -> None:
    names = ["--algorithms", "erm", "--algorithms", "coral,sd", "--test-domains", "us", "--test-domains", "mnist"]
    assert fgmix("sweep", "--datasets", "digits", *names, "--out", str(tmp_path))[0] == 0
    (((sweep,), _),) = given
    assert (sweep.algorithms, sweep.test_domains) == (("erm", "coral", "sd"), ("us", "mnist"))


def test_a_preset_takes_changes(fgmix: Fgmix, given: list[Any], tmp_path: Path) -> None:
    preset = ["--preset", "paper-ablation", "--scale", "small", "--out", str(tmp_path)]
    assert fgmix("sweep", *preset, "--trials", "1", "--steps", "9", "--set", "lr=0.5", "--retry-failed")[0] == 0
    (((sweep,), options),) = given
    assert options == {"retry_failed": True, "log": (), "finished": [], "accept_code": False, "progress": True}
    assert (sweep.datasets, sweep.trials, sweep.hparams) == (("digits",), 1, 1)
    assert (sweep.common, sweep.settings) == ({"steps": 9}, {"lr": 0.5})
    assert sweep.algorithms == ("erm", *(f"fgmix_{v}" for v in "abcdef"), "fgmix")


def test_the_quick_preset_takes_algorithms(fgmix: Fgmix, given: list[Any], tmp_path: Path) -> None:
    assert fgmix("sweep", "--preset", "quick", "--algorithms", "erm,coral", "--out", str(tmp_path))[0] == 0
    (((sweep,), _),) = given
    assert (sweep.datasets, sweep.algorithms) == (("typefaces",), ("erm", "coral"))


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (["--algorithms", "erm"], "--datasets"),
        (["--preset", "quick", *ERM], "--datasets"),
        (["--preset", "paper-ablation", "--algorithms", "erm"], "--preset"),
        (["--preset", "paper-abalation"], "'paper-ablation'"),
        (["--datasets", "digits", "--algorithms", "erm,corall"], "'coral'"),
        (["--datasets", "digitz", "--algorithms", "erm"], "'digits'"),
        ([*ERM, "--set", "gama=3"], "'gama'"),
        ([*ERM, "--backbone", "resnet5O"], "resnet50"),
        ([*ERM, "--head", "foo"], "`head`"),
        ([*ERM, "--dropout", "7"], "`dropout`"),
        ([*ERM, "--set", "lr"], "--set"),
        ([*ERM, "--grid", "lr"], "--grid"),
        ([*ERM, "--grid", "lr="], "--grid"),
        ([*ERM, "--device", "nosuch"], "'nosuch'"),
        ([*ERM, "--device", "cpu,nosuch"], "'nosuch'"),
        ([*ERM, "--device", ","], "`device`"),
        ([*ERM, "--device", "cuda:1", "--launcher", "ray"], "--gpus"),
        ([*ERM, "--gpus", "1"], "--gpus"),
        ([*ERM, "--runs-per-gpu", "2"], "GPU"),
        ([*ERM, "--runs-per-gpu", "2", "--workers", "2"], "--runs-per-gpu"),
        ([*ERM, "--runs-per-gpu", "2", "--launcher", "slurm"], "--gpus"),
        ([*ERM, "--scale", "small"], "--scale"),
        (["--preset", "paper-ablation", "--scale", "smal"], "'small'"),
        ([*ERM, "--launcher", "slum"], "'slurm'"),
        ([*ERM, "--space", "papers"], "'paper'"),
    ],
)
def test_mistakes(fgmix: Fgmix, tmp_path: Path, more: list[str], name: str) -> None:
    code, _, errors = fgmix("sweep", *more, "--out", str(tmp_path / "out"))
    assert code == 2
    assert errors.startswith("fgmix: ")
    assert name in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.glob("out/*/error.json"))


def test_slurm_gives_whole_gpus_and_takes_named_options(fgmix: Fgmix, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    what = ["--datasets", "digits", "--algorithms", "erm", "--out", str(tmp_path)]
    code, _, errors = fgmix("sweep", *what, "--launcher", "slurm", "--gpus", "0.5")
    assert code == 2
    assert "Runs share a GPU with --runs-per-gpu" in errors
    code, _, errors = fgmix("sweep", *what, "--launcher", "slurm", "--slurm", "foo")
    assert code == 2
    assert "Expected --slurm name=value. Found 'foo'" in errors


@pytest.mark.parametrize("launcher", [("ray", "ray"), ("slurm", "submitit")])
def test_a_launcher_that_is_not_installed_says_how_to_get_it(
    fgmix: Fgmix, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, launcher: tuple[str, str]
) -> None:
    name, module = launcher
    monkeypatch.setattr("fgmix.errors.find_spec", lambda _: None)
    what = ["--datasets", "digits", "--algorithms", "erm", "--out", str(tmp_path)]
    code, _, errors = fgmix("sweep", *what, "--launcher", name)
    assert code == 2
    assert module in errors
    assert f"pip install 'fgmix[{name}]'" in errors


@pytest.mark.parametrize("command", [["report", "nowhere"], ["status", "nowhere"]])
def test_a_folder_without_runs(fgmix: Fgmix, command: list[str]) -> None:
    code, _, errors = fgmix(*command)
    assert code == 2
    assert "fgmix sweep --out nowhere" in errors


# Files that are not what they should be


def bad_json(content: Any) -> bytes:
    """A text as it stands, or a content with the digest that fgmix would give it."""
    return content.encode() if isinstance(content, str) else seal_json(content)


@pytest.mark.parametrize("content", ["[]", "{}", {"schema": 1}, {"schema": 2, "spec": [], "status": "done"}])
def test_a_record_that_is_not_one_is_skipped_and_named(fgmix: Fgmix, data: str, tmp_path: Path, content: Any) -> None:
    out = tmp_path / "out"
    file = out / "bad" / "record.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(bad_json(content))
    code, _, errors = fgmix("report", str(out))
    assert code == 2
    assert errors.startswith(f"fgmix: Expected finished runs in {out}. Found none. Skipped a record. Expected ")
    assert str(file) in errors
    fgmix("sweep", "--datasets", data, "--algorithms", "erm", "--test-domains", "us", *QUICK, "--out", str(out))
    code, printed, errors = fgmix("report", str(out))
    assert code == 0
    assert "| ERM |" in printed
    assert errors.startswith("note: Skipped a record. Expected ")
    assert str(file) in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("content", ["{}", "[]", {"runs": 3, "grid": []}, {"runs": [], "grid": ["lam"]}])
def test_a_plan_that_is_not_one(fgmix: Fgmix, tmp_path: Path, content: Any) -> None:
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "x.json").write_bytes(bad_json(content))
    code, _, errors = fgmix("status", str(tmp_path))
    assert code == 2
    assert errors.startswith(f"fgmix: Expected the plan of a sweep at {tmp_path / 'sweeps' / 'x.json'}.")
    assert "Delete it" in errors


@pytest.mark.parametrize("content", ["[]", {"x": 1}])
@pytest.mark.parametrize("file", ["record.json", "error.json"])
def test_a_result_that_is_not_one_is_shown_as_failed(fgmix: Fgmix, tmp_path: Path, file: str, content: Any) -> None:
    write_plan(tmp_path, Plan(("a", "b"), {}), {})
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / file).write_bytes(bad_json(content))
    code, printed, _ = fgmix("status", str(tmp_path))
    assert code == 0
    counts, _, failed = printed.splitlines()
    assert counts == "0 done, 0 diverged, 0 running, 1 failed, 1 waiting"
    assert failed.startswith("failed: a: Expected ")
    assert str(tmp_path / "a" / file) in printed


def test_no_looks_into_the_past(fgmix: Fgmix, tmp_path: Path) -> None:
    code, _, errors = fgmix("status", str(tmp_path), "--watch", "--every", "-1")
    assert code == 2
    assert "--every" in errors
