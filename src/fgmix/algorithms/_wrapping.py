"""Wrappers around methods: `sam+coral` is CORAL's objective with SAM's update."""

from __future__ import annotations

from collections.abc import Callable

from fgmix.algorithms._base import Algorithm
from fgmix.algorithms._config import BaseConfig
from fgmix.errors import UserError

INNERMOST = "erm"  # the method that a wrapper's name alone wraps


def wrapped(wrapper: type[Algorithm], inner: type[Algorithm], name: str) -> type[Algorithm]:
    """The method with the objective, state and settings of `inner` and the update of the wrapper.

    The wrapper replaces `Algorithm` as the class after the inner method in the resolution order, so what the inner
    method does before it calls `super().update`, such as resetting Adam, still happens.

    Args:
        wrapper: a method that overrides only `update`.
        inner: the method to wrap.
        name: name of the result.
    """
    if not can_be_wrapped(inner):
        raise UserError(
            f"Expected a method whose update is one objective, such as erm or coral, for {wrapper.label} to be wrapped "
            f"around. Found {name!r}, where {inner.label} has an update of its own. Use another method, or drop the "
            "prefix."
        )
    config: type[BaseConfig] = type("Config", (wrapper.Config, inner.Config), {"__module__": wrapper.__module__})
    facts = {fact: value for fact, value in vars(wrapper).items() if fact in ("year", "paper", "family")}
    return type(
        f"{wrapper.__name__}Of{inner.__name__}",
        (inner, wrapper),
        {
            **facts,
            "__module__": wrapper.__module__,
            "__doc__": wrapper.__doc__,
            "label": wrapper.label if name.endswith(f"+{INNERMOST}") else f"{wrapper.label} + {inner.label}",
            "domainbed_name": None,
            "cost": None if wrapper.cost is None or inner.cost is None else wrapper.cost * inner.cost,
            "Config": config,
            "trunk_steps": classmethod(_no_steps),
        },
    )


def _no_steps(_cls: type[Algorithm], _config: BaseConfig) -> int:
    """No step of a wrapped method equals ERM's."""
    return 0


def can_be_wrapped(method: type[Algorithm]) -> bool:
    """Whether every `update` between a method and `Algorithm` calls `super().update`, and none overrides `step`."""
    classes = method.__mro__[: method.__mro__.index(Algorithm)]
    updates: list[Callable[..., object]] = [vars(cls)["update"] for cls in classes if "update" in vars(cls)]
    # A function that uses super() has a closure cell for its class.
    codes = [update.__code__ for update in updates if hasattr(update, "__code__")]
    return (
        len(codes) == len(updates)
        and all("__class__" in code.co_freevars and "update" in code.co_names for code in codes)
        and all("step" not in vars(cls) for cls in classes)
    )
