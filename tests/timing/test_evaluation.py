"""The measurement of evaluations: all ways give the same scores, and the numbers are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.pictures import make_folder
from fgmix.data.folders import scan_folder
from fgmix.errors import UserError
from fgmix.timing import data
from fgmix.timing.data import cached_domains
from fgmix.timing.evaluation import (
    EvaluationSpeed,
    _algorithm,
    _models,
    from_files,
    in_one_pass,
    in_two_passes,
    measure_evaluation,
)
from fgmix.timing.turns import Turns
from fgmix.training.evaluation import evaluating

SIZE = 8


def test_all_ways_give_the_same_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    layout = {"art": {"cat": ["1.png", "2.png"], "dog": ["1.jpg"]}, "photo": {"dog": ["1.png", "2.jpg"]}}
    files = list(scan_folder(make_folder(tmp_path / "images", layout)).files)
    domains = cached_domains(files, SIZE)
    algorithm = _algorithm("small_cnn", SIZE, 2)
    with evaluating(algorithm):
        models = _models(algorithm)
        ours, passes, theirs = (
            way(models) for way in (in_one_pass(domains, 2), in_two_passes(domains), from_files(files, SIZE))
        )
    assert set(ours) == {"raw", "swa"}
    for name, found in ours.items():
        assert len(found) == 2
        for score, again, domainbeds in zip(found, passes[name], theirs[name], strict=True):
            assert score == pytest.approx(again, rel=1e-6)
            assert score == pytest.approx(domainbeds, abs=0.02)  # two resizes round differently


def test_measuring_compares_two_other_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "PHOTO", (24, 18))
    speed = measure_evaluation(image_size=SIZE, images=2, rounds=3)
    assert speed.images == 2 * data.DOMAINS
    assert list(speed.against) == ["two passes", "DomainBed"]
    assert all(len(turns.ours) == len(turns.theirs) == 3 for turns in speed.against.values())


def test_images_per_second_come_from_all_rounds() -> None:
    against = {"a": Turns((1.0, 2.0, 2.0), (2.0,) * 3), "b": Turns((2.0, 4.0, 9.0), (2.0,) * 3)}
    assert EvaluationSpeed(64, 100, against).ours == 50


@pytest.mark.parametrize("name", ["image_size", "images"])
def test_bad_numbers_are_named(name: str) -> None:
    with pytest.raises(UserError, match=f"`{name}` should be a positive integer. Found 0"):
        measure_evaluation(**{name: 0})
