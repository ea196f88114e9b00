"""Flatness of the loss around a minimum: (L(φ*) − L(φ'))² at distances γ along random directions.

    classifier   φ' = φ* + γ u/‖u‖,  u ~ N(0, I) in all coordinates of the classifier
    relative     φ'_f = φ*_f + ν s ‖φ*_f‖ u_f/‖u_f‖ for every filter f of the classifier
    network      θ'_f = θ*_f + γ/100 · ‖θ*_f‖ u_f/‖u_f‖ for every filter f of every layer

A filter gives one output: a row of a linear layer, a kernel of a convolution. Rescaling a layer (which batch-norm
undoes) rescales its directions, so that networks that compute the same are equally flat; γ is then a percentage. Biases
and the scales of normalisation have no filters and are not changed.

The first is the paper's. It depends on the scale of the codes: with codes ten times smaller and weights ten times
larger, h_φ computes the same, and a step of length γ moves the logits a tenth as far. The second does not: s is such
that the logits of a sample change, by root mean square and to first order, by the median margin (the logit of the true
class minus the largest other, absolute) if ν = 1; both are medians over samples.

L is the training loss of the algorithm: on original codes, and on the mixed codes of its policy if it has one.

Izmailov et al., 2018; Li et al., "Visualizing the Loss Landscape of Neural Nets", 2018 (filter normalisation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm
from fgmix.errors import unknown
from fgmix.figures.arrays import Floats
from fgmix.figures.compute.mixtures import add_mixed, compute_ratio, compute_training_loss, find_mixer, load_policy
from fgmix.figures.flatness import Flatness
from fgmix.mixing.flatness import margins
from fgmix.progress import track
from fgmix.records.evaluations import Model
from fgmix.records.rows import record_row
from fgmix.records.schema import Which
from fgmix.seeding import torch_generator
from fgmix.training.open_run import OpenedRun, Sample, check_alike

Scope = Literal["classifier", "network"]
Tensors = dict[str, Tensor]
_Draw = Callable[[Tensors, torch.Generator], Tensors]  # a direction
_Problem = tuple[Tensors, Callable[[Tensors], float]]  # a minimum, and the loss
GAMMAS = tuple(float(gamma) for gamma in range(1, 11))
NOISES = tuple(gamma / 10 for gamma in GAMMAS)  # ν
SHORT = 0.01  # of a direction: short enough for any head to be nearly linear


def compute_flatness(
    runs: Sequence[OpenedRun],
    *,
    scope: Scope = "classifier",
    which: Which = "last",
    model: Model = "raw",
    gammas: Sequence[float] = GAMMAS,
    directions: int = 50,
    samples: int = 300,
    seed: int = 0,
    progress: bool = True,
) -> Flatness:
    """Compute squared loss differences of several runs, along the same directions.

    The runs are of one trial and see the same training samples. The scope is "classifier" (h_φ alone) or "network" (all
    weights, filter-normalised).
    """
    if scope not in ("classifier", "network"):
        raise unknown("scope", scope, ("classifier", "network"))
    for run in runs[1:]:
        check_alike(runs[0], run, ("trial_seed", "holdout_fraction"), "have the same training samples")
    gaps, relative_gaps, data = [], [], []

    def measure(problem: _Problem, draw: _Draw, steps: Sequence[float], name: str) -> Floats:
        minimum, loss = problem
        at_minimum, rows = loss(minimum), []
        for i in track(range(directions), name, show=progress):
            u = draw(minimum, torch_generator("direction", seed, i))  # the same in every run
            rows.append(compute_gaps(loss, minimum, u, steps, at_minimum))
        return np.stack(rows)

    for run in runs:
        algorithm = load_policy(run, which, model)
        sample = run.sample(run.sources, limit=samples, seed=seed)
        name = f"{run.label(model)} {scope}"
        if scope == "network":
            problem = _move_network(run, algorithm, sample, seed)
            gaps.append(measure(problem, draw_filter_direction, [0.01 * gamma for gamma in gammas], name))
        else:
            z, y = sample.codes(algorithm), sample.y.to(run.device)
            problem = _move_classifier(run, algorithm, z, y, sample.domain.to(run.device), seed)
            gaps.append(measure(problem, draw_unit_direction, gammas, name))
            generators = (torch_generator("direction", seed, i) for i in range(directions))
            s = scale_to_margin(algorithm.classifier, z, y, [draw_filter_direction(problem[0], g) for g in generators])
            steps = [s * noise for noise in NOISES]
            relative_gaps.append(measure(problem, draw_filter_direction, steps, f"{name}, relative"))
        data.append("original" if find_mixer(algorithm) is None else "original + mixed")
    return Flatness(
        scope=scope,
        methods=np.array([run.label(model) for run in runs]),
        algorithms=np.array([record_row(run.record).key for run in runs]),
        data=np.array(data),
        gammas=np.array(gammas, dtype=np.float64),
        gaps=np.stack(gaps),
        test_domains=", ".join(dict.fromkeys(" and ".join(run.test_domains) for run in runs)),
        **({"noises": np.array(NOISES), "relative_gaps": np.stack(relative_gaps)} if relative_gaps else {}),
    )


@torch.no_grad()
def scale_to_margin(head: nn.Module, z: Tensor, y: Tensor, directions: Sequence[Tensors]) -> float:
    """Compute the length of a step along directions that changes the logits by their median margin, to first order.

    The change of a code's logits is the root of the mean square over classes and directions; its median over codes
    counts. 0 if the directions change no logit.

    >>> head = nn.Linear(1, 2, bias=False)
    >>> _ = head.weight.data.copy_(torch.tensor([[3.0], [1.0]]))
    >>> z, y = torch.ones(4, 1), torch.zeros(4, dtype=torch.long)
    >>> round(scale_to_margin(head, z, y, [{"weight": torch.full((2, 1), 0.5)}]), 3)  # a margin of 2, a change of 0.5
    4.0
    """
    parameters = {name: p.detach() for name, p in head.named_parameters()}
    logits = functional_call(head, parameters, (z,))
    squares = []
    for u in directions:
        moved = {name: p + SHORT * u[name] for name, p in parameters.items()}
        squares.append(((functional_call(head, moved, (z,)) - logits) / SHORT).square().mean(1))
    noise = torch.stack(squares).mean(0).sqrt().quantile(0.5)
    return float(margins(head, z, y).abs().quantile(0.5) / noise) if noise > 0 else 0.0


def compute_gaps(
    loss: Callable[[Tensors], float], minimum: Tensors, u: Tensors, steps: Sequence[float], at_minimum: float
) -> Floats:
    """Compute (L(w*) − L(w* + s u))² for each step s, with w* the minimum and u a direction, as named tensors.

    >>> w, u = {"w": torch.zeros(2)}, {"w": torch.tensor([0.6, 0.8])}
    >>> compute_gaps(lambda p: float(p["w"].square().sum()), w, u, [1.0, 2.0], 0.0).round(4).tolist()
    [1.0, 16.0]
    """
    moved = ({name: w + s * u[name] for name, w in minimum.items()} for s in steps)
    return np.array([(at_minimum - loss(each)) ** 2 for each in moved])


def draw_unit_direction(minimum: Tensors, generator: torch.Generator) -> Tensors:
    """Draw u/‖u‖ with u Gaussian in all coordinates together."""
    u = {name: _draw_gaussian(w, generator) for name, w in minimum.items()}
    norm = torch.sqrt(sum((each.square().sum() for each in u.values()), torch.zeros(())))
    return {name: each / norm for name, each in u.items()}


def draw_filter_direction(minimum: Tensors, generator: torch.Generator) -> Tensors:
    """Draw a Gaussian direction with the norm of the weights in each filter; zero for tensors without filters."""
    return {name: _scale_filters(w, _draw_gaussian(w, generator)) for name, w in minimum.items()}


def _draw_gaussian(w: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(w.shape, generator=generator).to(w)


def _scale_filters(w: Tensor, u: Tensor) -> Tensor:
    if w.ndim < 2:
        return torch.zeros_like(w)
    norm_w, norm_u = (each.flatten(1).norm(dim=1).view(-1, *[1] * (w.ndim - 1)) for each in (w, u))
    filters: Tensor = u * norm_w / norm_u.clamp_min(torch.finfo(w.dtype).tiny)
    return filters


def _move_classifier(run: OpenedRun, algorithm: Algorithm, z: Tensor, y: Tensor, domain: Tensor, seed: int) -> _Problem:
    """Return φ*, and L on fixed codes: original, and mixed at φ* if there is a policy."""
    z, y = add_mixed(algorithm, z, y, domain, compute_ratio(run, algorithm), seed)
    head = algorithm.classifier

    @torch.no_grad()
    def loss(parameters: Tensors) -> float:
        return float(cross_entropy(functional_call(head, parameters, (z,)), y))

    return {name: p.detach().clone() for name, p in head.named_parameters()}, loss


def _move_network(run: OpenedRun, algorithm: Algorithm, sample: Sample, seed: int) -> _Problem:
    """Return (θ*, φ*), and L with codes and mixed codes computed at the given weights."""
    y, domain = sample.y.to(run.device), sample.domain.to(run.device)
    ratio = compute_ratio(run, algorithm)
    live = {
        f"{part}.{name}": p
        for part in ("featurizer", "classifier")
        for name, p in getattr(algorithm, part).named_parameters()
    }

    @torch.no_grad()
    def loss(parameters: Tensors) -> float:
        for name, p in live.items():
            p.copy_(parameters[name])
        return compute_training_loss(algorithm, sample.codes(algorithm), y, domain, ratio, seed)

    return {name: p.detach().clone() for name, p in live.items()}, loss
