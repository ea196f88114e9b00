"""Learned compatibility A_ω and cosine, for pairs of samples from different source domains."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import torch

from fgmix.errors import UserError
from fgmix.figures.arrays import Ints
from fgmix.figures.compute.mixtures import find_mixer, load_policy
from fgmix.figures.scatter import Scores, correlate
from fgmix.mixing.scores import LinearGradients, Vectors, classifier_gradients
from fgmix.progress import track
from fgmix.records.evaluations import Model
from fgmix.records.schema import Which
from fgmix.seeding import numpy_generator
from fgmix.training.open_run import OpenedRun


def compute_scores(
    run: OpenedRun,
    *,
    which: Which = "last",
    model: Model = "raw",
    pairs: int = 200,
    samples: int = 300,
    same_class: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> Scores:
    """Compute A_ω(g_i, g_j) and cos(g_i, g_j) for each ordered pair of source domains (A_ω is not symmetric).

    The policy is the raw model's. `pairs` are samples for each pair of domains, of one class as in training unless
    `same_class` is False.
    """
    algorithm = load_policy(run, which, model)
    mixer = find_mixer(algorithm)
    if mixer is None or mixer.compatibility is None:
        raise UserError(
            f"Expected a run of fgmix, fgmix_e or fgmix_f, which learn A_ω. Found {run.record.spec.algorithm}. Choose "
            "another run."
        )
    sample = run.sample(run.sources, limit=samples, seed=seed)
    z, y, domain = sample.codes(algorithm), sample.y, sample.domain
    vectors: Vectors | LinearGradients = Vectors((z,))
    if mixer.inputs != "codes":
        vectors = classifier_gradients(algorithm.classifier, z, y.to(run.device))
    scaled = vectors.normalise() if mixer.scale == "rms" else vectors
    names, score, cosine = [], [], []
    for first, second in track(list(permutations(sample.ids, 2)), "scores", show=progress):
        position = _draw_pairs(y.numpy(), domain.numpy(), first, second, pairs, same_class, seed)
        at = torch.from_numpy(position).to(run.device)
        with torch.no_grad():
            score.append(
                mixer.compatibility.scores(scaled, at)[:, 0].cpu().numpy()
            )  # a tuple of two: s_i = A_ω(g_i, g_j)
            cosine.append(vectors.cosines(at)[:, 0, 1].cpu().numpy())
        names.append(" → ".join(run.prepared.dataset.domain_names[i] for i in (first, second)))
    return Scores(
        pairs=np.array(names),
        score=np.stack(score).astype(np.float64),
        cosine=np.stack(cosine).astype(np.float64),
        rho=np.array([correlate(s, c) for s, c in zip(score, cosine)]),
        inputs=mixer.inputs,
        test_domains=" and ".join(run.test_domains),
    )


def _draw_pairs(y: Ints, domain: Ints, first: int, second: int, pairs: int, same_class: bool, seed: int) -> Ints:
    """Draw random pairs (n, 2) of a sample of the first and one of the second domain, as positions."""
    i, j = np.flatnonzero(domain == first), np.flatnonzero(domain == second)
    rng = numpy_generator("pairs", seed, first, second)
    if not same_class:
        return np.stack([rng.choice(i, pairs), rng.choice(j, pairs)], 1)
    shared = np.intersect1d(y[i], y[j])
    if len(shared) == 0:
        raise UserError("Expected a class that both domains of a pair have. Found none. Use --any-class.")
    classes = rng.choice(shared, pairs)
    return np.array([(rng.choice(i[y[i] == c]), rng.choice(j[y[j] == c])) for c in classes])
