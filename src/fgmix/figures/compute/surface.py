"""Loss and accuracy on the plane through three models, and the training paths.

    û = (w₂ − w₁)/‖w₂ − w₁‖,   v = (w₃ − w₁) − ⟨w₃ − w₁, û⟩ û,   v̂ = v/‖v‖          (Gram–Schmidt)
    w(a, b) = w₁ + a û + b v̂,   a model w has the coordinates ⟨w − w₁, û⟩, ⟨w − w₁, v̂⟩

with w the parameters of featurizer and classifier in one vector; w₁ the common initial weights, w₂ and w₃ the averaged
weights at the end of two runs (ERM and FGMix). The paper's formula for v has an error; this is what it describes.

Batch-norm: w(a, b) is an affine combination c₁w₁ + c₂w₂ + c₃w₃ with c₁ + c₂ + c₃ = 1, and the running statistics are
combined with the same c (variances not below the least of the three). If they were frozen, which is the default for
pre-trained networks, all three are equal and do not change. Nothing is re-estimated from data.

Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.errors import UserError
from fgmix.figures.arrays import Floats, Ints
from fgmix.figures.compute.mixtures import compute_ratio, compute_training_loss, load_policy
from fgmix.figures.surface import Surface
from fgmix.progress import track
from fgmix.records.evaluations import Model
from fgmix.records.rows import record_row
from fgmix.training.averaging import get_predictor_tensors
from fgmix.training.open_run import OpenedRun, check_alike

Tensors = Mapping[str, Tensor]
RAW: Model = "raw"
MARGIN = 0.15  # of the paths' extent, left free on every side


@dataclass(frozen=True)
class Plane:
    """The plane through three points."""

    origin: Tensor  # w₁
    u_hat: Tensor  # û
    v_hat: Tensor  # v̂
    points: Floats  # coordinates of the three points (3, 2)

    @classmethod
    def through(cls, w1: Tensor, w2: Tensor, w3: Tensor) -> Plane:
        """Span the plane of three vectors that are not on a line.

        >>> corner = Plane.through(torch.zeros(3), torch.tensor([2.0, 0, 0]), torch.tensor([1.0, 3, 0]))
        >>> corner.points.tolist()
        [[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]
        """
        origin = w1.double()
        u, across = w2.double() - origin, w3.double() - origin
        length = u.norm()
        if length == 0:
            raise UserError(
                "Expected three different models. Found two equal ones: the weights of a run did not change. Train it "
                "longer."
            )
        u_hat = u / length
        v = across - (across @ u_hat) * u_hat
        v = v - (v @ u_hat) * u_hat  # once more: the first pass leaves a rounding error along û
        height = v.norm()
        if height <= 1e-9 * across.norm():
            raise UserError("Expected three models that span a plane. Found them on a line. Compare different runs.")
        v_hat = v / height
        points = np.array([[0.0, 0.0], [float(length), 0.0], [float(across @ u_hat), float(across @ v_hat)]])
        return cls(origin, u_hat, v_hat, points)

    def coordinates(self, w: Tensor) -> tuple[float, float]:
        """Compute the coordinates of the projection of w."""
        step = w.double() - self.origin
        return float(step @ self.u_hat), float(step @ self.v_hat)

    def combination(self, a: float, b: float) -> tuple[float, float, float]:
        """Compute c₁, c₂, c₃ with w(a, b) = c₁w₁ + c₂w₂ + c₃w₃."""
        (_, (length, _), (along, height)) = self.points.tolist()
        c3 = b / height
        c2 = (a - c3 * along) / length
        return 1 - c2 - c3, c2, c3


def compute_surface(
    first: OpenedRun,
    second: OpenedRun,
    *,
    resolution: int = 21,
    samples: int = 150,
    seed: int = 0,
    progress: bool = True,
) -> Surface:
    """Compute train losses and test accuracy on the plane through the initial and last averaged weights of two runs.

    The train loss of an algorithm that mixes is on original and mixed codes, with its policy after the last step.

    Both runs, such as of ERM and of FGMix, have the same network, seed and test domain, and averaged weights; without
    snapshots, their paths have only a first and a last point. The grid has `resolution` points on each side.
    """
    alike = ("backbone", "head", "test_domains", "seed", "trial_seed")
    check_alike(first, second, alike, "start from the same weights")
    averages = [_get_averaging(run) for run in (first, second)]
    initial, other = first.initial(), second.initial()
    if not torch.equal(flatten(initial), flatten(other)):
        raise UserError(
            "Expected two runs with the same initial weights. Found different ones. Train both with the same --seed."
        )
    algorithms = [load_policy(run, "last", average) for run, average in zip((first, second), averages)]
    anchors = [initial, *algorithms]
    plane = Plane.through(*(flatten(each) for each in anchors))
    labels, path, steps, points = _project_paths(plane, first, second, averages, progress)
    u, v = widen_narrower(*(span_grid(np.concatenate([plane.points, points])[:, axis], resolution) for axis in (0, 1)))
    measure = _prepare_measuring((first, second), algorithms, samples, seed)
    states = [{name: tensor.clone() for name, tensor in get_predictor_tensors(each).items()} for each in anchors]
    rows = np.array(
        [
            [measure(combine(states, plane.combination(a, b))) for a in u]
            for b in track(v.tolist(), "surface", show=progress)
        ]
    )  # (b, a, 2 + n)
    losses, correct = rows[..., :2], rows[..., 2:]
    names = [run.label() for run in (first, second)]
    return Surface(
        u=u,
        v=v,
        panels=np.array([f"Train loss, {names[0]}", f"Train loss, {names[1]}", "Test accuracy (%)"]),
        values=np.stack([losses[..., 0], losses[..., 1], 100 * correct.mean(-1)]),
        anchors=np.array(["Initial", first.label(averages[0]), second.label(averages[1])]),
        anchor_points=plane.points,
        paths=np.array(labels),
        path_algorithms=np.repeat([record_row(run.record).key for run in (first, second)], 2),
        path_averaged=np.array([False, True] * 2),
        path_panels=np.array([[True, False, True]] * 2 + [[False, True, True]] * 2),
        path=path,
        path_steps=steps,
        path_points=points,
        test_domains=" and ".join(first.test_domains),
        correct=correct.astype(np.bool_),
    )


def flatten(algorithm: Algorithm) -> Tensor:
    """Join all parameters of featurizer and classifier, one after another."""
    parts = (algorithm.featurizer, algorithm.classifier)
    return torch.cat([p.detach().flatten().cpu() for part in parts for p in part.parameters()])


def combine(states: Sequence[Tensors], c: Sequence[float]) -> dict[str, Tensor]:
    """Compute Σ c_i state_i of parameters and floating-point buffers; counters are those of the last state.

    >>> states = [{"w": torch.tensor([0.0])}, {"w": torch.tensor([4.0])}]
    >>> combine(states, [0.25, 0.75])["w"].item()
    3.0
    """
    result = {}
    for name, last in states[-1].items():
        tensors = torch.stack([state[name] for state in states])
        if not last.is_floating_point() or bool((tensors == tensors[0]).all()):
            result[name] = last  # exact if all are equal, such as frozen statistics
            continue
        mixed = torch.tensordot(torch.tensor(c, dtype=last.dtype, device=last.device), tensors, 1)
        result[name] = torch.maximum(mixed, tensors.amin(0)) if name.endswith("running_var") else mixed
    return result


def widen_narrower(u: Floats, v: Floats) -> tuple[Floats, Floats]:
    """Widen the narrower grid around its middle to a third of the wider one: both are drawn with one scale.

    >>> u, v = widen_narrower(np.linspace(0, 9, 3), np.linspace(0, 1, 3))
    >>> u.tolist(), v.tolist()
    ([0.0, 4.5, 9.0], [-1.0, 0.5, 2.0])
    """
    spans = [np.ptp(u), np.ptp(v)]
    widened = []
    for grid, span in ((u, spans[0]), (v, spans[1])):
        half = max(span, max(spans) / 3) / 2
        widened.append(np.linspace(grid.mean() - half, grid.mean() + half, len(grid)))
    return widened[0], widened[1]


def span_grid(values: Floats, resolution: int) -> Floats:
    """Compute `resolution` values that span the given ones with a margin."""
    low, high = float(values.min()), float(values.max())
    margin = MARGIN * (high - low)
    return np.linspace(low - margin, high + margin, resolution)


def _prepare_measuring(
    runs: Sequence[OpenedRun], algorithms: Sequence[Algorithm], samples: int, seed: int
) -> Callable[[Tensors], list[float]]:
    """Return a function of weights: the train losses of both algorithms there, then 1 for every test sample that is
    classified correctly, 0 for the others."""
    first, network = runs[0], algorithms[0]
    sources = first.sample(first.sources, limit=samples, seed=seed)
    tests = first.sample(first.test_domains, limit=samples, seed=seed)
    y, domain = sources.y.to(first.device), sources.domain.to(first.device)
    ratios = [compute_ratio(run, algorithm) for run, algorithm in zip(runs, algorithms)]

    @torch.no_grad()
    def measure(tensors: Tensors) -> list[float]:
        for algorithm in algorithms:
            for name, live in get_predictor_tensors(algorithm).items():
                live.copy_(tensors[name])
        z = sources.codes(network)
        losses = [compute_training_loss(each, z, y, domain, ratio, seed) for each, ratio in zip(algorithms, ratios)]
        correct = network.classifier(tests.codes(network)).argmax(1).cpu() == tests.y
        return [*losses, *correct.float().tolist()]

    return measure


def _project_paths(
    plane: Plane, first: OpenedRun, second: OpenedRun, averages: Sequence[Model], progress: bool
) -> tuple[list[str], Ints, Ints, Floats]:
    """Return labels of the four paths (raw and averaged of both runs), and their points: path, step, coordinates."""
    wanted = [(run, model) for run, average in zip((first, second), averages) for model in (RAW, average)]
    path, steps, points = [], [], []
    for i, (run, model) in enumerate(track(wanted, "paths", show=progress)):
        for step, algorithm in run.path(model):
            path.append(i)
            steps.append(step)
            points.append(plane.coordinates(flatten(algorithm)))
    return [run.label(model) for run, model in wanted], np.array(path), np.array(steps), np.array(points)


def _get_averaging(run: OpenedRun) -> Model:
    if run.record.spec.averaging == "none":
        raise UserError(
            f"Expected a run with averaged weights. Found none in {run.folder.name}. Train with --averaging swa."
        )
    return run.record.spec.averaging
