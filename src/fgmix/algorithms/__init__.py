"""The methods, one per file. `names()` lists them, `create(name, …)` builds one."""

from importlib import import_module
from pkgutil import iter_modules

from fgmix.algorithms._base import BATCH_NORMS as BATCH_NORMS
from fgmix.algorithms._base import Algorithm as Algorithm
from fgmix.algorithms._base import Batches as Batches
from fgmix.algorithms._base import Predict as Predict
from fgmix.algorithms._base import Task as Task
from fgmix.algorithms._base import batch_of as batch_of
from fgmix.algorithms._base import descend as descend
from fgmix.algorithms._base import descend_along as descend_along
from fgmix.algorithms._base import domains_of as domains_of
from fgmix.algorithms._base import part_of as part_of
from fgmix.algorithms._config import BaseConfig as BaseConfig
from fgmix.algorithms._config import Choice as Choice
from fgmix.algorithms._config import Distribution as Distribution
from fgmix.algorithms._config import LogUniform as LogUniform
from fgmix.algorithms._config import Searched as Searched
from fgmix.algorithms._config import choice as choice
from fgmix.algorithms._config import log_uniform as log_uniform
from fgmix.algorithms._config import search as search
from fgmix.algorithms._config import setting as setting
from fgmix.algorithms._config import uniform as uniform
from fgmix.algorithms._registry import check_domains as check_domains
from fgmix.algorithms._registry import compositions as compositions
from fgmix.algorithms._registry import configure as configure
from fgmix.algorithms._registry import create as create
from fgmix.algorithms._registry import describe_code as describe_code
from fgmix.algorithms._registry import get as get
from fgmix.algorithms._registry import names as names
from fgmix.algorithms._registry import overview as overview
from fgmix.algorithms._registry import register as register
from fgmix.algorithms._registry import register_wrapper as register_wrapper
from fgmix.records.code import ROOMS, keep_sources

for _module in iter_modules(__path__):  # every file registers its methods, which import from here the names above
    import_module(f"{__name__}.{_module.name}")
keep_sources(ROOMS)
