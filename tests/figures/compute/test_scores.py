"""A_ω against the cosine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fgmix.errors import UserError
from fgmix.figures.compute.mixtures import find_mixer
from fgmix.figures.compute.scores import _draw_pairs, compute_scores
from fgmix.figures.scatter import correlate
from fgmix.mixing import classifier_gradients
from fgmix.training.open_run import OpenedRun


def test_spearman_by_hand() -> None:
    x = np.array([3.0, 1.0, 4.0, 1.5, 5.0])  # ranks 3 1 4 2 5
    y = np.array([2.0, 7.0, 1.0, 8.0, 2.0])  # ranks 2.5 4 1 5 2.5
    # deviations (0, −2, 1, −1, 2) and (−.5, 1, −2, 2, −.5): sum of products −7, squares 10 and 9.5
    assert correlate(x, y) == pytest.approx(-7 / np.sqrt(95))
    assert correlate(x, np.exp(x)) == pytest.approx(1)
    assert np.isnan(correlate(x, np.ones(5)))


@pytest.mark.parametrize("same_class", [True, False])
def test_scores_are_those_of_the_definition(mixing: OpenedRun, same_class: bool) -> None:
    found = compute_scores(mixing, pairs=15, same_class=same_class)
    assert found.pairs.tolist() == ["0 → 1", "1 → 0"]
    algorithm = mixing.algorithm()
    mixer = find_mixer(algorithm)
    assert mixer is not None
    assert mixer.compatibility is not None
    sample = mixing.sample(mixing.sources, limit=300)
    g = classifier_gradients(algorithm.classifier, sample.codes(algorithm), sample.y).dense()
    for p, (first, second) in enumerate([(0, 1), (1, 0)]):
        at = _draw_pairs(sample.y.numpy(), sample.domain.numpy(), first, second, 15, same_class, 0)
        i, j = torch.from_numpy(at).T
        assert (sample.domain[i] == first).all()
        assert (sample.domain[j] == second).all()
        assert bool((sample.y[i] == sample.y[j]).all()) is same_class
        with torch.no_grad():
            expected = mixer.compatibility(g[i], g[j])
        np.testing.assert_allclose(found.score[p], expected.numpy(), atol=1e-5)
        cosine = torch.nn.functional.cosine_similarity(g[i], g[j])
        np.testing.assert_allclose(found.cosine[p], cosine.numpy(), atol=1e-4)
        assert found.rho[p] == pytest.approx(correlate(found.score[p], found.cosine[p]))


def test_a_run_that_learns_no_scores_is_refused(erm: OpenedRun) -> None:
    with pytest.raises(UserError, match="Found erm"):
        compute_scores(erm)
