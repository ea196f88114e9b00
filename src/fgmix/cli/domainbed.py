"""DomainBed's options and names on the command line: accepted with a hint to the name in fgmix, or an error.

The tables of this module are the only place of these names; docs/from-domainbed.md prints them. DomainBed's names of
methods and of their settings are declared in the methods' own files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fgmix.cli.options import JoinsLists
from fgmix.errors import UserError
from fgmix.records.benchmarks import from_domainbed_dataset, known_domains
from fgmix.records.schema import flag_of


@dataclass(frozen=True)
class Spelling:
    """An option of one of DomainBed's scripts.

    Args:
        ours: our option, with {} for each value; empty if none is needed.
        note: what is different, or why it is an error.
        only: values that are accepted, and ignored; others are an error. Empty: all values are accepted.
        refused: whether it is an error with any value.
    """

    ours: str = ""
    note: str = ""
    only: tuple[str, ...] = ()
    refused: bool = False


_NO_ADAPTATION = "fgmix trains on the source domains alone"
_SHARED = {
    "--data_dir": Spelling("--data-root {}"),
    "--task": Spelling(note=_NO_ADAPTATION, only=("domain_generalization",)),
}
OPTIONS: dict[str, dict[str, Spelling]] = {
    "train": {
        **_SHARED,
        "--test_envs": Spelling("--test-domain {}"),
        "--output_dir": Spelling("--out {}", "the run gets a folder of its own in it"),
        "--hparams": Spelling("--set {}"),
        "--hparams_seed": Spelling(note="a sweep samples hyper-parameters (`fgmix sweep --hparams N`)", only=("0",)),
        "--trial_seed": Spelling("--trial-seed {}"),
        "--checkpoint_freq": Spelling("--eval-every {}"),
        "--holdout_fraction": Spelling("--holdout-fraction {}"),
        "--uda_holdout_fraction": Spelling(note=_NO_ADAPTATION, only=("0", "0.0")),
        "--skip_model_save": Spelling("--keep none"),
        "--save_model_every_checkpoint": Spelling(note="use `--snapshots N`: N evenly spaced ones", refused=True),
    },
    "sweep": {
        "launch": Spelling(note="`fgmix sweep` launches"),
        "delete_incomplete": Spelling(note="rerun the sweep, incomplete runs resume", refused=True),
        **_SHARED,
        "--output_dir": Spelling("--out {}"),
        "--algorithms": Spelling("--algorithms {}", "names are separated by commas"),
        "--datasets": Spelling("--datasets {}", "names are separated by commas"),
        "--n_hparams": Spelling("--hparams {}"),
        "--n_hparams_from": Spelling(note="finished samples are not trained again, so none is left out", only=("0",)),
        "--n_trials": Spelling("--trials {}"),
        "--hparams": Spelling("--set {}"),
        "--steps": Spelling("--with steps={}"),
        "--holdout_fraction": Spelling("--with holdout_fraction={}"),
        "--seed": Spelling(note="seeds follow from trial, sample and test domains", only=("0",)),
        "--command_launcher": Spelling(
            note="the default uses every GPU; `--launcher` selects Ray or Slurm", only=("local", "multi_gpu")
        ),
        "--single_test_envs": Spelling(note="it is the default; `--pairs` adds pairs of test domains"),
        "--skip_confirmation": Spelling(note="nothing is asked"),
    },
}
SCRIPTS = {"train": "train", "sweep": "sweep", "plan": "sweep"}  # DomainBed's script by our command
# Hyper-parameters of DomainBed that are options of a run here, some with a value.
OPTIONS_OF_RUNS = {
    "batch_size": "batch_size",
    "class_balanced": "class_weight=balanced",
    "freeze_bn": "freeze_bn",
    "nonlinear_classifier": "head=mlp",
    "resnet18": "backbone=resnet18.tv_in1k",
    "resnet_dropout": "dropout",
}
MISSING = {
    "`--task domain_adaptation`, `--uda_holdout_fraction`": _NO_ADAPTATION,
    "`Debug28`, `Debug224`": "`digits` and `fgmix demo` serve that purpose",
    "`data_augmentation: false`": "source images are always augmented",
    "`vit`, `dinov2`": "any network of timm is a `--backbone`, such as `vit_base_patch14_dinov2.lvd142m`",
    "`resnet50_augmix`": "`--protocol domainbed-2024` has these weights; `--backbone resnet50.ram_in1k`",
    "`lars`, `vit_dropout`, `vit_attn_tune`": "the optimiser is Adam; `--freeze K` fixes the first K sections",
    "`linear_steps`, except for `ERMPlusPlus`": "`--warmup-head N` trains the classifier first",
    "`is_project` of `CAD`, `mlp_dropout` of `ADRMX`, `beta1` and `weight_decay_d` of `Transfer`": "not implemented",
}


class FromDomainBed(JoinsLists):
    """A command that accepts DomainBed's names of options and values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # click's context, which typer keeps to itself
        if ctx.resilient_parsing:  # shell completion
            return super().parse_args(ctx, args)
        hints: list[str] = []
        rest = super().parse_args(ctx, list(in_our_options(ctx.info_name or "", args, hints)))
        ctx.params |= in_our_names(ctx.params, hints)
        hints += other_defaults(ctx.info_name or "", args, ctx.params) if hints else ()
        for hint in dict.fromkeys(hints):
            print(f"hint: {hint}", file=sys.stderr)
        return rest


def other_defaults(command: str, words: list[str], given: Mapping[str, Any]) -> Iterator[str]:
    """Hints where DomainBed's defaults differ, for the words of a command and its values in our names.

    >>> list(other_defaults("train", [], {"dataset": "PACS", "protocol": "domainbed-2020"}))
    []
    """
    if command not in SCRIPTS:
        return
    sweep = SCRIPTS[command] == "sweep"
    options = given.get("with_") or () if sweep else ()
    if given.get("protocol", "clean") == "clean" and not any(text.startswith("protocol=") for text in options):
        flag = "--with protocol=domainbed-2020" if sweep else "--protocol domainbed-2020"
        yield f"The protocol is `clean`; DomainBed's is `{flag}`."
    if sweep and not given.get("pairs") and "--single_test_envs" not in words:
        yield "Single domains are held out; DomainBed's sweep also holds out pairs, as does `--pairs`."
    named = {given.get("dataset"), *(given.get("datasets") or "").split(",")} & {"rotated_mnist", "colored_mnist"}
    if named and not given.get("steps") and not any(text.startswith("steps=") for text in options):
        flag = "--with steps=5001" if sweep else "--steps 5001 --batch-size 64"
        yield f"Runs on {' and '.join(sorted(named))} are short; DomainBed's length is `{flag}`."


def in_our_options(command: str, words: list[str], hints: list[str]) -> Iterator[str]:
    """The words of a command with our options for DomainBed's; adds a hint for each replacement.

    >>> list(in_our_options("train", ["--test_envs", "0", "1", "--steps", "9"], hints := []))
    ['--test-domain', '0', '--test-domain', '1', '--steps', '9']
    >>> hints
    ["DomainBed's `--test_envs` is `--test-domain` here."]
    """
    spellings = OPTIONS.get(SCRIPTS.get(command, ""), {})
    for flag, *values in _groups(words, spellings):
        spelling = spellings.get(flag)
        if spelling is None or _is_ours(flag, values):
            yield from (flag, *values)
        else:
            yield from _replaced(flag, spelling, values, hints)


def _groups(words: list[str], spellings: dict[str, Spelling]) -> list[list[str]]:
    """Each option with the words up to the next one; DomainBed's options are split at =."""
    groups: list[list[str]] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("--") or not groups:
            groups.append([flag, value] if equals and flag in spellings else [word])
        else:
            groups[-1].append(word)
    return groups


def _is_ours(flag: str, values: list[str]) -> bool:
    """Whether an option that both have is in our form: names in one word, or the number of samples."""
    if flag in ("--algorithms", "--datasets"):
        return len(values) == 1
    return flag == "--hparams" and not values[0].lstrip().startswith("{") if values else False


def _replaced(flag: str, spelling: Spelling, values: list[str], hints: list[str]) -> Iterator[str]:
    found = " ".join([flag, *values])
    because = f": {spelling.note}" if spelling.note else ""
    if spelling.refused or (spelling.only and not {*values} <= {*spelling.only}):
        raise UserError(f"Expected options of fgmix. Found DomainBed's `{found}`, which fgmix does not have{because}.")
    if not spelling.ours:
        hints.append(f"DomainBed's `{found}` is not needed here{because}.")
        return
    shown = spelling.ours.removesuffix(" {}").replace("{}", "…")
    if shown != flag:
        hints.append(f"DomainBed's `{flag}` is `{shown}` here{because}.")
    if flag == "--hparams":
        values = _settings(values)
    elif flag in ("--algorithms", "--datasets"):
        values = [",".join(values)]
    template = spelling.ours.split()
    for value in values if "{}" in spelling.ours else [""]:
        yield from (word.replace("{}", value) for word in template)


def _settings(values: list[str]) -> list[str]:
    """['{"lr": 0.01}'] → ["lr=0.01"]."""
    text = " ".join(values)
    try:
        return [f"{name}={json.dumps(value).strip(chr(34))}" for name, value in json.loads(text).items()]
    except (ValueError, AttributeError) as error:
        raise UserError(
            f"Expected --hparams as a JSON object, as in DomainBed. Found {text!r}. Use --set name=value."
        ) from error


def in_our_names(given: dict[str, Any], hints: list[str]) -> dict[str, Any]:
    """Values of a command with our names for DomainBed's: methods, datasets, domains, settings."""
    found: dict[str, Any] = {}
    for key, rename in (("dataset", _dataset), ("algorithm", _method)):
        if given.get(key):
            found[key] = _renamed(given[key], rename(given[key]), hints)
        if given.get(plural := f"{key}s"):
            names = [name.strip() for name in given[plural].split(",")]
            found[plural] = ",".join(_renamed(name, rename(name), hints) for name in names)
    if given.get("test_domain"):
        found["test_domain"] = [_domain(found.get("dataset", ""), name, hints) for name in given["test_domain"]]
    methods = [found["algorithm"]] if "algorithm" in found else found.get("algorithms", "").split(",")
    for key in ("set_", "grid"):
        if given.get(key):
            found[key] = [_setting(text, methods, hints) for text in given[key]]
    return found


def _renamed(theirs: str, ours: str, hints: list[str]) -> str:
    if theirs != ours:
        hints.append(f"DomainBed's `{theirs}` is `{ours}` here.")
    return ours


def _dataset(name: str) -> str:
    """Our name of a dataset; a file or folder of that name is the user's own data."""
    return name if os.path.lexists(name) else from_domainbed_dataset(name)


def _method(name: str) -> str:
    """Our name of a method, or of each part of `sam+CORAL`."""
    ours = methods()
    return "+".join(ours.get(part, part) for part in name.split("+"))


def methods() -> dict[str, str]:
    """Our name of each method by DomainBed's."""
    from fgmix.algorithms import get, names

    return {theirs: name for name in names() if (theirs := get(name).domainbed_name)}


def settings(method: str) -> dict[str, str]:
    """Our name of each setting of a method by DomainBed's, where they differ; a name of ours is never one of them."""
    from fgmix.algorithms import get

    algorithm = get(method)
    ours = algorithm.Config.domainbed_names()
    ours |= {name: searched.seed_name for name, searched in algorithm.domainbed_space("", "images").items()}
    return {theirs: name for name, theirs in ours.items() if theirs not in ours}


def _domain(dataset: str, name: str, hints: list[str]) -> str:
    """The domain with a number of DomainBed's, unless a domain has that name."""
    domains = known_domains(dataset)
    if not name.isdecimal() or name in domains or int(name) >= len(domains):
        return name
    hints.append(f"DomainBed's domain {name} of {dataset} is `{domains[int(name)]}` here.")
    return domains[int(name)]


def _setting(text: str, chosen: list[str], hints: list[str]) -> str:
    """A text name=value with our name of the setting."""
    from fgmix.algorithms import get, names

    name, equals, value = text.partition("=")
    known = [method for method in chosen if "+" in method or method in names()]  # others are an error later
    if any(name in get(method).Config.names() for method in known):
        return text
    if name in OPTIONS_OF_RUNS:
        raise UserError(
            f"Expected a setting of the method. Found DomainBed's `{name}`, which is an option of a run here. Use "
            f"`{as_flag(OPTIONS_OF_RUNS[name])}`, or `--with {as_pair(OPTIONS_OF_RUNS[name])}` in a sweep."
        )
    ours = {theirs: own for method in known for theirs, own in settings(method).items()}
    return _renamed(name, ours.get(name, name), hints) + equals + value


def as_flag(option: str) -> str:
    """ "head=mlp" → "--head mlp"."""
    name, _, value = option.partition("=")
    return f"{flag_of(name)} {value}".rstrip()


def as_pair(option: str) -> str:
    """ "dropout" → "dropout=…", as `--with` accepts it."""
    return option if "=" in option else f"{option}=…"
