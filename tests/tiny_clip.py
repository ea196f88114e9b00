"""A CLIP model of toy size with random weights, built and loaded by the code for real ones, and images for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 32
NAME = "open_clip:tiny-clip"
CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": SIDE, "layers": 4, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
}
CLASSES = ("Alarm_Clock", "dog")


def add_config(folder: Path) -> str:
    """Add the configuration to open_clip's; returns the name of the backbone."""
    from fgmix.networks.clip import load_open_clip

    file = folder / "tiny-clip.json"
    file.write_text(json.dumps(CONFIG))
    load_open_clip().add_model_config(file)
    return NAME


def make_images(folder: Path, domains: tuple[str, ...] = ("art", "photo", "sketch"), n: int = 6) -> Path:
    """Write n images of each class and domain."""
    rng = np.random.default_rng(0)
    for d, domain in enumerate(domains):
        for c, label in enumerate(CLASSES):
            (folder / domain / label).mkdir(parents=True)
            for i in range(n):
                pixels = rng.integers(0, 120, (SIDE, SIDE, 3)) + 60 * c + 20 * d
                Image.fromarray(pixels.astype(np.uint8)).save(folder / domain / label / f"{i}.png")
    return folder
