"""Every command's help is written alike: an imperative sentence, options of one line, an example that parses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fgmix.cli import app
from workbench import fgmix

VERBS = (  # noqa: SIM905
    "Combine Compare Count Decode Download Estimate Export List Plot Predict Print Report Train"
).split()


FIRST = {
    "train": ["dataset", "algorithm", "test-domain", "out"],
    "fit": ["out"],
    "sweep": ["datasets", "algorithms", "out"],
    "plan": ["datasets", "algorithms"],
}


def commands(group: TyperGroup, words: tuple[str, ...] = ("fgmix",)) -> Iterator[tuple[str, TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*words, name))
        elif isinstance(command, TyperCommand):
            yield " ".join((*words, name)), command


ALL = dict(commands(get_command(app)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ALL)
def test_help_is_an_imperative_sentence_with_an_example(name: str) -> None:
    text = re.sub(r"\s+", " ", ALL[name].help or "")
    assert text.split()[0] in VERBS, f"{name}: {text.split()[0]} is no verb of the list"
    assert re.search(r"[.:]", text)
    example = re.search(rf"Example: ({name}.*)", text)
    assert example, f"{name}: no example"
    words = shlex.split(example[1])
    flags = {flag for option in ALL[name].params for flag in (*option.opts, *option.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= flags


@pytest.mark.parametrize("name", ALL)
def test_help_of_an_option_is_one_short_phrase(name: str) -> None:
    for option in ALL[name].params:
        text = getattr(option, "help", "") or ""
        assert text, f"{name} {option.name}: no help"
        assert len(text) <= 100, f"{name} {option.name}: {len(text)} characters"


@pytest.mark.parametrize("name", ["train", "fit", "sweep", "plan"])
def test_help_shows_how_a_network_starts(name: str) -> None:
    (option,) = [option for option in ALL[f"fgmix {name}"].params if option.name == "pretrained"]
    assert (option.opts, option.secondary_opts) == (["--pretrained"], ["--no-pretrained"])
    assert not getattr(option, "hidden", True)


def test_there_are_few_commands_and_everyday_options() -> None:
    shown = [option for command in ALL.values() for option in command.params if not getattr(option, "hidden", False)]
    assert len(ALL) <= 24
    assert sum(option.param_type_name == "option" for option in shown) <= 180


def test_a_misspelt_option_is_an_error_with_one_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert fgmix("train", "--stepz", "3") == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("fgmix: ")
    assert "--steps" in error
    assert "--seed" not in error
    assert fgmix("predict") == 2
    assert "'MODEL'" in capsys.readouterr().err
    assert fgmix("raport") == 2
    assert "'report'" in capsys.readouterr().err


@pytest.mark.parametrize(("columns", "lines"), [(100, 60), (80, 80)])
@pytest.mark.parametrize("name", ["train", "fit", "sweep", "plan"])
def test_help_is_short_and_without_types(
    name: str, columns: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert fgmix(name, "--help") == 0
    shown = capsys.readouterr().out
    assert shown.count("\n") <= lines
    assert max(map(len, shown.splitlines())) <= columns
    assert not re.search(r"<\w+|\[\w+ \w+\]<|…$", shown)
    required = re.findall(r"^  --([\w-]+)", shown.split("Required")[1], re.MULTILINE)
    assert required[: len(FIRST[name])] == FIRST[name]
    assert fgmix(name, "--help-all") == 0
    assert capsys.readouterr().out.count("\n") > lines


def test_options_of_soup_are_grouped(capsys: pytest.CaptureFixture[str]) -> None:
    """By what they decide; nothing but the device and the progress is left over."""
    assert fgmix("soup", "--help") == 0
    sections = dict(re.findall(r"^([A-Z][\w ]+):\n((?:  .*\n)+)", capsys.readouterr().out, re.MULTILINE))
    assert {name: re.findall(r"--([\w-]+) ", rows) for name, rows in sections.items()} == {
        "Arguments": [],
        "Required": ["out"],
        "Model": ["how", "weights"],
        "Which runs": ["algorithm", "test-domain", "trial-seed"],
        "Other options": ["device", "quiet", "help-all", "help"],
    }
