"""Seeds from names and counters: every random number of a run is a pure function of its purpose."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def seed_hash(*key: object) -> int:
    """DomainBed's hash of a tuple to a 31-bit seed: md5 of its text.

    >>> seed_hash(0, 1)
    1514274641
    """
    return int(hashlib.md5(str(key).encode("utf-8")).hexdigest(), 16) % (2**31)


def numpy_generator(*key: object) -> np.random.Generator:
    """A counter-based generator for `key`, such as ("batch", seed, domain, step)."""
    digest = hashlib.blake2b(repr(key).encode("utf-8"), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def torch_generator(*key: object) -> torch.Generator:
    """A torch CPU generator for `key`."""
    import torch

    digest = hashlib.blake2b(repr(key).encode("utf-8"), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def seed_torch(*key: object) -> None:
    """Seed torch's global generators, which dropout and the algorithms use, for `key`.

    Not by `torch.manual_seed`, which stores the call and its stack trace for every kind of accelerator that has not
    been used. On a CPU, that would be a millisecond and 15 kB, never freed, at every step of a run.
    """
    import torch

    seed = torch_generator(*key).initial_seed()
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)
