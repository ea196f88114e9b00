"""fgmix: domain generalization. FGMix, the methods it is compared with, and the protocol they are measured by.

Public names are imported on first use: `import fgmix` is quick, and the modules that work on records alone (selection,
tables, statistics) never import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fgmix import algorithms as algorithms
    from fgmix import data as data
    from fgmix.algorithms import Algorithm as Algorithm
    from fgmix.algorithms import BaseConfig as BaseConfig
    from fgmix.algorithms import register as register
    from fgmix.deploy.estimator import DomainGeneralizer as DomainGeneralizer
    from fgmix.deploy.fit import fit as fit
    from fgmix.deploy.model import Model as Model
    from fgmix.deploy.model import load_model as load_model
    from fgmix.errors import UserError as UserError
    from fgmix.figures.compute.plot import plot_models as plot_models
    from fgmix.figures.plot import plot as plot
    from fgmix.mixing.fgmix import FGMix as FGMix
    from fgmix.networks.registry import register_backbone as register_backbone
    from fgmix.records.code import load_plugin as load_plugin
    from fgmix.records.schema import RunRecord as RunRecord
    from fgmix.records.schema import RunSpec as RunSpec
    from fgmix.records.status import read_status as read_status
    from fgmix.records.store import read_record as read_record
    from fgmix.report.page import write_report as write_report
    from fgmix.results.read import read_runs as read_runs
    from fgmix.results.report import tabulate as tabulate
    from fgmix.results.selection import select as select
    from fgmix.results.statistics import compare as compare
    from fgmix.sweeps.design import Sweep as Sweep
    from fgmix.training.loop import train as train
    from fgmix.training.open_run import load_algorithm as load_algorithm

_HOME = {
    "Algorithm": "fgmix.algorithms",
    "BaseConfig": "fgmix.algorithms",
    "register": "fgmix.algorithms",
    "DomainGeneralizer": "fgmix.deploy.estimator",
    "FGMix": "fgmix.mixing.fgmix",
    "Model": "fgmix.deploy.model",
    "RunRecord": "fgmix.records.schema",
    "RunSpec": "fgmix.records.schema",
    "Sweep": "fgmix.sweeps.design",
    "UserError": "fgmix.errors",
    "compare": "fgmix.results.statistics",
    "fit": "fgmix.deploy.fit",
    "load_algorithm": "fgmix.training.open_run",
    "load_model": "fgmix.deploy.model",
    "load_plugin": "fgmix.records.code",
    "plot": "fgmix.figures.plot",
    "plot_models": "fgmix.figures.compute.plot",
    "read_record": "fgmix.records.store",
    "read_status": "fgmix.records.status",
    "read_runs": "fgmix.results.read",
    "register_backbone": "fgmix.networks.registry",
    "select": "fgmix.results.selection",
    "tabulate": "fgmix.results.report",
    "train": "fgmix.training.loop",
    "write_report": "fgmix.report.page",
    "algorithms": "",
    "data": "",
    "testing": "",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fgmix' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name) if _HOME[name] else import_module(f"fgmix.{name}")


def __dir__() -> list[str]:
    return __all__
