"""Settings: types, names, draws."""

from __future__ import annotations

import numpy as np
import pytest

from fgmix.algorithms import BaseConfig
from fgmix.algorithms._config import Choice, LogUniform, choice, log_uniform, search, setting, uniform
from fgmix.errors import UserError


class Toy(BaseConfig):
    gamma: float = search(1.0, log_uniform(1e-1, 1e1), help="γ", domainbed="mmd_gamma")
    layers: int = search(2, None, paper=choice(1, 2, 4), help="depth")
    start: int | None = setting(None, help="first step")
    trained: bool = setting(False, help="flag")
    mode: str = setting("a", help="mode")


def test_subclasses_are_frozen_dataclasses_with_the_bases_fields() -> None:
    toy = Toy.of(gamma=2, lr=0.1)
    assert (toy.gamma, toy.lr, toy.layers) == (2.0, 0.1, 2)
    assert isinstance(toy.gamma, float)
    with pytest.raises(AttributeError):
        toy.gamma = 3.0  # type: ignore[misc]


def test_texts_take_the_types_of_the_fields() -> None:
    parsed = Toy.parse({"gamma": "1e-2", "layers": "4", "start": "none", "trained": "true", "mode": "b"})
    assert parsed == {"gamma": 0.01, "layers": 4, "start": None, "trained": True, "mode": "b"}


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"gama": "1"}, "Did you mean 'gamma'"),
        ({"layers": "2.5"}, "`layers` should be an integer"),
        ({"trained": "perhaps"}, "true or false"),
        ({"gamma": "big"}, "a number"),
    ],
)
def test_bad_texts(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Toy.parse(texts)


@pytest.mark.parametrize("settings", [{"gamma": float("nan")}, {"layers": True}, {"steps": 0}, {"mode": 3}])
def test_bad_values(settings: dict[str, object]) -> None:
    with pytest.raises(UserError):
        Toy.of(**settings)


def test_spaces_by_name() -> None:
    for space in ("domainbed", "paper"):  # each is silent about one of the two, and takes the other's
        assert Toy.spaces(space) == {"gamma": LogUniform(-1.0, 1.0), "layers": Choice((1, 2, 4))}
    assert Toy.domainbed_names()["gamma"] == "mmd_gamma"


def test_draws_use_the_generator_as_domainbed_does() -> None:
    def rng() -> np.random.RandomState:
        return np.random.RandomState(5)

    assert log_uniform(1e1, 1e4).draw(rng()) == 10 ** rng().uniform(1, 4)
    assert uniform(0.5, 1).draw(rng()) == rng().uniform(0.5, 1)
    assert choice(0.0, 0.1, 0.5).draw(rng()) == rng().choice([0.0, 0.1, 0.5])
    assert LogUniform(3, 5.5, base=2, integer=True).draw(rng()) == int(2 ** rng().uniform(3, 5.5))
    assert type(choice(True, False).draw(rng())) is bool
