"""Load weights from a file without executing anything in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fgmix.errors import UserError


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Tensors of a .safetensors file or of a torch file (loaded with weights_only)."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"Expected a weights file at {path}. Found none. Check the path given as weights.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: dict[str, Any] = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(
            f"Expected a .safetensors file or a torch file of plain tensors at {path}. "
            f"Found one that does not load ({type(error).__name__}). Save the state_dict alone."
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(state.get(key), dict):
            state = state[key]
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def load_weights(net: nn.Module, path: str | Path) -> None:
    """Fill `net` from a file: by name where the names fit, else by order where the shapes fit one to one.

    By order, because the same network published by another library has the same tensors under other names. Tensors
    of the file that are left over at its end (a classifier's) are ignored; a tensor of `net` left without one is an
    error. A .safetensors file is taken by name alone: it keeps its tensors sorted, not in the network's order.
    """
    state, own = read_weights(path), net.state_dict()
    if set(own) <= set(state) and all(own[name].shape == state[name].shape for name in own):
        net.load_state_dict({name: state[name] for name in own})
        return

    if Path(path).suffix == ".safetensors":
        raise UserError(
            f"Expected tensors named as this backbone names them in {path}. Found other names, and a .safetensors file "
            "does not keep the order by which they could be matched. Rename them, or save them with torch.save."
        )

    def counted(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: t for name, t in tensors.items() if not name.endswith("num_batches_tracked")}

    mine, theirs = counted(own), counted(state)
    if len(mine) > len(theirs) or any(a.shape != b.shape for a, b in zip(mine.values(), theirs.values())):
        raise UserError(
            f"Expected weights for this backbone ({len(mine)} tensors) in {path}. Found {len(theirs)} tensors that fit "
            "neither by name nor by order. Check that the file belongs to the backbone."
        )
    net.load_state_dict({**own, **dict(zip(mine, theirs.values()))})
