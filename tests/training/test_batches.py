"""Which batches a run draws: what its method declares reaches the sampler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from copying import replace
from fgmix import train
from fgmix.algorithms import Algorithm, _registry, register
from fgmix.algorithms._base import batch_of
from fgmix.data import DomainDataset, from_arrays
from fgmix.data.sampling import PairedSampler, UniformSampler
from fgmix.errors import UserError
from fgmix.records.schema import RunSpec
from fgmix.testing.toys import run_steps, toy_algorithm, toy_batches
from fgmix.training.prepare import build_source, prepare


def test_ddg_at_the_papers_size_gets_a_positive_that_is_another_image() -> None:
    """Eight images per domain: two a, two b and the four positives, which a search in the batch seldom found."""
    settings = {"pairs": 2}
    spec = RunSpec(dataset="digits", algorithm="ddg", test_domains=("photo",), settings=settings, batch_size=8)
    source = build_source(prepare(spec, progress=False))
    assert isinstance(source.sampler, PairedSampler)
    for step in range(20):
        for indices, domain in zip(source.sampler.draw(step), source.domains, strict=True):
            assert (domain.y[indices[:4]] == domain.y[indices[4:]]).all()
            assert (indices[:4] != indices[4:]).all()


def test_other_methods_draw_as_before() -> None:
    spec = RunSpec(dataset="digits", algorithm="erm", test_domains=("photo",))
    assert isinstance(build_source(prepare(spec, progress=False)).sampler, UniformSampler)


class FirstTwo:
    """Draws the first two samples of every pool."""

    def __init__(self, sampler: Any) -> None:
        self.pools = sampler.pools

    def draw(self, step: int) -> list[Any]:
        return [np.roll(pool, -step)[:2] for pool in self.pools]


@pytest.fixture
def remembering(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Algorithm]]:
    """A method with a sampler of its own that is told which samples it gets."""
    monkeypatch.setattr(_registry, "_REGISTRY", {**_registry._REGISTRY})

    @register("remembering")
    class Remembering(Algorithm):
        needs_indices = True
        seen: ClassVar[list[Any]] = []

        @classmethod
        def wrap_sampler(cls, sampler: Any, labels: tuple[Any, ...]) -> Any:  # noqa: ARG003
            return FirstTwo(sampler)

        def objective(self, batches: Any) -> dict[str, torch.Tensor]:
            self.seen.append([(x.flatten().tolist(), batch.indices.tolist()) for batch in batches for x in batch[:1]])
            return {
                "loss": cross_entropy(torch.cat(list(map(self.classifier, self.encode(batches)))), batch_of(batches)[1])
            }

    yield Remembering
    Remembering.seen.clear()


def test_a_method_may_sample_and_know_its_samples(remembering: Any, tmp_path: Path) -> None:
    data = rare()
    spec = RunSpec(dataset="arrays", algorithm="remembering", test_domains="1", steps=3, standardize=False)
    train(spec, tmp_path, dataset=data, device="cpu", progress=False)
    pool = prepare(spec, data, progress=False).splits["0"].train
    values = np.arange(100.0)[:50]
    expected = [[*np.roll(pool, -step)[:2].tolist()] for step in range(3)]
    assert remembering.seen == [[(values[drawn].tolist(), drawn)] for drawn in expected]
    run_steps(toy_algorithm("remembering"), toy_batches(), 0, 1)  # so do the batches of the contract
    assert remembering.seen[-1][0][1] == list(range(8))
    assert [len(batch) for batch in build_source(prepare(spec, data, progress=False)).at(0)] == [2]  # still (x, y)


def rare(**weights: object) -> DomainDataset:
    """Two domains, in which one sample of ten is of class 1."""
    y = np.tile(np.arange(50) % 10 == 0, 2).astype(int)
    return from_arrays(np.arange(100.0)[:, None], y, np.repeat([0, 1], 50), **weights)  # type: ignore[arg-type]


def test_balanced_classes_are_drawn_equally_often() -> None:
    spec = RunSpec(dataset="arrays", algorithm="erm", batch_size=400, class_weight="balanced")
    for _, y in build_source(prepare(spec, rare())).at(0):
        assert 0.42 < y.float().mean() < 0.58


def test_sample_weights_count_within_a_domain_and_multiply_with_those_of_classes() -> None:
    weights = np.where(np.arange(100) % 10 == 1, 0.0, np.where(np.arange(100) < 50, 1.0, 2.0))
    spec = RunSpec(dataset="arrays", algorithm="erm", batch_size=400, standardize=False)
    for class_weight, share in (("none", 1 / 9), ("balanced", 0.5 / (0.5 + 0.5 * 8 / 9))):
        run = prepare(replace(spec, class_weight=class_weight), rare(sample_weight=weights))
        for x, y in build_source(run).at(0):
            assert not (x.flatten() % 10 == 1).any()
            assert abs(float(y.float().mean()) - share) < 0.07


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (np.where(np.arange(100) < 50, 0.0, 1.0), "domain '0'"),
        (-np.ones(100), "at least 0 in sample_weight. Found -1.0 in row 0"),
        (np.ones(7), "100 numbers in sample_weight"),
    ],
)
def test_mistakes_in_weights(weights: np.ndarray, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        build_source(prepare(RunSpec(dataset="arrays", algorithm="erm"), rare(sample_weight=weights)))


def test_class_aware_sampling_refuses_weights() -> None:
    spec = RunSpec(dataset="arrays", algorithm="erm", class_weight="balanced", classes_per_batch=2)
    with pytest.raises(UserError, match="draws classes equally often by itself"):
        prepare(spec, rare())
