"""Registered algorithms by name. Registering a class enrols it in the shared contract tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from torch import nn

from fgmix.algorithms._base import Algorithm
from fgmix.errors import UserError, unknown

GROUP = "fgmix.algorithms"  # entry-point group of third-party methods: name = "package.module:Class"

_REGISTRY: dict[str, type[Algorithm]] = {}
A = TypeVar("A", bound=type[Algorithm])


def register(name: str) -> Callable[[A], A]:
    """Class decorator: make an algorithm known as `name`, which is its label too unless the class declares one.

    >>> @register("mine")
    ... class Mine(Algorithm):
    ...     pass
    >>> get("mine") is Mine, Mine.label
    (True, 'mine')
    >>> del _REGISTRY["mine"]
    """

    def add(cls: A) -> A:
        if name in _REGISTRY and _REGISTRY[name] is not cls:
            raise UserError(
                f"Algorithm {name!r} is registered already, by {_REGISTRY[name].__module__}. Choose another name."
            )
        _REGISTRY[name] = cls
        for attribute, default in (("label", name), ("domainbed_name", None)):
            if attribute not in vars(cls):  # not inherited: what is built on Fish is not Fish
                setattr(cls, attribute, default)
        return cls

    return add


@cache
def _third_party() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> list[str]:
    """All registered names, third-party ones included, sorted."""
    return sorted({*_REGISTRY, *_third_party()})


def get(name: str) -> type[Algorithm]:
    """The class registered as `name`."""
    if name not in _REGISTRY and name in _third_party():
        register(name)(_third_party()[name].load())
    if name not in _REGISTRY:
        raise unknown("algorithm", name, names())
    return _REGISTRY[name]


def create(name: str, *, featurizer: nn.Module, classifier: nn.Module, n_domains: int, **settings: Any) -> Algorithm:
    """Build a registered algorithm; `settings` are the fields of its `Config`.

    >>> create("erm", featurizer=nn.Flatten(), classifier=nn.Linear(4, 2), n_domains=3, lr=1e-3).config.lr
    0.001
    """
    cls = get(name)
    config = cls.Config.of(**settings)
    if n_domains < cls.min_domains:
        raise UserError(
            f"{name} needs at least {cls.min_domains} source domains. Found {n_domains}. "
            "Add domains, hold fewer out, or take a method that works on one, such as erm."
        )
    return cls(featurizer, classifier, n_domains, config)
