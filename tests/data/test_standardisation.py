"""Standardised features: each by its own spread, and no single one louder than all others in a new domain."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from copying import replace
from fgmix import RunSpec
from fgmix.data import DomainDataset, from_arrays
from fgmix.data.standardisation import Standardisation, fit_standardisation
from fgmix.deploy.network import Standardise
from fgmix.records.schema import to_plain
from fgmix.training.prepare import prepare_data
from fgmix.training.resolve import resolve

RNG = np.random.default_rng(0)


def one_domain(x: np.ndarray) -> DomainDataset:
    return from_arrays(x.astype(np.float32), np.arange(len(x)) % 2, np.zeros(len(x), int))


def fitted(x: np.ndarray) -> Standardisation:
    (domain,) = one_domain(x).domains
    return fit_standardisation([(domain, np.arange(len(x)))])


def test_units_do_not_matter() -> None:
    x, units = RNG.normal(size=(500, 3)), np.array([1e-6, 1.0, 1e6])
    far = np.concatenate([x, 30 * x]).astype(np.float32)
    np.testing.assert_allclose(fitted(x * units)(far * units), fitted(x)(far), rtol=1e-4, atol=1e-5)


def test_a_feature_that_hardly_varies_in_training_is_damped() -> None:
    x = RNG.normal(size=(500, 2))
    x[:, 1] *= 1e-3  # a corner pixel
    z = fitted(x)(np.array([[1, 0.5], [1, -0.5], [1, 1.0]], np.float32))
    assert (np.abs(z[:, 1]) < 13).all()  # 500 and 1,000 standard deviations
    assert z[1, 1] < 0 < z[0, 1] < z[2, 1]  # in order


def test_ordinary_values_are_standardised_to_the_bit_and_the_layer_is_the_same() -> None:
    standard = fitted(RNG.normal(3, 2, size=(500, 4)))
    x = RNG.normal(3, 2, size=(300, 4)).astype(np.float32)
    np.testing.assert_array_equal(standard(x), (x - standard.mean) / standard.scale)
    far = np.concatenate([x, 1e3 * x, 1e30 * x, x * 0])
    layer = Standardise(standard)(torch.from_numpy(far))
    np.testing.assert_allclose(layer.numpy(), standard(far), rtol=1e-6)
    assert np.isfinite(standard(far)).all()


def test_runs_from_before_are_other_runs_and_damp_nothing() -> None:
    """Their weights were trained on undamped features; runs that never standardise keep their names."""
    data = one_domain(RNG.normal(size=(50, 2)))
    spec = resolve(RunSpec(dataset="arrays", algorithm="erm", test_domains=()), data)
    before = replace(spec, tail=0.0)
    assert spec.tail == 5
    assert spec.name != before.name
    standard = prepare_data(before, data).standard
    assert standard is not None
    far = standard.mean + 1000 * standard.scale
    np.testing.assert_allclose(standard(far[None]), 1000, rtol=1e-5)
    np.testing.assert_allclose(Standardise(standard)(torch.from_numpy(far)), 1000, rtol=1e-5)
    assert "tail" not in to_plain(
        resolve(RunSpec(dataset="arrays", algorithm="erm", test_domains=(), standardize=False), data)
    )


@pytest.mark.parametrize("shape", [(3, 40), (5, 6, 7)])
def test_channels_of_signals_and_images_are_standardised_without_damping(shape: tuple[int, ...]) -> None:
    units = np.array([1e-3, 1.0, 1e4, 10.0, 1e2])[: shape[0]].reshape(-1, *[1] * (len(shape) - 1))
    x = units * (RNG.normal(size=(60, *shape)) + 2)
    data = from_arrays(x, np.arange(60) % 2, np.arange(60) // 20)
    spec = resolve(RunSpec(dataset="arrays", algorithm="erm", test_domains="2"), data)
    assert (spec.standardize, spec.tail) == (True, 0.0)
    run = prepare_data(spec, data)
    rows = np.concatenate([x[20 * d :][run.splits[str(d)].train] for d in (0, 1)])  # no sample of domain 2
    axes = (0, *range(2, x.ndim))
    np.testing.assert_allclose(run.standard.mean[None], rows.mean(axes, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(run.standard.scale[None], rows.std(axes, keepdims=True), rtol=1e-5)
    seen = run.dataset.domains[2].inputs.clean(np.arange(20)).numpy()
    np.testing.assert_allclose(seen, (x[40:] - run.standard.mean) / run.standard.scale, rtol=1e-4, atol=1e-4)
    layer = Standardise(run.standard)(torch.from_numpy((99 * x[40:]).astype(np.float32)))
    np.testing.assert_allclose(layer, run.standard((99 * x[40:]).astype(np.float32)), rtol=1e-5)


def test_images_on_the_usual_scale_are_standardised_if_asked() -> None:
    data = from_arrays(RNG.normal(size=(20, 4, 8, 8)), np.arange(20) % 2, np.arange(20) // 10)
    spec = RunSpec(dataset="arrays", algorithm="erm", test_domains="1")
    assert not resolve(spec, data).standardize
    assert resolve(replace(spec, standardize=True), data).standardize
