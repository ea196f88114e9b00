"""What a sweep searches over, and the draws from it.

Draw 0 is the defaults. Draw h of trial t gives every hyper-parameter a generator of its own,

    s = seed_hash(h, t),    value = distribution(RandomState(seed_hash(s, name))),

so that adding one never shifts another. `name` is DomainBed's: where DomainBed has the method and the dataset, the
space "domainbed" gives DomainBed's own draws; the settings of a method that DomainBed does not have are searched there
as in the FGMix paper, whose space is "paper". What belongs to a method
stands in its own file; what every method shares (learning rate, weight decay, batch size, dropout) stands here.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", 2021, tables of hyper-parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import numpy as np

from fgmix.errors import unknown
from fgmix.seeding import seed_hash
from fgmix.training.resolve import DEFAULTS, default_lr

if TYPE_CHECKING:
    from fgmix.algorithms._config import Distribution, Searched

Space = Literal["domainbed", "paper"]


class Draw(TypedDict):
    """The fields of a RunSpec that a search decides."""

    settings: dict[str, Any]
    batch_size: int
    dropout: float


def draw(
    algorithm: str,
    dataset: str,
    kind: str,
    hparams_seed: int,
    trial_seed: int,
    space: Space = "domainbed",
    backbone: str | None = None,
) -> Draw:
    """The hyper-parameters of one draw, as plain Python values.

    Args:
        algorithm: registered name.
        dataset: name of the dataset; DomainNet has a space of its own.
        kind: "images", "small_images" or "features".
        hparams_seed: number of the draw; 0 is the defaults.
        trial_seed: number of the trial; every trial has draws of its own.
        space: "domainbed" or "paper".
        backbone: vision transformers have learning rates of their own; None for the default one.

    Example:
        >>> draw("coral", "PACS", "images", 0, 0)
        {'settings': {'lr': 5e-05, 'weight_decay': 0.0, 'gamma': 1.0}, 'batch_size': 32, 'dropout': 0.0}
        >>> draw("coral", "PACS", "images", 1, 0)["batch_size"]
        39
    """
    searched = search_space(algorithm, dataset, kind, space, backbone)
    values = {name: _value(each, hparams_seed, trial_seed) for name, each in searched.items()}
    batch_size, dropout = values.pop("batch_size"), values.pop("dropout")
    return {"settings": values, "batch_size": batch_size, "dropout": dropout}


def search_space(
    algorithm: str, dataset: str, kind: str, space: Space = "domainbed", backbone: str | None = None
) -> dict[str, Searched]:
    """Everything that a sweep searches over, by our name: settings of the algorithm, "batch_size" and "dropout"."""
    from fgmix.algorithms import get
    from fgmix.algorithms._config import Searched

    if space not in get_args(Space):
        raise unknown("search space", space, get_args(Space))
    if kind not in DEFAULTS:
        raise unknown("kind of dataset", kind, DEFAULTS)
    method = get(algorithm)
    config = method.Config
    seed_names, lines = config.domainbed_names(), config.help()
    own = {
        name: Searched(seed_names[name], lines[name][0], distribution)
        for name, distribution in config.spaces(space).items()
    }
    if space == "paper":
        found = {**_paper(kind), **own}
    else:
        found = {**_domainbed(dataset, kind), **own, **method.domainbed_space(dataset, kind)}
    if default_lr(kind, backbone, DEFAULTS[kind]) < DEFAULTS[kind].lr:
        found["lr"] = _a_tenth_of(found["lr"])
    return found


def _value(searched: Searched, hparams_seed: int, trial_seed: int) -> Any:
    if hparams_seed == 0 or searched.distribution is None:
        return searched.default
    seed = seed_hash(seed_hash(hparams_seed, trial_seed), searched.seed_name)
    return searched.distribution.draw(np.random.RandomState(seed))


def _a_tenth_of(lr: Searched) -> Searched:
    """The learning rates of vision transformers on images, from those of other networks; also a method's own."""
    return replace(lr, default=_tenth(lr.default), distribution=lr.distribution and _Tenth(lr.distribution))


@dataclass(frozen=True)
class _Tenth:
    """A tenth of what a distribution gives, with the same use of the generator."""

    of: Distribution

    def draw(self, rng: np.random.RandomState) -> float:
        return _tenth(self.of.draw(rng))


def _tenth(rate: float) -> float:
    return float(f"{rate / 10:.15g}")  # 15 digits: 1e-5 / 10 is 1e-6


def _domainbed(dataset: str, kind: str) -> dict[str, Searched]:
    """DomainBed's table. It has no feature vectors: they train as small images do, on batches of its images."""
    from fgmix.algorithms._config import Choice, LogUniform, Searched

    small = kind == "small_images"
    scratch = kind != "images"  # networks that start from random weights
    most = 9.0 if small else 5.0 if dataset == "DomainNet" else 5.5
    return {
        "lr": Searched("lr", 1e-3, LogUniform(-4.5, -2.5)) if scratch else Searched("lr", 5e-5, LogUniform(-5, -3.5)),
        "weight_decay": Searched("weight_decay", 0.0, None if small else LogUniform(-6, -2)),
        "batch_size": Searched("batch_size", 64 if small else 32, LogUniform(3, most, base=2, integer=True)),
        "dropout": Searched("resnet_dropout", 0.0, None if small else Choice((0.0, 0.1, 0.5))),
    }


def _paper(kind: str) -> dict[str, Searched]:
    """The paper's table. Its learning rates are 1/5, 3/5 and all of its default, and so they are for other kinds."""
    from fgmix.algorithms._config import Choice, Searched

    default = DEFAULTS[kind]
    rates = (1e-5, 3e-5, 5e-5) if kind == "images" else (2e-4, 6e-4, 1e-3)
    return {
        "lr": Searched("lr", default.lr, Choice(rates)),
        "weight_decay": Searched("weight_decay", 0.0, Choice((1e-4, 1e-6))),
        "batch_size": Searched("batch_size", default.batch_size, None),
        "dropout": Searched("resnet_dropout", 0.0, Choice((0.0, 0.1, 0.5))),
    }
