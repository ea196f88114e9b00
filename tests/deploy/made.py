"""Small data and models that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fgmix import Model, fit
from fgmix.data import DomainDataset, from_arrays


def vectors(domains: int = 3, n: int = 60, *, shift: float = 0.5, seed: int = 0, offset: float = 0.0) -> DomainDataset:
    """Three well-separated classes of five numbers, shifted a little from domain to domain."""
    rng = np.random.default_rng(seed)
    y, d = np.tile(np.arange(n) % 3, domains), np.repeat(np.arange(domains), n)
    x = rng.normal(size=(domains * n, 5)) + 4 * np.eye(5)[y] + shift * d[:, None] + offset
    return from_arrays(x, np.array(["a", "b", "c"])[y], np.array(["north", "east", "south", "west"])[d])


QUICK: dict[str, Any] = {
    "algorithm": "erm",
    "steps": 30,
    "eval_every": 10,
    "averaging_start": 10,
    "device": "cpu",
    "progress": False,
}


def vector_model(out: Path, **options: object) -> Model:
    """A model of `vectors`, trained in a second."""
    return fit(vectors(), out, **{**QUICK, **options})


def signals(domains: int = 3, n: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (domains · n, 2, 64) of large units whose frequency is the class and whose amplitude is the domain's."""
    rng = np.random.default_rng(0)
    y, d = np.tile(np.arange(n) % 2, domains), np.repeat(np.arange(domains), n)
    phase = rng.random((len(y), 2, 1)) + np.arange(64) / 64 * (3 + 9 * y[:, None, None])
    x = (1 + d[:, None, None]) * np.sin(2 * np.pi * phase) + 0.3 * rng.normal(size=(len(y), 2, 64))
    return 5000 + 1000 * x, y, d


def small_images() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X uint8 (60, 3, 16, 16) whose brightness is the class, y and domain."""
    y, d = np.arange(60) % 3, np.arange(60) // 20
    noise = np.random.default_rng(0).integers(0, 60, (60, 3, 16, 16))
    return (noise + 60 * y[:, None, None, None]).astype(np.uint8), y, d


def small_image_model(out: Path, algorithm: str = "erm", **changes: object) -> Model:
    """A model of `small_images` after one step."""
    short = {"algorithm": algorithm, "steps": 1, "batch_size": 3, "averaging_start": 1, "estimated": False}
    return fit(from_arrays(*small_images()), out, **{**QUICK, **short, **changes})


def striped_folder(root: Path, domains: tuple[str, ...] = ("dark", "plain", "wide"), n: int = 8) -> Path:
    """domain/stripes/image: the class is how stripes run, the domain their brightness and the image's form."""
    rng = np.random.default_rng(0)
    for k, domain in enumerate(domains):
        height, width = 20 + 4 * k, 24 - 2 * k
        down, across = np.mgrid[:height, :width] // 4 % 2
        for name, pattern in {"columns": across, "none": 0 * down + 0.5, "rows": down}.items():
            folder = root / domain / name
            folder.mkdir(parents=True)
            for i in range(n):
                grey = (60 + 30 * k) * (1 + pattern) + rng.normal(0, 6, (height, width))
                Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB").save(folder / f"{i}.png")
    return root
