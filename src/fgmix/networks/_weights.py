"""Load weights from a file without executing any code in it, or find them in Hugging Face's cache or hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fgmix.errors import MachineError, UserError

Matched = Literal["by name", "by order"]
TIMEOUT = 5  # seconds that the hub has to answer; its own library retries for a minute
KINDS = ("weight", "bias", "running_mean", "running_var")


def load_weights(net: nn.Module, path: str | Path) -> Matched:
    """Load a file into `net` and return how the tensors were matched: by name if all are there, else by order.

    Matching by order allows the same network from another library, which has the same tensors with other names. Extra
    tensors at the end of the file (a classifier's) are ignored; a tensor of `net` without a match is an error. A
    .safetensors file is matched by name only: its tensors are sorted, not in the order of the network.
    """
    state, own = read_weights(path), net.state_dict()
    if own.keys() <= state.keys():
        for name, wanted, found in ((name, own[name].shape, state[name].shape) for name in own):
            if wanted != found:
                raise UserError(
                    f"Expected a tensor {name} of shape {tuple(wanted)} in {path}. Found {tuple(found)}. Use the "
                    "--image-size of the weights, or check that the file belongs to the backbone."
                )
        net.load_state_dict({name: state[name] for name in own})
        return "by name"
    if Path(path).suffix == ".safetensors":
        raise UserError(
            f"Expected tensors named as in this backbone in {path}. Found other names, and a .safetensors file "
            "does not keep the order by which they could be matched. Rename them, or save them with torch.save."
        )
    mine, theirs = _drop_counters(own), _drop_counters(state)
    if not _agree_in_order(mine, theirs):
        raise UserError(
            f"Expected weights for this backbone ({len(mine)} tensors) in {path}. Found {len(theirs)} tensors that "
            "match neither by name nor by order. Check that the file belongs to the backbone."
        )
    net.load_state_dict({**own, **dict(zip(mine, theirs.values()))})
    return "by order"


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a .safetensors file or of a torch file (loaded with weights_only)."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f"Expected a weights file at {path}. Found none. Check the path given as weights.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(
            f"Expected a .safetensors file or a torch file of plain tensors at {path}. Found one that cannot be loaded "
            f"({type(error).__name__}). Download it again if it may be incomplete, or save the state_dict only."
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    tensors = state.items() if isinstance(state, dict) else ()
    weights = {name: value for name, value in tensors if isinstance(name, str) and isinstance(value, Tensor)}
    if not weights:
        raise UserError(
            f"Expected a state_dict, names with their tensors, in {path}. Found a {type(state).__name__} without any. "
            "Save the network's state_dict."
        )
    broken = [name for name, value in weights.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise UserError(
            f"Expected finite numbers in {path}. Found infinite or undefined ones in {len(broken)} of {len(weights)} "
            f"tensors (the first is {broken[0]}). Use weights of a run that did not diverge."
        )
    return weights


def _drop_counters(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors without the batch counters of batch norm, which not every library saves."""
    return {name: tensor for name, tensor in tensors.items() if not name.endswith("num_batches_tracked")}


def _agree_in_order(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    """Say whether the first of their tensors match mine one to one: in shape and, if the names show it, in kind."""
    pairs = list(zip(mine.items(), theirs.items()))
    return len(theirs) >= len(mine) and all(
        a.shape == b.shape and _kind(name_a, name_b) == _kind(name_b, name_a) for (name_a, a), (name_b, b) in pairs
    )


def _kind(name: str, other: str) -> str:
    """Return the kind of a tensor from the end of its name, such as "bias"; empty unless both names end in a kind."""
    kind, others = name.rpartition(".")[2], other.rpartition(".")[2]
    return kind if kind in KINDS and others in KINDS else ""


def find_cached_file(repository: str, names: Sequence[str], revision: str | None = None) -> Path | None:
    """Return the first of the files in Hugging Face's cache; None if none was downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    files = [try_to_load_from_cache(repository, name, revision=revision) for name in names if repository]
    return next((Path(file) for file in files if isinstance(file, str)), None)


def require_answer(name: str, repository: str | None, url: str | None) -> None:
    """Raise an error if the address of the weights, on the hub or elsewhere, does not answer within `TIMEOUT`."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    address = f"{constants.ENDPOINT}/{repository}" if repository else f"{url}"
    try:
        get_session().head(address, timeout=TIMEOUT)
    except Exception as error:
        raise MachineError(
            f"Expected to download the weights of {name} from {address}. It cannot be reached "
            f"({type(error).__name__}). Connect, or pass a file with --weights PATH, or copy Hugging Face's cache from "
            "a machine that has the weights and set HF_HUB_OFFLINE=1."
        ) from error
