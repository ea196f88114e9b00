"""LoRA: train adapters of low rank beside the frozen linear layers of a backbone.

    W x → W x + α/r · B A x,    A: r × in, B: out × r, B = 0 at the start

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, https://arxiv.org/abs/2106.09685. The layers are
those of [peft](https://huggingface.co/docs/peft). W, the base, never changes: `state_dict()` has the adapters and a
digest of the base instead of the base itself, so that checkpoints, kept weights and averages are small.
"""

from __future__ import annotations

import copy
import hashlib
import re
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fgmix.errors import UserError, require_package
from fgmix.networks._torchvision import ensure_torchvision
from fgmix.networks.featurizer import Featurizer

DIGEST = "base_digest"  # name in `state_dict()`

N = TypeVar("N", bound=nn.Module)


def add_adapters(
    featurizer: Featurizer, rank: int, targets: str = "", alpha: float = 0.0, dropout: float = 0.0
) -> None:
    """Add adapters to linear layers of a backbone and freeze everything else in it.

    Args:
        featurizer: changed in place; its weights are the base.
        rank: r.
        targets: comma-separated names of layers, or of modules that contain them, such as `attn` or `blocks.11`;
            empty for all linear layers.
        alpha: α; 0 for r.
        dropout: dropout rate of the inputs of A.
    """
    ensure_torchvision()  # transformers, which peft imports, imports it
    require_package("peft", "peft")
    from peft import LoraConfig, inject_adapter_in_model

    net = featurizer.net
    layers, attentions = _find_targets(net, targets)
    if attentions and dropout:
        raise UserError(
            f"Expected --lora-dropout 0 for {attentions[0]}, whose weights of query, key and value are one parameter. "
            f"Found {dropout}. Drop it, or name other layers with --lora-targets."
        )
    digest = _digest_tensors(net.state_dict())
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha or rank,
        lora_dropout=dropout,
        target_modules="|".join(map(re.escape, layers)) or None,
        target_parameters=[f"{name}.in_proj_weight" for name in attentions] or None,
    )
    inject_adapter_in_model(config, net)
    featurizer.freeze_bn = True  # running statistics belong to the base
    trained = {name for name, parameter in featurizer.named_parameters() if parameter.requires_grad}
    featurizer.base = frozenset(featurizer.state_dict().keys() - trained)
    featurizer.register_buffer(DIGEST, digest)
    featurizer.register_state_dict_post_hook(_drop_base)  # type: ignore[no-untyped-call]
    featurizer.register_load_state_dict_pre_hook(_keep_base)  # type: ignore[no-untyped-call]
    featurizer.train(featurizer.training)


def merge_adapters(module: N) -> N:
    """Return a copy of a network with its adapters added to the base: plain layers, with the names of the base.

    A network without adapters is returned itself.
    """
    if not list_base(module):
        return module
    merged = copy.deepcopy(module)
    for featurizer in [each for each in merged.modules() if isinstance(each, Featurizer) and each.base]:
        for name, layer in list(featurizer.named_modules()):
            if hasattr(layer, "lora_A"):
                layer.merge()
                parent, _, child = name.rpartition(".")
                setattr(featurizer.get_submodule(parent), child, layer.get_base_layer())
        featurizer.base = frozenset()
        delattr(featurizer, DIGEST)
    return merged


def list_base(module: nn.Module) -> set[str]:
    """List the names of the tensors of a network that belong to the base of adapters; none without adapters."""
    return {
        f"{path}.{name}" if path else name
        for path, each in module.named_modules()
        if isinstance(each, Featurizer)
        for name in each.base
    }


def _find_targets(net: nn.Module, targets: str) -> tuple[list[str], list[str]]:
    """Find the linear layers to adapt, and torch's attention layers, which have no linear layer for x → q, k, v."""
    attentions = [name for name, module in net.named_modules() if isinstance(module, nn.MultiheadAttention)]
    layers = [
        name
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear) and name.removesuffix(".out_proj") not in attentions
    ]
    wanted = [target.strip() for target in targets.split(",") if target.strip()]
    chosen = [
        [name for name in names if not wanted or any(f".{target}." in f".{name}." for target in wanted)]
        for names in (layers, attentions)
    ]
    if not any(chosen):
        ends = {name: name.rpartition(".")[2] for name in (*layers, *attentions)}
        known = sorted({name if end.isdigit() else end for name, end in ends.items()})
        advice = f"Name some of {', '.join(known)}." if known else "Use a transformer, or train without --lora."
        raise UserError(
            f"Expected linear layers {f'named {targets} ' if targets else ''}to adapt in {type(net).__name__}. "
            f"Found none. {advice}"
        )
    return chosen[0], chosen[1]


def _drop_base(featurizer: Any, state: dict[str, Any], prefix: str, _metadata: dict[str, Any]) -> None:
    """Remove the base from a `state_dict()`."""
    for name in featurizer.base:
        state.pop(f"{prefix}{name}", None)


def _keep_base(featurizer: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Complete a state that is loaded by the present base, if the state was trained on the same one."""
    if not featurizer.base:
        return
    digest = state.get(f"{prefix}{DIGEST}")
    if digest is not None and not torch.equal(digest.cpu(), featurizer.base_digest.cpu()):
        raise UserError(
            "Expected the backbone weights that the adapters were trained on. Found others. Restore the file, or the "
            "pre-trained weights, of the run."
        )
    tensors = {**dict(featurizer.named_parameters()), **dict(featurizer.named_buffers())}
    state.update({f"{prefix}{name}": tensors[name] for name in featurizer.base})


def _digest_tensors(tensors: dict[str, Tensor]) -> Tensor:
    """Compute a digest of names and values, as 16 bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in tensors.items():
        digest.update(f"{name} {tuple(tensor.shape)}:".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return torch.tensor(list(digest.digest()), dtype=torch.uint8)
