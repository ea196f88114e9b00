"""Effect of λ, and the toy example: the paper's own numbers."""

from __future__ import annotations

import numpy as np

from fgmix.figures.compute.weights import compute_weights


def test_lambda_scales_and_shifts() -> None:
    found = compute_weights(lam=(1.0, 3.0), points=2)
    np.testing.assert_allclose(found.a_tilde[:, 0], found.a)  # λ = 1 is the identity
    np.testing.assert_allclose(found.a_tilde[0, 1], [-0.3667, 1.1333, 0.2333], atol=1e-4)
    np.testing.assert_allclose(compute_weights().a_tilde.sum(-1), 1)


def test_toy_example() -> None:
    found = compute_weights()
    np.testing.assert_allclose(found.weights, [0.21218712, 0.39938428, 0.33777486, 0.05065374], atol=1e-8)
    fgmix, andmask, erm = found.updates
    assert found.update_names.tolist() == ["FGMix", "AND-Mask", "ERM"]
    np.testing.assert_allclose(fgmix, [-0.793, 0.023], atol=1e-3)
    np.testing.assert_allclose(andmask, [-1.5, 0])
    np.testing.assert_allclose(erm, [-1.5, -0.5])

    def cosine(x: np.ndarray, y: np.ndarray) -> float:
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    np.testing.assert_allclose([cosine(fgmix, andmask), cosine(fgmix, erm)], [0.9996, 0.9389], atol=1e-4)
