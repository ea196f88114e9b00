"""The measurement of reading images: both sides give the same images, and the numbers are what they say."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from data.pictures import make_folder
from fgmix.data.folders import ImageFile, scan_folder
from fgmix.data.loading import Batch
from fgmix.errors import UserError
from fgmix.timing import data
from fgmix.timing.data import DataSpeed, Ways, cached_domains, evaluation, measure_data, photograph, spread, training
from fgmix.timing.turns import Turns

SIZE, BATCH = 8, 16  # the pictures are 12×10, which the cache keeps as they are for 8 px
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ImageFile]:
    """Two domains of different sizes; the second lacks a class."""
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    layout = {"art": {"cat": ["1.png", "2.png"], "dog": ["1.jpg"]}, "photo": {"dog": ["1.png", "2.jpg"]}}
    return list(scan_folder(make_folder(tmp_path / "images", layout)).files)


def both(files: list[ImageFile], work: str) -> Ways:
    domains = cached_domains(files, SIZE)
    return training(domains, files, SIZE, BATCH) if work == "train" else evaluation(domains, files, SIZE)


def test_training_reads_the_same_images_in_the_same_batches(files: list[ImageFile]) -> None:
    ways = both(files, "train")
    for (x, y), (x_theirs, y_theirs) in zip(ways.ours(3), ways.theirs(3), strict=True):
        assert x.shape == x_theirs.shape == (BATCH, 3, SIZE, SIZE)
        assert x.dtype == x_theirs.dtype == torch.float32
        assert y.tolist() == y_theirs.tolist()
    (_, art), (_, photo) = ways.ours(3)
    assert set(art.tolist()) == {0, 1}
    assert set(photo.tolist()) == {1}  # labels are the dataset's, not the domain's


def test_another_round_reads_other_images(files: list[ImageFile]) -> None:
    ways = both(files, "train")
    for way in (ways.ours, ways.theirs):
        assert way(0)[0][1].tolist() != way(1)[0][1].tolist()


def test_evaluation_reads_the_same_clean_images(files: list[ImageFile]) -> None:
    """In batches of 256 and of 64, within the rounding of two resizes."""
    ways = both(files, "evaluate")
    ((x, y),) = ways.ours(0)
    assert [len(part) for _, part in ways.theirs(0)] == [64] * 4
    x_theirs, y_theirs = (torch.cat(parts) for parts in zip(*ways.theirs(0)))
    assert y.tolist() == y_theirs.tolist()
    assert ((x - x_theirs) * STD).abs().max() <= 1.01 / 255


def test_training_draws_from_the_same_distribution(files: list[ImageFile]) -> None:
    """Mean, contrast and colourfulness of an image: their averages differ by less than four standard errors."""

    def seen(way: Callable[[int], list[Batch]]) -> Tensor:
        x = torch.cat([x for step in range(60) for x, _ in way(step)]) * STD + MEAN
        grey = x.mean(1)
        return torch.stack([x.mean((1, 2, 3)), grey.std((1, 2)), (x - grey.unsqueeze(1)).std((1, 2, 3))])

    ways = both(files, "train")
    ours, theirs = seen(ways.ours), seen(ways.theirs)
    n = ours.shape[1]
    assert n == 60 * 2 * BATCH
    error = (ours.var(1) / n + theirs.var(1) / n).sqrt()
    assert ((ours.mean(1) - theirs.mean(1)).abs() < 4 * error).all()
    torch.testing.assert_close(ours.std(1), theirs.std(1), rtol=0.1, atol=0)


def test_the_hosts_part_ends_with_bytes(files: list[ImageFile]) -> None:
    for batch in both(files, "train").host(0):
        assert batch.inputs.pixels.dtype == torch.uint8
        assert batch.inputs.pixels.shape == (BATCH, 3, SIZE, SIZE)


def test_files_are_spread_over_every_domain() -> None:
    def domain(name: str, n: int) -> list[ImageFile]:
        return [ImageFile(name, "cat", Path(f"{name}{i}")) for i in range(n)]

    chosen = spread([*domain("a", 10), *domain("b", 2)], 5)
    assert [str(file.path) for file in chosen] == ["a0", "a2", "a4", "a6", "a8", "b0", "b1"]


def test_synthetic_photographs_are_as_large_as_real_ones() -> None:
    """Bytes per pixel: between the photo domain of PACS (0.30) and scikit-learn's flower.jpg (0.52)."""
    file = io.BytesIO()
    photograph(np.random.default_rng(0), *data.PHOTO).save(file, "jpeg")
    assert 0.30 < len(file.getvalue()) / (data.PHOTO[0] * data.PHOTO[1]) < 0.52


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "PHOTO", (24, 18))
    monkeypatch.setattr(data, "EVALUATED", 70)


@pytest.mark.usefixtures("small")
def test_measuring_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGMIX_CACHE", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    train, evaluate = measure_data(image_size=SIZE, images=2, batch_size=4, rounds=3, threads=threads + 1)
    assert (train.work, train.images, evaluate.work, evaluate.images) == ("train", 12, "evaluate", 70)
    assert len(train.turns.ours) == len(train.turns.theirs) == len(train.host_seconds) == 3
    assert train.decoding > 0
    assert os.environ["FGMIX_CACHE"] == str(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("small")
def test_measuring_ones_own_folder(files: list[ImageFile], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FGMIX_CACHE")
    train, _ = measure_data(files[0].path.parents[2], image_size=SIZE, images=2, batch_size=4, rounds=3)
    assert train.images == 2 * 4
    assert "FGMIX_CACHE" not in os.environ


def test_numbers_come_from_the_times() -> None:
    turns = Turns(ours=(1.0, 1.0, 4.0), theirs=(2.0, 5.0, 6.0))
    speed = DataSpeed("train", 64, 100, turns, host_seconds=(0.5, 0.1, 0.2), decoding=0.06)
    assert (speed.ours, speed.theirs, speed.host) == (100.0, 20.0, 500.0)
    assert speed.turns.ratio == 2.0
    assert speed.paid_after == pytest.approx(0.06 / (0.05 - 0.01))


def test_a_cache_that_saves_nothing_never_pays() -> None:
    speed = DataSpeed("train", 64, 100, Turns((2.0,) * 3, (1.0,) * 3), host_seconds=(1.0,), decoding=0.06)
    assert speed.paid_after == float("inf")


@pytest.mark.parametrize("name", ["image_size", "images", "batch_size", "threads"])
def test_bad_numbers_are_named(name: str) -> None:
    with pytest.raises(UserError, match=f"`{name}` should be a positive integer. Found 0"):
        measure_data(**{name: 0})
