"""Load datasets by name, or from a folder, a CSV manifest or an .npz file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fgmix.data.dataset import DomainDataset
from fgmix.data.files import describe_path
from fgmix.errors import MachineError, UserError, bad_value, unknown
from fgmix.records.files import check_path


@dataclass(frozen=True)
class LoadOptions:
    """How to load a dataset."""

    root: Path | None = None  # contains the folders of the datasets (PACS/, VLCS/, …) or MNIST's idx files
    image_size: int | None = None  # side of the square input images; None for the default of the dataset
    trial_seed: int = 0  # seed of a dataset's own randomness (the partition of rotated_mnist and colored_mnist)
    skip_unreadable: bool = False  # leave out image files that cannot be decoded instead of raising an error
    progress: bool = True  # show a progress bar while decoding
    background: str = "white"  # colour behind transparent pixels, by name or as #rrggbb
    cache: Path | None = None  # folder of the cache of decoded images; None for `cache_dir()`

    def __post_init__(self) -> None:
        for name in ("root", "cache"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_path(name, getattr(self, name)))


Loader = Callable[[LoadOptions], DomainDataset]


@dataclass(frozen=True)
class Registered:
    """A registered dataset: its loader, a one-line summary, and whether its samples depend on the trial seed."""

    load: Loader
    summary: str
    depends_on_trial: bool


_REGISTRY: dict[str, Registered] = {}


def register_dataset(name: str, summary: str, *, depends_on_trial: bool = True) -> Callable[[Loader], Loader]:
    """Register a function LoadOptions → DomainDataset for `load`, as a decorator.

    With `depends_on_trial` False the trial seed changes nothing, so that trials may share the loaded dataset.
    """

    def add(load: Loader) -> Loader:
        _REGISTRY[name] = Registered(load, summary, depends_on_trial)
        return load

    return add


def names() -> list[str]:
    """List the registered names, sorted."""
    return sorted(_REGISTRY)


def summaries() -> dict[str, str]:
    """Return the one-line summary of each registered dataset."""
    return {name: _REGISTRY[name].summary for name in names()}


def depends_on_trial(dataset: str) -> bool:
    """Whether the result of `load` depends on the trial seed; if not, it can be loaded once for all trials.

    >>> depends_on_trial("rotated_mnist"), depends_on_trial("digits"), depends_on_trial("some/folder")
    (True, False, False)
    """
    return dataset in _REGISTRY and _REGISTRY[dataset].depends_on_trial


def load(dataset: str, options: LoadOptions | None = None) -> DomainDataset:
    """Load a dataset by registered name, by folder `domain/class/image`, by CSV manifest, or by .npz file.

    Args:
        dataset: name or path. A registered name takes precedence over a folder of the same name; write `./name` for the
            folder.
        options: where and how to load it.
    """
    from fgmix.data.arrays import load_npz
    from fgmix.data.image_dataset import load_images

    if not isinstance(options, LoadOptions | None):
        raise bad_value("options", "a LoadOptions", options)
    options = options or LoadOptions()
    dataset = str(check_path("dataset", dataset)) if isinstance(dataset, os.PathLike) else dataset
    if not isinstance(dataset, str):
        raise bad_value("dataset", "a name or a path", dataset)
    if dataset in _REGISTRY:
        return _REGISTRY[dataset].load(options)
    path = as_path(dataset)
    ending = path.suffix.lower()
    if not dataset or not (os.sep in dataset or ending in (".npz", ".csv") or os.path.lexists(path)):
        raise UserError(f"{unknown('dataset', dataset, names())} There is no file or folder of this name either.")
    if ending == ".npz" and os.path.isfile(path):
        return load_npz(path)
    if os.path.isdir(path) or (ending == ".csv" and os.path.isfile(path)):
        return load_images(path, options)
    sentence = (
        f"Expected a folder domain/class/image, a CSV manifest (.csv) or an .npz file at {dataset}. "
        f"Found {describe_path(path)}. Check the path."
    )
    # a MachineError for a missing path: it may exist on another machine, or not be mounted here
    raise UserError(sentence) if os.path.lexists(path) else MachineError(sentence)


def as_path(text: str) -> Path:
    """Convert a text to a path, with ~ expanded to the home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~name of an unknown user: an ordinary file name
        return Path(text)
