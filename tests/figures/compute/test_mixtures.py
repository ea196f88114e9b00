"""Mixed codes of finished runs, and the loss on them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from copying import replace
from fgmix.errors import UserError
from fgmix.figures.compute.embeddings import embed_mixing
from fgmix.figures.compute.flatness import compute_flatness
from fgmix.figures.compute.mixtures import (
    build_random_mixer,
    compute_ratio,
    compute_training_loss,
    find_mixer,
    load_policy,
    mix,
)
from fgmix.figures.compute.scores import compute_scores
from fgmix.training.loop import train
from fgmix.training.open_run import OpenedRun, open_run
from training.finished import SETTINGS
from training.killed_run import toy_data, toy_spec


def test_random_interpolation_stays_between_its_codes() -> None:
    z = torch.tensor([[0.0, 1.0], [4.0, 1.0]])
    mixed = mix(
        build_random_mixer(2), torch.nn.Linear(2, 1), z, torch.zeros(2, dtype=torch.long), torch.arange(2), 50, 0
    )
    assert mixed.z.shape == (50, 2)
    assert torch.allclose(mixed.z[:, 1], torch.ones(50))
    assert 0 < mixed.z[:, 0].min() < mixed.z[:, 0].max() < 4
    assert not mixed.extrapolates.any()


def test_a_large_lambda_extrapolates_and_says_so(mixing: OpenedRun) -> None:
    algorithm = mixing.algorithm()
    mixer = find_mixer(algorithm)
    assert mixer is not None
    sample = mixing.sample(mixing.sources)
    with torch.no_grad():
        mixer.lam.fill_(1e6)
    found = mix(mixer, algorithm.classifier, sample.codes(algorithm), sample.y, sample.domain, 20, 0)
    assert found.extrapolates.tolist() == [True] * 20


def test_mixing_learns_nothing(mixing: OpenedRun) -> None:
    algorithm = mixing.algorithm()
    before = {name: value.clone() for name, value in algorithm.named_parameters()}
    sample = mixing.sample(mixing.sources)
    compute_training_loss(algorithm, sample.codes(algorithm), sample.y, sample.domain, 0.5, 0)
    assert all(torch.equal(before[name], value) for name, value in algorithm.named_parameters())


@torch.no_grad()
def test_the_loss_without_a_policy_is_the_cross_entropy(erm: OpenedRun) -> None:
    algorithm = erm.algorithm()
    sample = erm.sample(erm.sources)
    z = sample.codes(algorithm)
    expected = float(cross_entropy(algorithm.classifier(z), sample.y))
    assert compute_training_loss(algorithm, z, sample.y, sample.domain, 0.5, 0) == expected


@torch.no_grad()
def test_the_loss_with_a_policy_weighs_by_counts(mixing: OpenedRun) -> None:
    algorithm = mixing.algorithm()
    mixer = find_mixer(algorithm)
    assert mixer is not None
    sample = mixing.sample(mixing.sources, limit=20)
    z, y = sample.codes(algorithm), sample.y
    mixed = mix(mixer, algorithm.classifier, z, y, sample.domain, 20, 3)
    own, theirs = (float(cross_entropy(algorithm.classifier(a), b)) for a, b in ((z, y), (mixed.z, mixed.y)))
    found = compute_training_loss(algorithm, z, y, sample.domain, 0.5, 3)
    assert found == pytest.approx((40 * own + 20 * theirs) / 60, rel=1e-5)


def test_the_share_of_mixed_codes_is_that_of_training(mixing: OpenedRun) -> None:
    assert compute_ratio(mixing, mixing.algorithm()) == 8 / (2 * 8)  # n over k·b


def test_no_shared_class_is_said() -> None:
    y = torch.arange(2)
    with pytest.raises(UserError, match="that all source domains have"):
        mix(build_random_mixer(1), torch.nn.Linear(1, 2), torch.zeros(2, 1), y, torch.arange(2), 4, 0)


def test_a_policy_whose_weights_were_not_kept_is_not_drawn(tmp_path: Path, mixing: OpenedRun, erm: OpenedRun) -> None:
    """A run of a sweep keeps featurizer and classifier: any policy beside them would be an untrained one."""
    spec = replace(toy_spec("fgmix"), settings=SETTINGS["fgmix"], keep="best")
    folder = train(spec, tmp_path, dataset=toy_data(), device="cpu", progress=False).folder
    assert folder is not None
    of_a_sweep = open_run(folder, dataset=toy_data())
    for draw in (embed_mixing, compute_scores, lambda run, which: compute_flatness([run], which=which)):
        with pytest.raises(UserError, match=r"with those of its policy\. .*--keep all"):
            draw(of_a_sweep, which="best")
    with pytest.raises(UserError, match=r"weights last in .* It keeps best.*--keep all"):
        embed_mixing(of_a_sweep)
    assert find_mixer(load_policy(mixing, "best", "raw")) is not None
    assert find_mixer(load_policy(erm, "best", "raw")) is None
