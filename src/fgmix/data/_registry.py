"""Datasets by name; anything else that is a folder, a CSV manifest or an .npz file is loaded from there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fgmix.data._dataset import DomainDataset
from fgmix.data._opening import what_is
from fgmix.errors import MachineError, UserError, bad_value, unknown
from fgmix.files import checked_path


@dataclass(frozen=True)
class LoadOptions:
    """How to load a dataset.

    Args:
        root: folder that holds the datasets' folders (PACS/, VLCS/, …) or MNIST's idx files.
        image_size: side of the square that a network sees; each dataset has its default.
        trial_seed: fixes what a dataset draws itself (the partition of rotated_mnist and colored_mnist).
        skip_unreadable: leave out image files that cannot be decoded instead of stopping.
        progress: show a progress bar while decoding.
        background: colour under transparent pixels, by name or as #rrggbb.
        cache: folder of the cache of decoded images; else `cache_dir()`.
    """

    root: Path | None = None
    image_size: int | None = None
    trial_seed: int = 0
    skip_unreadable: bool = False
    progress: bool = True
    background: str = "white"
    cache: Path | None = None

    def __post_init__(self) -> None:
        for name in ("root", "cache"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_path(name, getattr(self, name)))


Loader = Callable[[LoadOptions], DomainDataset]


@dataclass(frozen=True)
class Registered:
    """A dataset known by name: how to load it, one line about it, whether its samples depend on the trial seed."""

    load: Loader
    summary: str
    depends_on_trial: bool


_REGISTRY: dict[str, Registered] = {}


def register_dataset(name: str, summary: str, *, depends_on_trial: bool = True) -> Callable[[Loader], Loader]:
    """Decorator for a function LoadOptions → DomainDataset.

    Args:
        name: under which it is loaded.
        summary: one line about it.
        depends_on_trial: False promises that the trial seed changes nothing, so that trials may share what is loaded.
    """

    def add(load: Loader) -> Loader:
        _REGISTRY[name] = Registered(load, summary, depends_on_trial)
        return load

    return add


def names() -> list[str]:
    """Registered names, sorted."""
    return sorted(_REGISTRY)


def summaries() -> dict[str, str]:
    """One line about each registered dataset."""
    return {name: _REGISTRY[name].summary for name in names()}


def depends_on_trial(dataset: str) -> bool:
    """Whether `load` gives another dataset for another trial seed; where not, load it once for all trials.

    >>> depends_on_trial("rotated_mnist"), depends_on_trial("digits"), depends_on_trial("some/folder")
    (True, False, False)
    """
    return dataset in _REGISTRY and _REGISTRY[dataset].depends_on_trial


def load(dataset: str, options: LoadOptions | None = None) -> DomainDataset:
    """A dataset by registered name, by folder `domain/class/image`, by CSV manifest, or by .npz file.

    Args:
        dataset: name or path. A name wins over a folder of the same name; write `./name` for the folder.
        options: where and how.
    """
    from fgmix.data.arrays import load_npz
    from fgmix.data.image_dataset import load_images

    if not isinstance(options, LoadOptions | None):
        raise bad_value("options", "a LoadOptions", options)
    options = options or LoadOptions()
    dataset = str(checked_path("dataset", dataset)) if isinstance(dataset, os.PathLike) else dataset
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
        f"Found {what_is(path)}. Check the path."
    )
    # what another machine has and this one lacks is most likely not mounted
    raise UserError(sentence) if os.path.lexists(path) else MachineError(sentence)


def as_path(text: str) -> Path:
    """A path as a user writes it, with ~ for the home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~somebody who does not exist: a name like any other
        return Path(text)


def cache_dir() -> Path:
    """Where decoded images and built datasets are kept: $FGMIX_CACHE, else ~/.cache/fgmix."""
    given = os.environ.get("FGMIX_CACHE")
    if given:
        return as_path(given)
    try:
        return Path.home() / ".cache" / "fgmix"
    except RuntimeError as error:  # as in a container whose user has no entry
        raise UserError("Expected a home folder for the cache. Found none. Set FGMIX_CACHE to a folder.") from error
