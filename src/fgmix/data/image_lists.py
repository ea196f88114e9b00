"""Lists of images whose accuracy is reported apart, such as DomainBed-IP and DomainBed-OOP.

Teterwak et al., "Is Large-Scale Pretraining the Secret to Good Domain Generalization?", 2025,
https://arxiv.org/abs/2412.02856.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePath

import numpy as np
import numpy.typing as npt

from fgmix.data.dataset import DomainDataset, fingerprint_of
from fgmix.errors import UserError
from fgmix.records.files import read_bytes

Listed = Mapping[str, Mapping[str, npt.NDArray[np.bool_]]]  # by list and domain: which samples of the domain are in it

PARTS = 3  # of a path that identify an image: domain, class and file


def read_lists(files: str) -> dict[str, frozenset[str]]:
    """Read lists, files with a path per line, by the name of the file; a path ends in domain/class/file."""
    lists = {}
    for file in (Path(name.strip()).expanduser() for name in files.split(",")):
        try:
            lines = read_bytes(file).decode().splitlines()
        except UnicodeDecodeError as error:
            raise UserError(f"Expected a text file with a path per line at {file}. Found other bytes.") from error
        lists[file.stem] = frozenset(shorten(line.strip()) for line in lines if line.strip())
    return lists


@lru_cache(maxsize=8)  # a sweep resolves thousands of runs that share the lists
def digest_lists(files: str) -> str:
    """Compute a digest of the names and the content of lists."""
    return fingerprint_of([part for name, paths in read_lists(files).items() for part in (name, *sorted(paths))])


def find_listed(dataset: DomainDataset, files: str) -> Listed:
    """Find the samples of a dataset that are in lists; a list without any is an error."""
    found = {}
    for name, paths in read_lists(files).items():
        if any(domain.files is None for domain in dataset.domains):
            raise UserError(f"Expected images in files for the list {name}. Found arrays in {dataset.name}.")
        found[name] = {
            domain.name: np.array([file in paths for file in domain.files or ()], np.bool_)
            for domain in dataset.domains
        }
        if not any(mask.any() for mask in found[name].values()):
            raise UserError(
                f"Expected paths domain/class/file of {dataset.name} in the list {name}. Found none. Check the list."
            )
    return found


def shorten(path: str | PurePath) -> str:
    """Return the end of a path that identifies an image.

    >>> shorten("/data/PACS/sketch/dog/12.png")
    'sketch/dog/12.png'
    """
    return "/".join(PurePath(path).parts[-PARTS:])
