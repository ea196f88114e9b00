"""Datasets: named domains with shared, named classes. `load` loads one by name or path, `names` lists the names."""

from fgmix.data import benchmarks as benchmarks
from fgmix.data import digits as digits
from fgmix.data import mnist as mnist
from fgmix.data import typefaces as typefaces
from fgmix.data.arrays import from_arrays as from_arrays
from fgmix.data.dataset import ArrayInputs as ArrayInputs
from fgmix.data.dataset import Domain as Domain
from fgmix.data.dataset import DomainDataset as DomainDataset
from fgmix.data.dataset import Inputs as Inputs
from fgmix.data.objects import from_samples as from_samples
from fgmix.data.registry import LoadOptions as LoadOptions
from fgmix.data.registry import depends_on_trial as depends_on_trial
from fgmix.data.registry import describe_code as describe_code
from fgmix.data.registry import load as load
from fgmix.data.registry import names as names
from fgmix.data.registry import register_dataset as register_dataset
from fgmix.data.registry import summaries as summaries
from fgmix.data.splits import Split as Split
from fgmix.data.splits import split_dataset as split_dataset
from fgmix.records.files import cache_dir as cache_dir
