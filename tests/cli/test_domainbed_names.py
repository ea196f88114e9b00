"""DomainBed's options and names: an error names ours, and docs/from-domainbed.md lists them as in the code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from fgmix.algorithms import get, names
from fgmix.cli.domainbed import OURS, RUN_OPTIONS, advise, advise_setting
from fgmix.data import names as dataset_names
from fgmix.errors import UserError, unknown
from fgmix.records.benchmarks import from_domainbed_dataset, known_domains
from fgmix.records.options import options_of
from fgmix.records.schema import RunSpec, flag_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "from-domainbed.md").read_text()
# The list in DomainBed's algorithms.py.
THEIRS = (  # noqa: SIM905
    "ERM ERMPlusPlus Fish IRM GroupDRO Mixup MLDG CORAL MMD DANN CDANN MTL SagNet ARM VREx RSC SD ANDMask SANDMask IGA "
    "SelfReg Fishr TRM IB_ERM IB_IRM CAD CondCAD Transfer CausIRL_CORAL CausIRL_MMD EQRM RDM ADRMX URM"
).split()
METHODS = {theirs: name for name in names() if (theirs := get(name).domainbed_name)}


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("train --dataset PACS --test_envs 0 2", "--test-domain"),
        ("train --output_dir=x", "--out"),
        ('train --hparams {"lr":0.1}', "--set"),
        ("train --hparams={}", "--set"),
        ("sweep launch --data_dir D", "fgmix sweep"),
        ("sweep --data_dir D", "--data-root"),
        ("sweep --algorithms ERM CORAL --n_trials 1", "--algorithms ERM,CORAL"),
    ],
)
def test_an_option_that_is_not_ours_is_answered_with_ours(words: str, ours: str) -> None:
    with pytest.raises(UserError) as error:
        advise(words.split())
    assert f"`{ours}" in str(error.value)


def test_our_own_options_pass(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.touch()
    advise(["sweep", "--algorithms", "erm,coral", "--hparams", "2", "--datasets", "digits", str(file)])
    advise(["report", "launch", "--test_envs"])  # other commands
    advise(["train", "--dataset", "launch"])


@pytest.mark.parametrize(
    ("method", "theirs", "ours"),
    [
        ("irm", "irm_lambda", "lam"),
        ("dann", "lr_g", "lr"),
        ("cdann", "weight_decay_g", "weight_decay"),
        ("urm", "urm_discriminator_lr", "lr_d"),
        ("condcad", "is_flipped", "flipped"),
        ("erm", "resnet_dropout", "--dropout"),
    ],
)
def test_a_hyper_parameter_is_answered_with_ours(method: str, theirs: str, ours: str) -> None:
    with pytest.raises(UserError, match=ours):
        advise_setting(method, theirs)


def test_every_name_of_domainbed_is_answered_with_ours() -> None:
    assert METHODS.keys() == {*THEIRS}
    for theirs, ours in METHODS.items():
        assert f"Did you mean {ours!r}?" in str(unknown("algorithm", theirs, names()))
    for theirs in ("RotatedMNIST", "ColoredMNIST"):
        assert f"Did you mean {from_domainbed_dataset(theirs)!r}?" in str(unknown("dataset", theirs, dataset_names()))
    for option in RUN_OPTIONS.values():
        assert option.split()[0] in map(flag_of, options_of(RunSpec))


def table(lines: Iterable[Iterable[str]], *head: str) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def settings(method: str) -> dict[str, str]:
    """Our name of each setting of a method by DomainBed's, where they differ."""
    ours = get(method).Config.domainbed_names()
    ours |= {name: searched.seed_name for name, searched in get(method).domainbed_space("", "images").items()}
    return {theirs: name for name, theirs in ours.items() if theirs not in ours}


def method_table() -> str:
    lines = []
    for theirs, ours in sorted(METHODS.items(), key=lambda pair: pair[1]):
        renamed = (f"`{a}` → `{b}`" for a, b in settings(ours).items())
        lines.append((f"`{theirs}`", f"`{ours}`", ", ".join(renamed)))
    return table(lines, "algorithm", "fgmix", "its hyper-parameters that have another name")


def domain_table() -> str:
    lines = []
    for theirs in ("ColoredMNIST", "RotatedMNIST", "VLCS", "PACS", "OfficeHome", "TerraIncognita", "DomainNet"):
        ours = from_domainbed_dataset(theirs)
        domains = ", ".join(f"{number} `{name}`" for number, name in enumerate(known_domains(ours)))
        lines.append((f"`{theirs}`", f"`{ours}`", domains))
    return table(lines, "dataset", "fgmix", "`--test_envs`")


@pytest.mark.parametrize(
    "expected",
    [
        table(((f"`{theirs}`", ours) for theirs, ours in OURS.items()), "DomainBed", "fgmix"),
        table(((f"`{theirs}`", f"`{ours}`") for theirs, ours in RUN_OPTIONS.items()), "hyper-parameter", "fgmix"),
        method_table(),
        domain_table(),
    ],
    ids=["options", "runs", "methods", "domains"],
)
def test_the_page_has_the_tables_of_the_code(expected: str) -> None:
    assert expected in PAGE, f"docs/from-domainbed.md should contain\n{expected}"
