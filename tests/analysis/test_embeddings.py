"""Codes in the plane: which points are in which panel."""

from __future__ import annotations

import numpy as np
import pytest

from fgmix.analysis.embeddings import code_embedding, mixing_embedding, plane
from fgmix.analysis.runs import OpenedRun
from fgmix.errors import UserError


def test_panels_of_a_mixing_run(mixing: OpenedRun) -> None:
    found = mixing_embedding(mixing, instances=10, mixed=12)
    assert found.panels.tolist() == ["Original codes", "Random interpolation", "FGMix"]
    assert found.domains[found.is_test].tolist() == ["2"]
    own = found.points[(found.panel == 0)]
    assert len(own) == 30
    for panel in (1, 2):  # one t-SNE: an original code is in the same place everywhere
        here = found.panel == panel
        assert np.array_equal(found.points[here & (found.domain >= 0)], own)
        assert (found.domain[here] == -1).sum() == (found.instance[here] == -1).sum() == 12
    assert np.isnan(found.extrapolated[0])
    assert found.extrapolated[1] == 0
    assert 0 <= found.extrapolated[2] <= 1
    named = found.domain >= 0
    for d, i, label in zip(found.domain[named], found.instance[named], found.label[named]):
        assert mixing.prepared.dataset.domains[d].y[i] == label


def test_runs_beside_one_another(erm: OpenedRun, mixing: OpenedRun) -> None:
    found = code_embedding([erm, mixing], instances=8)
    assert found.panels.tolist() == ["ERM", "FGMix"]
    assert np.array_equal(found.instance[found.panel == 0], found.instance[found.panel == 1])
    assert np.isnan(found.extrapolated).all()


def test_the_same_seed_gives_the_same_picture() -> None:
    z = np.random.default_rng(0).normal(size=(20, 60))  # more dimensions than t-SNE sees
    assert np.array_equal(plane(z), plane(z))
    assert plane(z).shape == (20, 2)


def test_a_run_that_does_not_mix_is_refused(erm: OpenedRun) -> None:
    with pytest.raises(UserError, match="Found erm"):
        mixing_embedding(erm)
