"""The recipe: settings that every method has besides learning rate and weight decay. docs/recipes.md. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Defaults, which specs leave out: runs from before there were recipes keep their names.
RECIPE: Mapping[str, Any] = {
    "optimizer": "adam",
    "schedule": "constant",
    "lr_warmup": 0,
    "decay_on": "all",
    "layer_decay": 1.0,
    "head_lr": None,
    "clip_norm": None,
    "accumulate": 1,
}
