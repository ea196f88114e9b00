"""DomainBed's spellings: understood with a hint or refused, and listed in docs/from-domainbed.md as in the code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fgmix.algorithms import get, names
from fgmix.cli import app, domainbed
from fgmix.records.benchmarks import known_domains
from fgmix.records.schema import options as options_of_runs

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "from-domainbed.md").read_text()
# The list in DomainBed's algorithms.py.
THEIRS = (  # noqa: SIM905
    "ERM ERMPlusPlus Fish IRM GroupDRO Mixup MLDG CORAL MMD DANN CDANN MTL SagNet ARM VREx RSC SD ANDMask SANDMask IGA "
    "SelfReg Fishr TRM IB_ERM IB_IRM CAD CondCAD Transfer CausIRL_CORAL CausIRL_MMD EQRM RDM ADRMX URM"
).split()


def parsed(*words: str) -> dict[str, Any]:
    """What `fgmix train words` would be called with."""
    return get_command(app).commands["train"].make_context("train", list(words)).params  # type: ignore[attr-defined]


def test_a_command_of_domainbed_is_the_run_that_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = parsed(
        *("--dataset", "RotatedMNIST", "--algorithm", "IRM", "--test_envs", "0", "2", "--output_dir=x"),
        *("--hparams", '{"irm_lambda": 3.0, "lr": 0.01}', "--checkpoint_freq", "50", "--trial_seed", "1"),
        *("--holdout_fraction", "0.3", "--skip_model_save", "--hparams_seed", "0", "--task", "domain_generalization"),
    )
    hints = capsys.readouterr().err
    ours = parsed(
        *("--dataset", "rotated_mnist", "--algorithm", "irm", "--test-domain", "0", "--test-domain", "30"),
        *("--set", "lam=3.0", "--set", "lr=0.01", "--eval-every", "50", "--trial-seed", "1", "--out", "x"),
        *("--holdout-fraction", "0.3", "--keep", "none"),
    )
    assert theirs == ours
    assert not capsys.readouterr().err
    for hint in (
        "`--test_envs` is `--test-domain` here.",
        "`--output_dir` is `--out` here: the run gets a folder of its own in it.",
        "`--hparams` is `--set` here.",
        "`--skip_model_save` is `--keep none` here.",
        "`--hparams_seed 0` is not needed here",
        "`RotatedMNIST` is `rotated_mnist` here.",
        "`IRM` is `irm` here.",
        "`irm_lambda` is `lam` here.",
        "domain 2 of rotated_mnist is `30` here.",
    ):
        assert hints.count(f"hint: DomainBed's {hint}") == 1, hint


def test_a_sweep_of_domainbed_is_the_sweep_that_it_means() -> None:
    hints: list[str] = []
    theirs = "launch --datasets RotatedMNIST PACS --algorithms=ERM --n_hparams 2 --n_trials 1 --steps 9 --data_dir D"
    words = [*theirs.split(), "--command_launcher", "multi_gpu", "--single_test_envs", "--output_dir", "out"]
    assert list(domainbed.in_our_options("sweep", words, hints)) == [
        *("--datasets", "RotatedMNIST,PACS", "--algorithms", "ERM", "--hparams", "2", "--trials", "1"),
        *("--with", "steps=9", "--data-root", "D", "--out", "out"),
    ]
    given = {"datasets": "RotatedMNIST,PACS", "algorithms": "ERM, sam+CORAL", "set_": ["mmd_gamma=2"]}
    assert domainbed.in_our_names(given, hints) == {
        "datasets": "rotated_mnist,PACS",
        "algorithms": "erm,sam+coral",
        "set_": ["gamma=2"],
    }
    assert "DomainBed's `--steps` is `--with steps=…` here." in hints


def test_defaults_that_differ_are_told_with_the_option_that_gives_theirs() -> None:
    def told(command: str, words: str = "", **given: Any) -> list[str]:
        return list(domainbed.other_defaults(command, words.split(), given))

    (protocol,) = told("train", dataset="PACS", protocol="clean")
    assert "`--protocol domainbed-2020`" in protocol
    protocol, length = told("train", dataset="rotated_mnist", protocol="clean", steps=None)
    assert "`--steps 5001 --batch-size 64`" in length
    assert told("train", dataset="rotated_mnist", protocol="domainbed-2020", steps=9) == []
    assert told("fit", dataset="rotated_mnist", protocol="clean") == []
    protocol, pairs, length = told("sweep", datasets="PACS,colored_mnist", with_=["batch_size=2"])
    assert "`--with protocol=domainbed-2020`" in protocol
    assert "`--pairs`" in pairs
    assert "`--with steps=5001`" in length
    assert told("plan", "--single_test_envs", datasets="PACS", with_=["protocol=domainbed-2024"]) == []
    assert told("sweep", datasets="PACS", pairs=True, with_=["protocol=domainbed-2024"]) == []


@pytest.mark.parametrize(
    ("method", "theirs", "ours"),
    [
        ("dann", "lr_g", "lr"),
        ("cdann", "weight_decay_g", "weight_decay"),
        ("urm", "urm_discriminator_lr", "lr_d"),
        ("adrmx", "rmxd_lambda", "rmxd_lam"),
        ("condcad", "is_flipped", "flipped"),
    ],
)
def test_names_that_only_the_search_or_no_search_knows(method: str, theirs: str, ours: str) -> None:
    assert domainbed.in_our_names({"algorithm": method, "set_": [f"{theirs}=1"]}, [])["set_"] == [f"{ours}=1"]


def test_what_is_spelled_our_way_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hints: list[str] = []
    words = ["--algorithms", "erm,coral", "--hparams", "2", "--test-domains", "photo", "--with", "steps=2"]
    assert list(domainbed.in_our_options("sweep", words, hints)) == words
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RotatedMNIST").mkdir()  # the user's own folder
    given = {"dataset": "RotatedMNIST", "algorithm": "mtl", "test_domain": ["0"], "set_": ["ema=0.5"]}
    assert domainbed.in_our_names(given, hints) == given
    assert not hints


def test_no_name_of_domainbeds_can_be_taken_for_one_of_ours() -> None:
    """A setting that both have under one name is the same setting: the search draws it by that name."""
    assert domainbed.methods().keys() == {*THEIRS}
    for name in names():
        ours = get(name).Config.domainbed_names()
        assert all(theirs == own or theirs not in ours for own, theirs in ours.items()), name
    assert {option.partition("=")[0] for option in domainbed.OPTIONS_OF_RUNS.values()} <= options_of_runs().keys()


def rows(lines: Iterable[Iterable[str]], *head: str) -> str:
    table = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def option_table(script: str) -> str:
    return rows(
        ((f"`{theirs}`", becomes(each), each.note) for theirs, each in domainbed.OPTIONS[script].items()),
        *(f"`{script}`", "fgmix", "remark"),
    )


def becomes(spelling: domainbed.Spelling) -> str:
    if spelling.ours:
        return f"`{spelling.ours.replace('{}', '…')}`"
    only = " or ".join(f"`{value}`" for value in spelling.only)
    return "refused" if spelling.refused else f"{only}: ignored; else refused" if only else "ignored"


def method_table() -> str:
    lines = []
    for theirs, ours in sorted(domainbed.methods().items(), key=lambda pair: pair[1]):
        renamed = (f"`{a}` → `{b}`" for a, b in domainbed.settings(ours).items())
        lines.append((f"`{theirs}`", f"`{ours}`", ", ".join(renamed)))
    return rows(lines, "algorithm", "fgmix", "its hyper-parameters that have another name")


def run_table() -> str:
    found = domainbed.OPTIONS_OF_RUNS.items()
    return rows(
        ((f"`{a}`", f"`{domainbed.as_flag(b)}`", f"`--with {domainbed.as_pair(b)}`") for a, b in found),
        *("hyper-parameter", "`fgmix train`", "`fgmix sweep`"),
    )


def domain_table() -> str:
    lines = []
    for theirs in ("ColoredMNIST", "RotatedMNIST", "VLCS", "PACS", "OfficeHome", "TerraIncognita", "DomainNet"):
        ours = domainbed.in_our_names({"dataset": theirs}, [])["dataset"]
        domains = ", ".join(f"{number} `{name}`" for number, name in enumerate(known_domains(ours)))
        lines.append((f"`{theirs}`", f"`{ours}`", domains))
    return rows(lines, "dataset", "fgmix", "`--test_envs`")


@pytest.mark.parametrize(
    "table",
    [
        *(option_table("train"), option_table("sweep"), method_table(), run_table(), domain_table()),
        rows(domainbed.MISSING.items(), "DomainBed", "here"),
    ],
    ids=["train", "sweep", "methods", "runs", "domains", "missing"],
)
def test_the_page_has_the_tables_of_the_code(table: str) -> None:
    assert table in PAGE, f"docs/from-domainbed.md should contain\n{table}"
