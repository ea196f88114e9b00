"""fgmix: domain generalization. FGMix, the methods it is compared with, and the protocol they are measured by.

The public names load what they need when they are first used: `import fgmix` is quick, and the modules that work on
records alone (selection, tables, statistics) never import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fgmix import algorithms as algorithms
    from fgmix import data as data
    from fgmix import deploy as deploy
    from fgmix.algorithms import Algorithm as Algorithm
    from fgmix.algorithms import BaseConfig as BaseConfig
    from fgmix.algorithms import register as register
    from fgmix.drop_in import FGMix as FGMix
    from fgmix.errors import UserError as UserError
    from fgmix.estimator import DomainGeneralizer as DomainGeneralizer
    from fgmix.records import RunRecord as RunRecord
    from fgmix.records import read_record as read_record
    from fgmix.spec import RunSpec as RunSpec
    from fgmix.training import fit as fit

_HOME = {
    "Algorithm": "fgmix.algorithms",
    "BaseConfig": "fgmix.algorithms",
    "register": "fgmix.algorithms",
    "DomainGeneralizer": "fgmix.estimator",
    "FGMix": "fgmix.drop_in",
    "RunRecord": "fgmix.records",
    "RunSpec": "fgmix.spec",
    "UserError": "fgmix.errors",
    "fit": "fgmix.training",
    "read_record": "fgmix.records",
    "algorithms": "",
    "data": "",
    "deploy": "",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fgmix' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name) if _HOME[name] else import_module(f"fgmix.{name}")


def __dir__() -> list[str]:
    return __all__
