"""Codes in the plane: which points are in which panel."""

from __future__ import annotations

import numpy as np
import pytest

from fgmix.data import Domain
from fgmix.data.dataset import ArrayInputs
from fgmix.errors import UserError
from fgmix.figures.compute.embeddings import embed_codes, embed_mixing, embed_plane, make_thumbnails
from fgmix.figures.curves import collect_curves
from fgmix.training.open_run import OpenedRun, Sample


def test_panels_of_a_mixing_run(mixing: OpenedRun) -> None:
    found = embed_mixing(mixing, samples=10, mixed=12)
    assert found.panels.tolist() == ["Original codes", "Random interpolation", "FGMix"]
    assert found.domains[found.is_test].tolist() == ["2"]
    own = found.points[(found.panel == 0)]
    assert len(own) == 30
    for panel in (1, 2):  # one t-SNE: an original code is in the same place everywhere
        here = found.panel == panel
        assert np.array_equal(found.points[here & (found.domain >= 0)], own)
        assert (found.domain[here] == -1).sum() == (found.sample[here] == -1).sum() == 12
    assert np.isnan(found.extrapolated(0))
    assert found.extrapolated(1) == 0
    mixed = (found.panel == 2) & (found.domain < 0)
    assert found.extrapolated(2) == found.extrapolates[mixed].mean()  # of the codes that are shown
    curves = collect_curves(mixing.record)
    assert found.trained_share == curves.metric_values[curves.metrics == "Extrapolated share"][0, -1]
    named = found.domain >= 0
    for d, i, label in zip(found.domain[named], found.sample[named], found.label[named]):
        assert mixing.prepared.dataset.domains[d].y[i] == label


def test_runs_beside_one_another(erm: OpenedRun, mixing: OpenedRun) -> None:
    found = embed_codes([erm, mixing], samples=8)
    assert found.panels.tolist() == ["ERM", "FGMix"]
    assert np.array_equal(found.sample[found.panel == 0], found.sample[found.panel == 1])
    assert np.isnan([found.extrapolated(0), found.extrapolated(1)]).all()


def images(channels: int, side: int) -> Sample:
    """Two domains of images whose brightness tells which one it is: sample i of domain d is 10 d + i everywhere."""
    x = [np.full((4, channels, side, side), 10.0 * d) + np.arange(4)[:, None, None, None] for d in range(2)]
    domains = tuple(Domain(str(d), ArrayInputs(x[d].astype(np.float32)), np.zeros(4, dtype=np.int64)) for d in range(2))
    return Sample(domains, (0, 1), (np.array([0, 3]), np.array([2])))


@pytest.mark.parametrize(("channels", "side", "shown"), [(3, 64, 40), (1, 8, 8), (2, 8, 8)])
def test_thumbnails_show_their_instances(channels: int, side: int, shown: int) -> None:
    found = make_thumbnails([images(channels, side)])
    assert found.shape == (3, shown, shown, 3)
    assert found[:, 0, 0].tolist() == [[0] * 3, [64] * 3, [255] * 3]  # brightness 0, 3 and 12 of 12


def test_features_have_no_pictures(mixing: OpenedRun) -> None:
    assert make_thumbnails([mixing.sample(["0"])]).shape[0] == 0


def test_points_know_their_pictures(erm: OpenedRun, mixing: OpenedRun) -> None:
    found = embed_codes([erm, mixing], samples=8, progress=False)
    assert found.thumbnail[found.panel == 0].tolist() == found.thumbnail[found.panel == 1].tolist() == list(range(24))
    mixed = embed_mixing(mixing, samples=10, mixed=12, progress=False)
    assert set(mixed.thumbnail[mixed.domain < 0].tolist()) == {-1}


def test_the_same_seed_gives_the_same_picture() -> None:
    z = np.random.default_rng(0).normal(size=(20, 60))  # more dimensions than t-SNE sees
    assert np.array_equal(embed_plane(z), embed_plane(z))
    assert embed_plane(z).shape == (20, 2)


def test_a_run_that_does_not_mix_is_refused(erm: OpenedRun) -> None:
    with pytest.raises(UserError, match="Found erm"):
        embed_mixing(erm)
