"""Join datasets of different domains: the domains of a model and a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fgmix.data.dataset import ArrayInputs, Domain, DomainDataset, fingerprint_of
from fgmix.errors import UserError


def join_datasets(first: DomainDataset, second: DomainDataset) -> DomainDataset:
    """Join the domains of two datasets of one kind; classes are matched by name, and groups kept apart.

    Args:
        first: gives the name.
        second: its domains follow.

    Example:
        >>> from fgmix.data import from_arrays
        >>> a = from_arrays(np.zeros((2, 3)), ["cat", "dog"], ["north", "north"])
        >>> b = from_arrays(np.ones((2, 3)), ["dog", "eel"], ["south", "south"])
        >>> joined = join_datasets(a, b)
        >>> joined.domain_names, joined.classes, joined.domains[1].y.tolist()
        (('north', 'south'), ('cat', 'dog', 'eel'), [1, 2])
    """
    for what in ("kind", "input_shape", "window", "columns"):
        if getattr(first, what) != getattr(second, what):
            raise UserError(
                f"Expected data that are prepared alike. Found {what} {getattr(first, what)} in {first.name} and "
                f"{getattr(second, what)} in {second.name}."
            )
    if shared := sorted({*first.domain_names} & {*second.domain_names}):
        raise UserError(f"Expected new domains. Found {', '.join(shared)} in both. Rename them.")
    classes = tuple(sorted({*first.classes, *second.classes}))
    last_group = max((int(d.groups.max()) for d in first.domains if d.groups is not None), default=-1)
    domains = [*_number(first, classes, 0), *_number(second, classes, last_group + 1)]
    return replace(
        first,
        domains=tuple(_unify(domains)),
        classes=classes,
        fingerprint=fingerprint_of(["joined", first.fingerprint, second.fingerprint]),
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
    )


def _number(dataset: DomainDataset, classes: Sequence[str], first_group: int) -> list[Domain]:
    """Return the domains with labels of the joined classes, and groups numbered from `first_group` on."""
    numbers = np.array([classes.index(name) for name in dataset.classes])
    return [
        replace(each, y=numbers[each.y], groups=None if each.groups is None else each.groups + first_group)
        for each in dataset.domains
    ]


def _unify(domains: Sequence[Domain]) -> list[Domain]:
    """Store arrays of all domains in one type: one that loses no digit."""
    kinds = {each.inputs.x.dtype for each in domains if isinstance(each.inputs, ArrayInputs)}
    if len(kinds) < 2:
        return list(domains)
    if any(kind.kind != "f" for kind in kinds):
        raise UserError(f"Expected values of one type. Found {', '.join(sorted(map(str, kinds)))}.")
    widest = np.result_type(*kinds)
    return [
        replace(each, inputs=replace(each.inputs, x=each.inputs.x.astype(widest)))
        for each in domains
        if isinstance(each.inputs, ArrayInputs)
    ]
