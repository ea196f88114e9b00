"""The contract that every registered algorithm keeps. Registering a method enrols it here."""

from __future__ import annotations

import io

import pytest
import torch

from algorithms.toys import SHAPE, toy_algorithm, toy_batches
from fgmix import algorithms
from fgmix.algorithms import Algorithm, Batches
from fgmix.errors import UserError
from fgmix.seeding import seed_torch

NAMES = algorithms.names()


def run(algorithm: Algorithm, batches: Batches, first: int, last: int) -> dict[str, torch.Tensor]:
    """Steps first…last−1, each seeded by its number as the training loop does it."""
    algorithm.train()
    metrics: dict[str, torch.Tensor] = {}
    for step in range(first, last):
        seed_torch("step", 0, step)
        metrics = algorithm.step(batches)
    return metrics


def weights(algorithm: Algorithm) -> dict[str, torch.Tensor]:
    return {n: t.clone() for n, t in algorithm.state_dict().items() if isinstance(t, torch.Tensor)}


def assert_same_state(a: Algorithm, b: Algorithm) -> None:
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def through_bytes(state: object) -> object:
    """What a checkpoint does to a state: saved, and loaded with nothing but tensors and plain values allowed."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("name", NAMES)
def test_steps_give_finite_metrics_and_move_the_model(name: str) -> None:
    algorithm = toy_algorithm(name)
    before = weights(algorithm)
    metrics = run(algorithm, toy_batches(), 0, 10)
    assert "loss" in metrics
    for key, value in metrics.items():
        assert value.ndim == 0, key
        assert not value.requires_grad, key
        assert torch.isfinite(value), key
    after = weights(algorithm)
    moved = [n for n in before if n.startswith(("featurizer", "classifier")) and not torch.equal(before[n], after[n])]
    assert moved
    assert all(torch.isfinite(value).all() for value in after.values() if value.is_floating_point())


@pytest.mark.parametrize("name", NAMES)
def test_prediction_has_one_logit_per_class_and_no_randomness(name: str) -> None:
    algorithm = toy_algorithm(name)
    run(algorithm, toy_batches(), 0, 1)
    algorithm.eval()
    x = toy_batches()[0][0]
    with torch.no_grad():
        logits = algorithm.predict(x)
        assert logits.shape == (len(x), 4)
        assert torch.equal(logits, algorithm.predict(x))
        assert torch.equal(logits, algorithm.classifier(algorithm.featurizer(x)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cut", [1, 7])
def test_state_round_trip_continues_as_if_never_interrupted(name: str, cut: int) -> None:
    batches = toy_batches()
    whole = toy_algorithm(name)
    run(whole, batches, 0, 10)

    first = toy_algorithm(name)
    run(first, batches, 0, cut)
    second = toy_algorithm(name)
    second.load_state_dict(through_bytes(first.state_dict()))  # type: ignore[arg-type]
    assert second.updates == cut
    run(second, batches, cut, 10)
    assert_same_state(whole, second)


@pytest.mark.parametrize("name", NAMES)
def test_permuting_domains_keeps_metrics_finite_and_of_the_same_names(name: str) -> None:
    batches = toy_batches()
    straight = run(toy_algorithm(name), batches, 0, 2)
    turned = run(toy_algorithm(name), batches[::-1], 0, 2)
    assert straight.keys() == turned.keys()
    assert all(torch.isfinite(value) for value in turned.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_domain_may_lack_a_class(name: str) -> None:
    batches = toy_batches()
    x, y = batches[0]
    batches[0] = (x, torch.where(y == 3, 0, y))
    metrics = run(toy_algorithm(name), batches, 0, 10)
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [2, 6])
def test_two_to_six_domains(name: str, k: int) -> None:
    metrics = run(toy_algorithm(name, n_domains=k), toy_batches(k, b=4), 0, 10)
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("name", NAMES)
def test_one_domain_trains_or_is_refused_before_training(name: str) -> None:
    if algorithms.get(name).min_domains > 1:
        with pytest.raises(UserError, match="at least 2 source domains"):
            toy_algorithm(name, n_domains=1)
    else:
        metrics = run(toy_algorithm(name, n_domains=1), toy_batches(1), 0, 10)
        assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("name", NAMES)
def test_arrays_train_or_are_refused_with_the_reason(name: str) -> None:
    if algorithms.get(name).needs_stages:
        with pytest.raises(UserError, match="convolutional"):
            toy_algorithm(name, shape=(6,))
    else:
        metrics = run(toy_algorithm(name, shape=(6,)), toy_batches(shape=(6,)), 0, 10)
        assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("name", NAMES)
def test_wrong_number_of_batches_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="one batch for each"):
        toy_algorithm(name).step(toy_batches(2))


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_help_and_its_default_is_valid(name: str) -> None:
    config_type = algorithms.get(name).Config
    for default, text in config_type.help().values():
        assert text
        assert not isinstance(default, type)
    assert config_type.of(**config_type().as_dict()) == config_type()


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_autocast(name: str) -> None:
    algorithm = toy_algorithm(name, shape=SHAPE).train()
    for step in range(8):
        seed_torch("step", 0, step)
        with torch.autocast("cpu", torch.bfloat16):
            metrics = algorithm.step(toy_batches(b=4))
    assert all(torch.isfinite(value) for value in metrics.values())
