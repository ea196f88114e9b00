"""Load datasets by name, or from a folder, a CSV manifest or an .npz file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fgmix.data.dataset import DomainDataset
from fgmix.data.files import describe_path
from fgmix.errors import MachineError, UserError, bad_value, unknown
from fgmix.records.code import describe_plug_in, load_group
from fgmix.records.files import as_path, check_path

GROUP = "fgmix.datasets"  # entry-point group of plug-ins: name = "package.module:load"


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
    window: str = ""  # of grey values of more than 8 bits, LOW:HIGH or dicom; empty to choose one from the images
    fewest: int = 2  # domains that images in files must have
    preferred_size: int | None = None  # of images in files, unless `image_size` is given; None for 224

    def __post_init__(self) -> None:
        for name in ("root", "cache"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_path(name, getattr(self, name)))

    @property
    def file_size(self) -> int | None:
        """The side of images in files; None for the usual one."""
        return self.preferred_size if self.image_size is None else self.image_size


Loader = Callable[[LoadOptions], Any]  # → DomainDataset, or what `make_dataset` makes one from
L = TypeVar("L", bound=Loader)


@dataclass(frozen=True)
class Registered:
    """A registered dataset: its loader, a one-line summary, and whether its samples depend on the trial seed."""

    load: Loader
    summary: str
    depends_on_trial: bool


_REGISTRY: dict[str, Registered] = {}


def register_dataset(name: str, summary: str = "", *, depends_on_trial: bool = True) -> Callable[[L], L]:
    """Register a function (or a class) for `load`, as a decorator.

    Args:
        name: of the dataset.
        summary: one line, for `fgmix list datasets`; by default the first of the docstring.
        depends_on_trial: whether the trial seed changes the samples; if not, trials share the loaded dataset.

    It is called with `LoadOptions` and returns a `DomainDataset`, the samples by domain (`from_samples`), or an object
    with these as `domains` and with other arguments of `from_samples` as attributes: `classes`, `transform`, ….
    """
    if not isinstance(name, str) or not name.strip() or os.sep in name:
        raise bad_value("name", "a text, under which the dataset is known", name)

    def add(load: L) -> L:
        if not callable(load):
            raise bad_value("load", "a function of LoadOptions", load)
        if name in _REGISTRY and _REGISTRY[name].load.__module__ != load.__module__:
            raise UserError(f"Dataset {name!r} is registered already. Choose another name.")
        text = summary or (load.__doc__ or "").strip().partition("\n")[0]
        _REGISTRY[name] = Registered(load, text, depends_on_trial)
        return load

    return add


def names() -> list[str]:
    """List the registered names, plug-ins included, sorted; a plug-in that cannot be imported is left out."""
    load_group(GROUP, _add)
    return sorted(_REGISTRY)


def summaries() -> dict[str, str]:
    """Return the one-line summary of each registered dataset."""
    return {name: _REGISTRY[name].summary for name in names()}


def _add(name: str, load: Loader) -> None:
    """Register the dataset of a plug-in, which may have registered itself."""
    if name not in _REGISTRY or _REGISTRY[name].load is not load:
        register_dataset(name)(load)


def _find(name: str) -> Registered | None:
    """Find a registered dataset; None for other names, such as paths."""
    if name not in _REGISTRY and name in (failures := load_group(GROUP, _add)):
        raise UserError(failures[name])
    return _REGISTRY.get(name)


def describe_code(dataset: str) -> str:
    """Describe the code of a registered dataset of a plug-in, as `algorithms.describe_code`; empty for others."""
    registered = _find(dataset)
    return describe_plug_in(GROUP, dataset, registered.load) if registered else ""


def depends_on_trial(dataset: str) -> bool:
    """Whether the result of `load` depends on the trial seed; if not, it can be loaded once for all trials.

    >>> depends_on_trial("rotated_mnist"), depends_on_trial("digits"), depends_on_trial("some/folder")
    (True, False, False)
    """
    registered = _find(dataset)
    return registered is not None and registered.depends_on_trial


def load(dataset: str, options: LoadOptions | None = None) -> DomainDataset:
    """Load a dataset by registered name, by folder `domain/class/image`, by CSV manifest, or by .npz file.

    Args:
        dataset: name or path. A registered name takes precedence over a folder of the same name; write `./name` for the
            folder.
        options: where and how to load it.
    """
    from fgmix.data.arrays import load_npz
    from fgmix.data.image_dataset import load_images
    from fgmix.data.objects import make_dataset
    from fgmix.data.tables import is_table, load_table

    if not isinstance(options, LoadOptions | None):
        raise bad_value("options", "a LoadOptions", options)
    options = options or LoadOptions()
    dataset = str(check_path("dataset", dataset)) if isinstance(dataset, os.PathLike) else dataset
    if not isinstance(dataset, str):
        raise bad_value("dataset", "a name or a path", dataset)
    if registered := _find(dataset):
        loaded = registered.load(options)
        return loaded if isinstance(loaded, DomainDataset) else make_dataset(dataset, loaded, progress=options.progress)
    path = as_path(dataset) if dataset.startswith("~") else Path(dataset)
    ending = path.suffix.lower()
    if not dataset or not (os.sep in dataset or ending in (".npz", ".csv", ".parquet") or os.path.lexists(path)):
        unknown_name = unknown("dataset", dataset, names())
        raise UserError(f"{unknown_name} No file or folder has this name. Pass --plugin FILE if one registers it.")
    if ending == ".npz" and os.path.isfile(path):
        return load_npz(path)
    if ending in (".csv", ".parquet") and os.path.isfile(path) and is_table(path):
        return load_table(path)
    if os.path.isdir(path) or (ending == ".csv" and os.path.isfile(path)):
        return load_images(path, options)
    sentence = (
        f"Expected a folder domain/class/image, a CSV manifest, a table (.csv, .parquet) or an .npz file at {dataset}. "
        f"Found {describe_path(path)}. Check the path."
    )
    # a MachineError for a missing path: it may exist on another machine, or not be mounted here
    raise UserError(sentence) if os.path.lexists(path) else MachineError(sentence)
