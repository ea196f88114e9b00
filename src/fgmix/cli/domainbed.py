"""Options of DomainBed that fgmix does not have: an error message names ours.

docs/from-domainbed.md has the same table; DomainBed's names of methods and of their settings are declared in the
methods' own files.
"""

from __future__ import annotations

import os

from fgmix.errors import UserError

COMMANDS = ("train", "sweep", "plan", "fit")
_NO_ADAPTATION = "not needed: fgmix trains on the source domains alone"
OURS = {
    "--data_dir": "`--data-root FOLDER`",
    "--test_envs": "`--test-domain NAME`, once for each domain",
    "--output_dir": "`--out FOLDER`",
    "--hparams_seed": "`fgmix sweep --hparams N`, which samples hyper-parameters",
    "--trial_seed": "`--trial-seed N`",
    "--checkpoint_freq": "`--eval-every N`",
    "--holdout_fraction": "`--holdout-fraction X`",
    "--uda_holdout_fraction": _NO_ADAPTATION,
    "--task": _NO_ADAPTATION,
    "--skip_model_save": "`--keep none`",
    "--save_model_every_checkpoint": "`--snapshots N`: N evenly spaced ones",
    "--n_hparams": "`--hparams N`",
    "--n_hparams_from": "not needed: finished runs are skipped",
    "--n_trials": "`--trials N`",
    "--command_launcher": "`--launcher local`, which uses every GPU, or `ray` or `slurm`",
    "--single_test_envs": "not needed: it is the default; `--pairs` adds pairs of test domains",
    "--skip_confirmation": "not needed: no question is asked",
    "launch": "not needed: `fgmix sweep` launches",
    "delete_incomplete": "not needed: rerun the sweep, and incomplete runs resume",
}
# Hyper-parameters of DomainBed that are options of a run here.
RUN_OPTIONS = {
    "batch_size": "--batch-size",
    "class_balanced": "--class-weight balanced",
    "freeze_bn": "--freeze-bn",
    "nonlinear_classifier": "--head mlp",
    "resnet18": "--backbone resnet18.tv_in1k",
    "resnet_dropout": "--dropout",
}


def advise(words: list[str]) -> None:
    """Raise an error that names our option, if the words of a command contain one that fgmix does not have.

    >>> advise(["train", "--test_envs", "0"])
    Traceback (most recent call last):
    fgmix.errors.UserError: Found `--test_envs` of DomainBed. Use `--test-domain NAME`, once for each domain.
    """
    if not words or words[0] not in COMMANDS:
        return
    for place, word in enumerate(words):
        name, _, value = word.partition("=")
        following = value or " ".join(words[place + 1 : place + 2])
        if name in OURS and (name.startswith("--") or place == 1):
            advice = f"It is {OURS[name]}" if OURS[name].startswith("not") else f"Use {OURS[name]}"
            raise UserError(f"Found `{name}` of DomainBed. {advice}.")
        if name == "--hparams" and following.startswith("{"):
            raise UserError("Found `--hparams` of DomainBed. Use `--set NAME=VALUE`, once for each setting.")
        if name in ("--algorithms", "--datasets") and _has_two_values(words[place + 1 :]):
            joined = ",".join(words[place + 1 : place + 3])
            raise UserError(f"Names are separated by commas. Use `{name} {joined}`.")


def _has_two_values(words: list[str]) -> bool:
    """Tell whether two values follow, the second of which is no file."""
    return len(words) > 1 and not any(word.startswith("-") for word in words[:2]) and not os.path.lexists(words[1])


def advise_setting(algorithm: str, name: str) -> None:
    """Raise an error that names our setting or option for a hyper-parameter of DomainBed."""
    from fgmix.algorithms import get

    method = get(algorithm)
    names = method.Config.domainbed_names()
    names |= {ours: searched.seed_name for ours, searched in method.domainbed_space("", "images").items()}
    ours = next((own for own, theirs in names.items() if theirs == name), None)
    if name in method.Config.names():
        return
    if name in RUN_OPTIONS:
        raise UserError(f"Found `{name}` of DomainBed. Use the option `{RUN_OPTIONS[name]}`.")
    if ours:
        raise UserError(f"Found `{name}` of DomainBed. Use `--set {ours}=VALUE`.")
