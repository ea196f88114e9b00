"""Registered algorithms by name. Registering a class enrols it in the shared contract tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from torch import nn

from fgmix.algorithms._base import Algorithm, Task, check_parts
from fgmix.algorithms._config import BaseConfig
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.code import digest_source, keep_sources, load_group, name_origin
from fgmix.records.declarations import Overview, describe_method, filter_family

GROUP = "fgmix.algorithms"  # entry-point group of plug-ins: name = "package.module:Class"
INNERMOST = "erm"  # the algorithm that a wrapper's name alone wraps

_REGISTRY: dict[str, type[Algorithm]] = {}
_WRAPPERS: dict[str, type[Algorithm]] = {}
A = TypeVar("A", bound=type[Algorithm])


def register(name: str) -> Callable[[A], A]:
    """Register a class as the algorithm `name`, which is also its label unless the class declares one.

    >>> @register("mine")
    ... class Mine(Algorithm):
    ...     pass
    >>> get("mine") is Mine, Mine.label
    (True, 'mine')
    >>> del _REGISTRY["mine"]
    """

    if not isinstance(name, str) or not name:
        raise bad_value("name", "a text, under which the method is known", name)

    def add(cls: A) -> A:
        if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
            raise bad_value("cls", "a subclass of fgmix.algorithms.Algorithm", cls)
        if "+" in name:
            raise bad_value("name", "a text without +, which composes names", name)
        if name in _WRAPPERS or (name in _REGISTRY and _REGISTRY[name] is not cls):
            taken = (_WRAPPERS | _REGISTRY)[name]
            raise UserError(f"Algorithm {name!r} is registered already, by {taken.__module__}. Choose another name.")
        _REGISTRY[name] = cls
        if not cls.__module__.startswith("fgmix."):
            keep_sources((cls.__module__.partition(".")[0],))
        for attribute, default in (("label", name), ("domainbed_name", None)):
            if attribute not in vars(cls):  # not inherited: a subclass of Fish is not Fish
                setattr(cls, attribute, default)
        return cls

    return add


def register_wrapper(name: str) -> Callable[[A], A]:
    """Register a class as the wrapper `name`; `name+method` applies its update to the method's objective, or its way of
    predicting a domain to the method's network.

    >>> get("sam+coral").label, get("sam").label
    ('SAM + CORAL', 'SAM')
    """

    def add(cls: A) -> A:
        _WRAPPERS[name] = cls
        return cls

    return add


def names() -> list[str]:
    """Return all registered names, plug-ins included, sorted; a plug-in that cannot be imported is left out.

    A wrapper's name alone means the wrapper around ERM; `wrapper+method` wraps another method.
    """
    load_group(GROUP, _add)
    return sorted(_REGISTRY | _WRAPPERS)


def compositions() -> list[str]:
    """Return all names `wrapper+method` of a wrapper and a method, not wrapped itself, that it can wrap, sorted.

    >>> "sam+coral" in compositions(), "sam+dann" in compositions()
    (True, False)
    """
    inner = [name for name in names() if name not in _WRAPPERS]
    return sorted(
        f"{name}+{each}" for name, wrapper in _WRAPPERS.items() for each in inner if can_wrap(wrapper, get(each))
    )


def can_wrap(wrapper: type[Algorithm], inner: type[Algorithm]) -> bool:
    """Say whether a method leaves a wrapper what it replaces: the update, or the prediction, which must be plain."""
    if wrapper.adapts_at_test:
        return not (inner.adapts_at_test or inner.needs_task)  # a task may bring another classifier
    return inner.wrappable


def get(name: str) -> type[Algorithm]:
    """Return the class registered as `name`, or the one that a name such as `sam+coral` composes."""
    if not isinstance(name, str):
        raise unknown("algorithm", name, names())
    if name in _WRAPPERS:
        name = f"{name}+{INNERMOST}"
    wrapper, plus, inner = name.partition("+")
    if plus and not (wrapper and inner):
        raise UserError(f"Expected the names of a wrapper and a method, such as sam+coral. Found {name!r}. Name both.")
    if plus:
        return _compose(wrapper, inner)
    if name not in _REGISTRY and name in (failures := load_group(GROUP, _add)):
        raise UserError(failures[name])
    if name not in _REGISTRY:
        raise unknown("algorithm", name, names())
    return _REGISTRY[name]


@cache
def _compose(wrapper_name: str, inner_name: str) -> type[Algorithm]:
    """Build the algorithm with the objective, state and settings of the inner one and the update, or the test, of the
    wrapper.

    The wrapper replaces `Algorithm` as the class after the inner algorithm in the resolution order, so what the inner
    algorithm does before it calls `super().update`, such as resetting Adam, still happens.
    """
    if wrapper_name not in _WRAPPERS:
        raise unknown("wrapper of methods", wrapper_name, _WRAPPERS)
    wrapper, inner = _WRAPPERS[wrapper_name], get(inner_name)
    if not can_wrap(wrapper, inner):
        expected, own = "whose update is one objective", "an update"
        if wrapper.adapts_at_test:
            expected, own = "that predicts by its classifier alone", "a prediction"
        raise UserError(
            f"Expected a method {expected}, such as erm or coral, for {wrapper.label} to be wrapped around. Found "
            f"'{wrapper_name}+{inner_name}', where {inner.label} has {own} of its own. Use another method, or drop the "
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
            "label": wrapper.label if inner_name == INNERMOST else f"{wrapper.label} + {inner.label}",
            "domainbed_name": None,
            "cost": None if wrapper.cost is None or inner.cost is None else wrapper.cost * inner.cost,
            "wrappable": False,
            "Config": config,
            "trunk_steps": classmethod(lambda _cls, _config: 0),  # no step of a wrapped algorithm equals ERM's
        },
    )


def _add(name: str, cls: type[Algorithm]) -> None:
    """Register the method of a plug-in."""
    register(name)(cls)


def describe_code(name: str) -> str:
    """Describe the code of a method: a digest of its source, and the package and version, or the file, of a plug-in.

    Empty if its source cannot be read.
    """
    cls = get(name)  # a cell of a notebook may define it again
    digest, parts = digest_source(cls, Algorithm), name.split("+")
    foreign = [part for part in parts if not get(part).__module__.startswith("fgmix.algorithms.")]
    origin = name_origin(GROUP, parts, cls.__module__) if foreign else ""  # reads the metadata of all packages, 20 ms
    return f"{digest} {origin}".strip() if digest else ""


def create(
    name: str,
    *,
    featurizer: nn.Module,
    classifier: nn.Module,
    n_domains: int,
    task: Task | None = None,
    **settings: Any,
) -> Algorithm:
    """Build a registered algorithm; `settings` are the fields of its `Config`.

    The task is for methods that declare `needs_task`; others are built without it.

    >>> create("erm", featurizer=nn.Flatten(), classifier=nn.Linear(4, 2), n_domains=3, lr=1e-3).config.lr
    0.001
    """
    cls = get(name)
    config = cls.Config.of(**settings)
    check_parts(featurizer, classifier, n_domains)
    check_domains(name, n_domains)
    if config.accumulate > 1:
        check_accumulation(name, config)
    algorithm = cls(featurizer, classifier, n_domains, config)
    if cls.needs_task:
        if task is None:
            raise UserError(f"{name} needs the task of a run: the names of its classes. Found none. Pass `task`.")
        algorithm.set_task(task)
    return algorithm


def configure(
    name: str,
    settings: Mapping[str, Any],
    *,
    n_domains: int,
    batch_size: int,
    shape: tuple[int, ...],
    soft: bool,
    weighted: bool,
) -> BaseConfig:
    """Build the settings of a method for a run; a run that the method cannot do is an error.

    Args:
        name: of the method.
        settings: fields of its `Config`.
        n_domains: number of source domains.
        batch_size: samples per source domain and step.
        shape: of a sample, as the network sees it.
        soft: whether labels are soft.
        weighted: whether samples have weights in the loss.
    """
    cls = get(name)
    check_domains(name, n_domains)
    if soft or weighted:
        check_targets(name, soft=soft, weighted=weighted)
    config = cls.Config.of(**settings)
    if config.accumulate > 1:
        check_accumulation(name, config)
    if config.accumulate > batch_size:
        raise bad_value("accumulate", f"at most the batch size, {batch_size}", config.accumulate)
    cls.check_batch(config, batch_size, shape)
    return config


def check_accumulation(name: str, config: BaseConfig) -> None:
    """Raise an error for micro-batches in a method whose loss is not a mean over samples."""
    if not get(name).per_sample:
        hint = "Lower the batch size, or use --checkpoint-activations."
        raise bad_value("accumulate", f"1 for {name}, which needs the whole batch at once", config.accumulate, hint)


def check_targets(name: str, *, soft: bool, weighted: bool) -> None:
    """Raise an error for soft labels, or for weights in the loss, if the loss of a method does not allow them."""
    allowed = get(name).targets
    if soft and allowed == "classes":
        raise UserError(
            f"{name} needs one class for each sample. Found soft labels. Choose a method such as erm or mixup, or pass "
            "the most probable class, y.argmax(1)."
        )
    if weighted and allowed != "weighted":
        hint = "Leave it out: samples are then drawn in proportion to their weights."
        raise bad_value("weighted_loss", f"false for {name}, whose loss is no mean over samples", True, hint)


def check_domains(
    name: str,
    n_domains: int,
    hint: str = "Add domains, hold fewer out, or choose a method for one domain, such as erm.",
) -> None:
    """Raise an error if a method needs more source domains than there are; `hint` says what to do."""
    needed = get(name).min_domains
    if n_domains < 1:
        raise UserError("Expected a source domain to train on. Found none. Add domains, or hold fewer out.")
    if n_domains < needed:
        raise UserError(f"{name} needs at least {needed} source domains. Found {n_domains}. {hint}")


def overview(chosen: Sequence[str] | None = None, family: str | None = None) -> list[Overview]:
    """Return the rows of the named methods, of all by default, and of one family if it is given.

    >>> [row] = overview(["mixup"])
    >>> row.year, row.family, row.needs
    ('2018', 'mixup', '2 domains')
    """
    return filter_family([describe_method(name, get(name)) for name in (names() if chosen is None else chosen)], family)
