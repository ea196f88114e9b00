"""CLIPood against its equations, computed literally."""

from __future__ import annotations

import copy

import pytest
import torch
from scipy import stats
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from fgmix.algorithms._base import batch_of
from fgmix.errors import UserError
from fgmix.testing.toys import run_steps, toy_algorithm, toy_batches

STEPS = 6


def margin_metric_softmax(z: torch.Tensor, t: torch.Tensor, y: torch.Tensor, s: float, lam: float) -> torch.Tensor:
    """L of one sample after another."""
    losses = []
    for z_i, y_i in zip(z, y):
        S = cosine_similarity(z_i[None], t)
        margins = torch.stack([lam * (1 - cosine_similarity(t[y_i], t_c, dim=0)) for t_c in t])
        others = sum(torch.exp(s * (S[c] + margins[c])) for c in range(len(t)) if c != y_i)
        own = torch.exp(s * S[y_i])
        losses.append(-torch.log(own / (own + others)))
    return torch.stack(losses).mean()


def test_loss_has_the_margins_of_the_paper() -> None:
    algorithm, batches = toy_algorithm("clipood", lam=0.4), toy_batches(b=4)
    x, y = batch_of(batches)
    expected = margin_metric_softmax(algorithm.trained(x), algorithm.classifier.weight, y, 10.0, 0.4)
    torch.testing.assert_close(algorithm.step(batches)["loss"], expected.detach())


def test_the_authors_form_has_the_same_loss() -> None:
    """Their code subtracts λ t_y from the image's embedding, which lowers all logits of the sample by s·λ."""
    algorithm, (x, y) = toy_algorithm("clipood", lam=0.3), batch_of(toy_batches(b=4))
    t, f = normalize(algorithm.classifier.weight, dim=1), normalize(algorithm.trained(x), dim=1)
    expected = cross_entropy(10.0 * (f - 0.3 * t[y]) @ t.T, y)
    torch.testing.assert_close(algorithm.objective(toy_batches(b=4))["loss"], expected)


@pytest.mark.parametrize("beta", [0.2, 0.5, 1.0])
def test_weights_are_averaged_with_the_beta_distribution(beta: float) -> None:
    algorithm, batches = toy_algorithm("clipood", beta=beta, steps=STEPS), toy_batches(b=4)
    density = stats.beta(beta, beta).pdf
    visited = [copy.deepcopy(algorithm.trained.state_dict())]
    for t in range(1, STEPS + 1):
        run_steps(algorithm, batches, t - 1, t)
        visited.append(copy.deepcopy(algorithm.trained.state_dict()))
        alpha = [float(density((k + 0.5) / (STEPS + 1))) for k in range(t + 1)]
        for name, theta in algorithm.featurizer.state_dict().items():
            if theta.is_floating_point():
                expected = sum(a * w[name] for a, w in zip(alpha, visited)) / sum(alpha)
                torch.testing.assert_close(theta, expected, rtol=1e-4, atol=1e-5)


def test_texts_stay_as_they_are() -> None:
    algorithm = toy_algorithm("clipood")
    before = algorithm.classifier.weight.clone()
    run_steps(algorithm, toy_batches(b=4), 0, 3)
    assert torch.equal(before, algorithm.classifier.weight)


def test_another_head_is_refused() -> None:
    with pytest.raises(UserError, match="text-frozen"):
        toy_algorithm("clipood", head="linear")
