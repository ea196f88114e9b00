"""Datasets by name; anything else that is a folder or an .npz file is loaded from there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fgmix.data._dataset import DomainDataset
from fgmix.errors import UserError, unknown


@dataclass(frozen=True)
class LoadOptions:
    """How to load a dataset.

    Args:
        root: folder that holds the datasets' folders (PACS/, VLCS/, …) or MNIST's idx files.
        image_size: side of the square that a network sees; each dataset has its default.
        trial_seed: fixes what a dataset draws itself (the partition of rotated_mnist and colored_mnist).
        skip_unreadable: leave out image files that cannot be decoded instead of stopping.
        progress: show a progress bar while decoding.
    """

    root: Path | None = None
    image_size: int | None = None
    trial_seed: int = 0
    skip_unreadable: bool = False
    progress: bool = True


Loader = Callable[[LoadOptions], DomainDataset]


@dataclass(frozen=True)
class Registered:
    """A dataset known by name: how to load it and one line about it."""

    load: Loader
    summary: str


_REGISTRY: dict[str, Registered] = {}


def register_dataset(name: str, summary: str) -> Callable[[Loader], Loader]:
    """Decorator for a function LoadOptions → DomainDataset."""

    def add(load: Loader) -> Loader:
        _REGISTRY[name] = Registered(load, summary)
        return load

    return add


def names() -> list[str]:
    """Registered names, sorted."""
    return sorted(_REGISTRY)


def summaries() -> dict[str, str]:
    """One line about each registered dataset."""
    return {name: _REGISTRY[name].summary for name in names()}


def load(dataset: str, options: LoadOptions | None = None) -> DomainDataset:
    """A dataset by registered name, by folder `domain/class/image`, or by .npz file.

    Args:
        dataset: name or path. A name wins over a folder of the same name; write `./name` for the folder.
        options: where and how.
    """
    from fgmix.data.arrays import load_npz
    from fgmix.data.folders import load_folder

    options = options or LoadOptions()
    if dataset in _REGISTRY:
        return _REGISTRY[dataset].load(options)
    path = Path(dataset).expanduser()
    if path.suffix == ".npz" and path.is_file():
        return load_npz(path)
    if path.is_dir():
        return load_folder(path, options)
    if os.sep in dataset or path.suffix == ".npz":
        raise UserError(f"Expected a folder domain/class/image or an .npz file at {dataset}. Found nothing there.")
    raise unknown("dataset", dataset, names())


def cache_dir() -> Path:
    """Where decoded images and built datasets are kept: $FGMIX_CACHE, else ~/.cache/fgmix."""
    return Path(os.environ.get("FGMIX_CACHE") or Path.home() / ".cache" / "fgmix")
