"""Mixed codes of a finished run, and its training loss on original and mixed codes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError
from fgmix.mixing.fgmix import FGMix
from fgmix.records.evaluations import Model
from fgmix.records.schema import Which
from fgmix.training.open_run import OpenedRun


@dataclass(frozen=True)
class Mixture:
    """Mixed codes (n, d), their classes (n,), and which of them are extrapolations: a weight below 0 (n,)."""

    z: Tensor
    y: Tensor
    extrapolates: Tensor


def find_mixer(algorithm: Algorithm) -> FGMix | None:
    """Return the algorithm's mixing policy; None for one without."""
    mixer = getattr(algorithm, "mixer", None)
    return mixer if isinstance(mixer, FGMix) else None


def load_policy(run: OpenedRun, which: Which, model: Model) -> Algorithm:
    """Load the run's algorithm with its weights; UserError if those of its policy were not kept, as in most sweeps."""
    algorithm = run.algorithm(which, model)
    mixer = find_mixer(algorithm)
    if run.record.spec.keep == "best" and mixer is not None and mixer.state_dict():
        raise UserError(
            f"Expected all weights of {run.folder.name}, with those of its policy. Found featurizer and classifier "
            "alone, which a sweep keeps. Train the run in another folder with --keep all."
        )
    return algorithm


def build_random_mixer(code_size: int) -> FGMix:
    """Build variant A: weights from Dirichlet(1), no extrapolation."""
    return FGMix(code_size, 1, weights="dirichlet", lam=1.0).eval()


def compute_ratio(run: OpenedRun, algorithm: Algorithm) -> float:
    """Compute the number of mixed codes per original code in a training step, n / (k·b); 0 without a policy."""
    spec = run.record.spec
    return 0.0 if find_mixer(algorithm) is None else float(spec.settings["n"]) / (len(run.sources) * spec.batch_size)


@torch.no_grad()
def mix(mixer: FGMix, classifier: nn.Module, z: Tensor, y: Tensor, domain: Tensor, count: int, seed: int) -> Mixture:
    """Mix `count` of the codes z (N, d), with classes y and domain ids (N,), by the policy, which is not updated.

    The classifier gives the gradients that the policy depends on. The seed is of the tuples, which do not depend on the
    codes, and of random weights.
    """
    parts = []
    for call in range(-(-count // mixer.n)):
        generator = torch.Generator(z.device).manual_seed(1_000_003 * seed + call)
        mixed = mixer(z, y, domain, classifier, generator)
        if len(mixed.y) == 0:
            raise UserError(
                "Expected a class that all source domains have, to mix its codes. Found none. Increase --samples, or "
                "choose a run on other domains."
            )
        parts.append(mixed)
    return Mixture(
        torch.cat([part.z for part in parts])[:count],
        torch.cat([part.y for part in parts])[:count],
        torch.cat([(part.weights < 0).any(1) for part in parts])[:count],
    )


def add_mixed(
    algorithm: Algorithm, z: Tensor, y: Tensor, domain: Tensor, ratio: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Add n = ratio·N mixed codes and their classes to N codes; none without a policy."""
    mixer = find_mixer(algorithm)
    if mixer is None:
        return z, y
    mixed = mix(mixer, algorithm.classifier, z, y, domain, max(1, round(ratio * len(z))), seed)
    return torch.cat([z, mixed.z]), torch.cat([y, mixed.y])


@torch.no_grad()
def compute_training_loss(algorithm: Algorithm, z: Tensor, y: Tensor, domain: Tensor, ratio: float, seed: int) -> float:
    """Compute (Σ l(y, h_φ(z)) + Σ l(y, h_φ(z_mix))) / (N + n) with n = ratio·N mixed codes; without a policy n = 0.

    The policy (A_ω, λ) is fixed; its inputs are the given codes z and the current φ, as in training.
    """
    z, y = add_mixed(algorithm, z, y, domain, ratio, seed)
    return float(cross_entropy(algorithm.classifier(z), y))
