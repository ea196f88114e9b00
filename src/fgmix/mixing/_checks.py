"""Checks of the arguments of `FGMix`. None synchronises with a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fgmix.errors import UserError, bad_value
from fgmix.mixing._heads import block_sizes, chain_of, linear_head, logits_of

MOST_CLASSES = 1_000_000


def check_head(classifier: object) -> None:
    """Check the classifier that a policy is built for: a module with parameters, or a number of classes."""
    if isinstance(classifier, nn.Module):
        if not block_sizes(classifier):
            raise UserError("Expected a classifier with parameters. Found none. Pass the head that gives the logits.")
    elif not isinstance(classifier, int) or isinstance(classifier, bool) or not 1 <= classifier <= MOST_CLASSES:
        raise bad_value("classifier", f"a torch.nn.Module or a number of classes up to {MOST_CLASSES:,}", classifier)


def count_outputs(classifier: nn.Module | int) -> int:
    """Return the number of outputs of all linear layers of the head that a policy on hashed gradients is built for: a
    chain of layers, or C of one layer."""
    if isinstance(classifier, int):
        return classifier
    chain = chain_of(classifier)
    if chain is None:
        raise UserError(
            f"Parameter `sketch` needs a classifier of nn.Linear layers, whose gradients are outer products. Found a "
            f"{type(classifier).__name__}. Leave it out."
        )
    return sum(layer.out_features for layer in chain if isinstance(layer, nn.Linear))


def check_batch(
    z: Tensor, y: Tensor, domains: Tensor, classifier: nn.Module, code_size: int, *, read: bool = True
) -> int:
    """Check the arguments of one call, and return C; domain ids may be on the CPU.

    Labels are compared with the number of classes only with `read`, and not on a GPU: reading them would synchronise.
    """
    for name, tensor in (("z", z), ("y", y), ("domains", domains)):
        if not isinstance(tensor, Tensor):
            raise UserError(f"Parameter `{name}` should be a tensor. Found {type(tensor).__name__}.")
        if tensor.device != z.device and (name != "domains" or tensor.device.type != "cpu"):
            raise UserError(
                f"Expected z, y and domains on one device. Found z on {z.device} and {name} on {tensor.device}."
            )
    if z.layout != torch.strided:
        raise UserError(f"Expected `z` as a dense tensor. Found {z.layout}. Pass z.to_dense().")
    if z.ndim != 2 or z.shape[1] != code_size or len(z) == 0 or not z.is_floating_point():
        raise UserError(
            f"Expected codes of shape (N, {code_size}) and a floating-point type. Found {tuple(z.shape)} of {z.dtype}. "
            "Pool them, or build FGMix with their width as `code_size`."
        )
    if not y.shape == domains.shape == (len(z),):
        raise UserError(
            f"Expected one class and one domain id per code. Found {len(z)} codes, classes of shape {tuple(y.shape)} "
            f"and domain ids of shape {tuple(domains.shape)}. Pass two vectors of the batch's length."
        )
    if y.dtype != torch.long:
        raise UserError(f"Expected classes as torch.int64. Found {y.dtype}. Pass y.long() of class indices.")
    if domains.is_floating_point():
        raise UserError(f"Expected domain ids as integers. Found {domains.dtype}. Pass domains.long().")
    n_classes = _n_classes(classifier, z)
    low, high = map(int, y.aminmax()) if read and y.device.type == "cpu" else (0, 0)
    if low < 0 or high >= n_classes:
        raise UserError(
            f"Expected classes from 0 to {n_classes - 1}, the classifier's. Found {low} to {high}. "
            "Number the classes from 0, or pass the classifier that has them all."
        )
    return n_classes


def _n_classes(classifier: object, z: Tensor) -> int:
    """Return C of a classifier that maps codes z (N, d) to logits (N, C)."""
    if not isinstance(classifier, nn.Module):
        raise bad_value("classifier", "a torch.nn.Module", classifier)
    head = linear_head(classifier)
    if head is not None:
        if head.in_features != z.shape[1]:
            raise UserError(
                f"Expected a classifier of codes of width {z.shape[1]}. Found one of width {head.in_features}. "
                "Pass the classifier that these codes are given to."
            )
        return head.out_features
    try:
        logits = logits_of(classifier, z[:1].detach().to(torch.promote_types(z.dtype, torch.float32)))
    except RuntimeError as error:
        raise UserError(
            f"Expected a classifier of codes of width {z.shape[1]}. Found one that fails on them ({error}). "
            "Pass the classifier that these codes are given to."
        ) from error
    if logits.ndim != 2:
        raise UserError(f"Expected a classifier with logits (N, C). Found outputs of shape {tuple(logits.shape)}.")
    return logits.shape[1]
