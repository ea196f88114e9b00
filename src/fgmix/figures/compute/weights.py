"""Effect of λ on mixing weights, and the toy example that compares the updates of FGMix, AND-Mask and ERM."""

from __future__ import annotations

import numpy as np
import torch

from fgmix.algorithms import get
from fgmix.figures.weights import WeightEffect
from fgmix.functional.gradients import sign_agreement
from fgmix.mixing import cosine_scores, scale_and_shift
from fgmix.mixing.scores import Vectors

PAPER_WEIGHTS = ((0.1, 0.6, 0.3), (0.25, 0.4, 0.35))
TOY_GRADIENTS = ((-0.5, 1.0), (-1.0, 0.5), (-1.0, -1.0), (1.0, -1.0))
# Minima m_i of the losses ‖φ − m_i‖²/2 of three samples: the steepest descent from φ = 0 is m_i. As in the paper, 2
# and 3 have similar directions, 1 and 3 opposite ones, and 2 agrees most with the others.
SURFACES = ((-1.6, 1.0), (0.5, 1.5), (1.5, 0.5))
TOY_ALGORITHMS = ("fgmix", "andmask", "erm")
TOY_DISAGREEMENT = 0.3  # AND-Mask drops a component where more of the signs disagree


def compute_weights(lam: tuple[float, float] = (-10.0, 10.0), points: int = 81) -> WeightEffect:
    """Compute three losses and their gradients, ã at points of a range of λ for the paper's a, and its toy example.

        toy: a = softmax(Σ_{j≠i} cos(g_i, g_j)),  FGMix Σ a_i g_i,  ERM Σ g_i,
             AND-Mask Σ g_i where the share of disagreeing signs is at most 0.3

    >>> compute_weights().updates.round(3).tolist()
    [[-0.793, 0.023], [-1.5, 0.0], [-1.5, -0.5]]
    """
    a = torch.tensor(PAPER_WEIGHTS, dtype=torch.float64)
    values = torch.linspace(*lam, points, dtype=torch.float64)
    g = torch.tensor(TOY_GRADIENTS, dtype=torch.float64)
    toy = torch.softmax(cosine_scores(Vectors((g,)), torch.arange(len(g)).unsqueeze(0)), 1).squeeze(0)
    erm = g.sum(0)
    disagreement = (1 - sign_agreement([[g_e] for g_e in g])[0]) / 2
    return WeightEffect(
        lam=values.numpy(),
        a=a.numpy(),
        a_tilde=torch.stack([scale_and_shift(a, float(value)) for value in values], 1).numpy(),
        gradients=g.numpy(),
        weights=toy.numpy(),
        surfaces=np.array(SURFACES),
        updates=torch.stack([toy @ g, torch.where(disagreement <= TOY_DISAGREEMENT, erm, 0.0), erm]).numpy(),
        update_names=np.array([get(key).label for key in TOY_ALGORITHMS]),
        update_algorithms=np.array(TOY_ALGORITHMS),
    )
