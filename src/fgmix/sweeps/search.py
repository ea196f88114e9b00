"""Search spaces of a sweep, and how hyper-parameters are sampled from them.

Sample 0 is the defaults. Sample h of trial t gives every hyper-parameter a generator of its own,

    s = seed_hash(h, t),    value = distribution(RandomState(seed_hash(s, name))),

so that adding one never shifts another. `name` is DomainBed's: where DomainBed has the algorithm and the dataset, the
space "domainbed" gives DomainBed's own samples; the settings of an algorithm that DomainBed does not have are searched
there as in the FGMix paper, whose space is "paper". An algorithm's own space is declared in its file; the space that
all share (learning rate, weight decay, batch size, dropout) is here, around the defaults of `training.resolve`.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", 2021, tables of hyper-parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, get_args

import numpy as np

from fgmix.algorithms import Choice, Distribution, LogUniform, Searched, get
from fgmix.errors import unknown
from fgmix.records.protocols import DEFAULTS
from fgmix.seeding import seed_hash
from fgmix.training.resolve import choose_lr

Space = Literal["domainbed", "paper"]


class HparamSample(TypedDict):
    """The fields of a RunSpec that a search decides."""

    settings: dict[str, Any]
    batch_size: int
    dropout: float


def sample_hparams(
    algorithm: str,
    dataset: str,
    kind: str,
    hparams_seed: int,
    trial_seed: int,
    space: Space = "domainbed",
    backbone: str | None = None,
) -> HparamSample:
    """Sample the hyper-parameters of a run, as plain Python values.

    Args:
        algorithm: registered name.
        dataset: its name: DomainNet has a space of its own.
        kind: of the dataset, see `records.protocols`.
        hparams_seed: number of the sample; 0 is the defaults.
        trial_seed: number of the trial, which has samples of its own.
        space: "domainbed" or "paper".
        backbone: vision transformers have learning rates of their own; None for the default one.

    Example:
        >>> sample_hparams("coral", "PACS", "images", 0, 0)
        {'settings': {'lr': 5e-05, 'weight_decay': 0.0, 'gamma': 1.0}, 'batch_size': 32, 'dropout': 0.0}
        >>> sample_hparams("coral", "PACS", "images", 1, 0)["batch_size"]
        39
    """
    searched = search_space(algorithm, dataset, kind, space, backbone)
    values = {name: _sample(each, hparams_seed, trial_seed) for name, each in searched.items()}
    batch_size, dropout = values.pop("batch_size"), values.pop("dropout")
    return {"settings": values, "batch_size": batch_size, "dropout": dropout}


def search_space(
    algorithm: str, dataset: str, kind: str, space: Space = "domainbed", backbone: str | None = None
) -> dict[str, Searched]:
    """List everything that a sweep searches over, by our name: an algorithm's settings, "batch_size" and "dropout"."""
    if space not in get_args(Space):
        raise unknown("search space", space, get_args(Space))
    if kind not in DEFAULTS:
        raise unknown("kind of dataset", kind, DEFAULTS)
    config = get(algorithm).Config
    seed_names, lines = config.domainbed_names(), config.help()
    own = {
        name: Searched(seed_names[name], lines[name][0], distribution)
        for name, distribution in config.spaces(space).items()
    }
    if space == "paper":
        searched = {**_paper_space(kind), **own}
    else:
        searched = {**_domainbed_space(dataset, kind), **own, **get(algorithm).domainbed_space(dataset, kind)}
    if choose_lr(kind, backbone, DEFAULTS[kind]) < DEFAULTS[kind].lr:  # also the learning rate of an algorithm's own
        lr = searched["lr"]
        tenth = lr.distribution and _Tenth(lr.distribution)
        searched["lr"] = replace(lr, default=_round(lr.default / 10), distribution=tenth)
    return searched


def _sample(searched: Searched, hparams_seed: int, trial_seed: int) -> Any:
    if hparams_seed == 0 or searched.distribution is None:
        return searched.default
    seed = seed_hash(seed_hash(hparams_seed, trial_seed), searched.seed_name)
    return searched.distribution.draw(np.random.RandomState(seed))


@dataclass(frozen=True)
class _Tenth:
    """A distribution scaled by 1/10 that consumes the same random numbers."""

    of: Distribution

    def draw(self, rng: np.random.RandomState) -> float:
        return _round(self.of.draw(rng) / 10)


def _round(rate: float) -> float:
    """Round a learning rate to 15 digits: 1e-5 / 10 is 1e-6."""
    return float(f"{rate:.15g}")


def _domainbed_space(dataset: str, kind: str) -> dict[str, Searched]:
    """Return DomainBed's table. It has neither features nor signals: they train as small images do, on batches of its
    images.
    """
    small = kind == "small_images"
    rates = LogUniform(-5, -3.5) if kind == "images" else LogUniform(-4.5, -2.5)  # from random weights
    most = 9.0 if small else 5.0 if dataset == "DomainNet" else 5.5
    return {
        "lr": Searched("lr", DEFAULTS[kind].lr, rates),
        "weight_decay": Searched("weight_decay", 0.0, None if small else LogUniform(-6, -2)),
        "batch_size": Searched("batch_size", 64 if small else 32, LogUniform(3, most, base=2, integer=True)),
        "dropout": Searched("resnet_dropout", 0.0, None if small else Choice((0.0, 0.1, 0.5))),
    }


def _paper_space(kind: str) -> dict[str, Searched]:
    """Return the paper's table: learning rates of 1/5, 3/5 and all of the default, here for other kinds, too."""
    default = DEFAULTS[kind]
    rates = tuple(_round(fifths * default.lr / 5) for fifths in (1, 3, 5))
    return {
        "lr": Searched("lr", default.lr, Choice(rates)),
        "weight_decay": Searched("weight_decay", 0.0, Choice((1e-4, 1e-6))),
        "batch_size": Searched("batch_size", default.batch_size, None),
        "dropout": Searched("resnet_dropout", 0.0, Choice((0.0, 0.1, 0.5))),
    }
