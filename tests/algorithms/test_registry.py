"""Registration: names, mistakes, third-party methods."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest
from torch import nn

from fgmix import algorithms
from fgmix.algorithms import Algorithm, _registry
from fgmix.errors import UserError


@pytest.fixture
def installed_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that announces the method `theirs` through the entry-point group."""
    point = EntryPoint("theirs", "fgmix.algorithms.erm:ERM", _registry.GROUP)
    monkeypatch.setattr(_registry, "entry_points", lambda group: [point] if group == _registry.GROUP else [])
    _registry._third_party.cache_clear()
    yield
    _registry._third_party.cache_clear()
    _registry._REGISTRY.pop("theirs", None)


@pytest.mark.usefixtures("installed_package")
def test_a_third_party_method_is_listed_and_built() -> None:
    assert "theirs" in algorithms.names()
    built = algorithms.create("theirs", featurizer=nn.Identity(), classifier=nn.Linear(2, 2), n_domains=2)
    assert isinstance(built, Algorithm)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(UserError, match="'erm' is registered already"):
        algorithms.register("erm")(type("Other", (Algorithm,), {}))


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UserError, match=r"Did you mean 'erm'\? Known: .*erm"):
        algorithms.get("emr")


def test_a_classifier_without_a_linear_layer_is_refused_where_sizes_are_needed() -> None:
    erm = algorithms.create("erm", featurizer=nn.Linear(2, 2), classifier=nn.Identity(), n_domains=1)
    with pytest.raises(UserError, match=r"should hold a torch\.nn\.Linear"):
        _ = erm.n_classes
