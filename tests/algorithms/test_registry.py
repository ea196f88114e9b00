"""Registration: names, mistakes, third-party methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
from torch import nn

from fgmix import algorithms
from fgmix.algorithms import Algorithm, _registry
from fgmix.errors import UserError
from fgmix.records import code


class PlugIn(Algorithm):
    """What a package of someone else's brings."""


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Pretend that packages with these entry points, name = "module:Class", are installed."""
    before = dict(_registry._REGISTRY)

    def install(**points: str) -> None:
        found = [EntryPoint(name, value, _registry.GROUP) for name, value in points.items()]
        monkeypatch.setattr(code, "entry_points", lambda group: found if group == _registry.GROUP else [])
        code._FAILURES.pop(_registry.GROUP, None)

    yield install
    code._FAILURES.pop(_registry.GROUP, None)
    _registry._REGISTRY.clear()
    _registry._REGISTRY.update(before)


def test_a_plug_in_is_listed_and_built(install: Callable[..., None]) -> None:
    install(theirs=f"{__name__}:PlugIn")
    assert "theirs" in algorithms.names()
    built = algorithms.create("theirs", featurizer=nn.Identity(), classifier=nn.Linear(2, 2), n_domains=2)
    assert type(built) is PlugIn
    assert (built.label, built.domainbed_name) == ("theirs", None)


def test_the_code_of_a_plug_in_has_its_version(install: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    install(theirs=f"{__name__}:PlugIn")
    monkeypatch.setattr(EntryPoint, "dist", SimpleNamespace(name="my-package", version="0.2"))
    digest, *package = algorithms.describe_code("theirs").split()
    assert (len(digest), package) == (12, ["my-package", "0.2"])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_package.mine:Mine", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("fgmix.algorithms.erm:Missing", "AttributeError: module 'fgmix.algorithms.erm' has no attribute 'Missing'"),
        ("fgmix.algorithms:create", "a subclass of fgmix.algorithms.Algorithm. Found <function create"),
    ],
)
def test_a_broken_plug_in_is_reported_once_and_stops_nothing(
    install: Callable[..., None], value: str, reason: str
) -> None:
    install(broken=value, theirs=f"{__name__}:PlugIn")
    with pytest.warns(UserWarning, match=rf"^The plug-in 'broken' \({value}\) cannot be .*{reason}") as caught:
        listed = algorithms.names()
    assert [str(warning.message).count("\n") for warning in caught] == [0]
    assert algorithms.names() == listed  # a second warning would be an error
    assert "theirs" in listed
    assert "broken" not in listed
    assert algorithms.get("erm").label == "ERM"
    with pytest.raises(UserError, match=f"'broken'.*{reason}.*Repair or uninstall the package"):
        algorithms.get("broken")


def test_a_plug_in_cannot_replace_a_method(install: Callable[..., None]) -> None:
    install(erm=f"{__name__}:PlugIn")
    with pytest.warns(UserWarning, match="'erm' is registered already, by fgmix.algorithms.erm"):
        algorithms.names()
    assert algorithms.get("erm") is algorithms.erm.ERM


def test_what_is_built_on_a_method_is_not_that_method() -> None:
    class Built(algorithms.fish.Fish):
        pass

    algorithms.register("built")(Built)
    del _registry._REGISTRY["built"]
    assert (Built.label, Built.domainbed_name) == ("built", None)
    assert (Built.paper, Built.min_domains) == (algorithms.fish.Fish.paper, 2)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(UserError, match="'erm' is registered already"):
        algorithms.register("erm")(type("Other", (Algorithm,), {}))


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UserError, match=r"Did you mean 'erm'\?"):
        algorithms.get("emr")


def test_a_classifier_without_a_linear_layer_is_refused_where_sizes_are_needed() -> None:
    erm = algorithms.create("erm", featurizer=nn.Linear(2, 2), classifier=nn.Identity(), n_domains=1)
    with pytest.raises(UserError, match=r"should hold a torch\.nn\.Linear"):
        _ = erm.n_classes


@pytest.mark.parametrize("name", algorithms.names())
@pytest.mark.parametrize(
    ("argument", "value"),
    [("featurizer", None), ("featurizer", "resnet50"), ("classifier", None), ("classifier", 7), ("n_domains", "3")]
    + [("n_domains", value) for value in (0, -1, 2.0, None, True)],
)
def test_a_wrong_argument_is_named(name: str, argument: str, value: object) -> None:
    given = {"featurizer": nn.Identity(), "classifier": nn.Linear(2, 2), "n_domains": 3, argument: value}
    with pytest.raises(UserError, match=f"`{argument}` should be") as raised:
        algorithms.create(name, **given)
    assert repr(value) in str(raised.value)
