"""The plane through three models."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from copying import replace
from fgmix.errors import UserError
from fgmix.figures.compute.surface import Plane, combine, compute_surface, flatten, span_grid
from fgmix.training.averaging import get_predictor_tensors
from fgmix.training.open_run import OpenedRun


def test_known_points_give_their_plane() -> None:
    plane = Plane.through(torch.tensor([1.0, 1, 1]), torch.tensor([4.0, 1, 1]), torch.tensor([3.0, 5, 1]))
    assert plane.points.tolist() == [[0, 0], [3, 0], [2, 4]]
    assert plane.u_hat.tolist() == [1, 0, 0]
    assert plane.v_hat.tolist() == [0, 1, 0]
    assert plane.coordinates(torch.tensor([2.0, 2, 9])) == (1, 1)  # the third coordinate is off the plane


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_basis_is_orthonormal(scale: float) -> None:
    """Also for nearly parallel sides of a large network, as two runs from one start have."""
    generator = torch.Generator().manual_seed(0)
    w1, side, apart = (torch.randn(100_000, generator=generator) for _ in range(3))
    plane = Plane.through(w1, w1 + scale * side, w1 + scale * (side + 1e-2 * apart))
    basis = torch.stack([plane.u_hat, plane.v_hat])
    assert torch.allclose(basis @ basis.T, torch.eye(2, dtype=torch.float64), atol=1e-12)


def test_combinations_give_back_the_models() -> None:
    w = list(torch.randn(3, 50, dtype=torch.float64))
    plane = Plane.through(*w)
    for each, (a, b) in zip(w, plane.points):
        c = plane.combination(a, b)
        assert sum(c) == pytest.approx(1)
        assert torch.allclose(sum(ci * wi for ci, wi in zip(c, w)), each)  # type: ignore[arg-type]
    a, b = 0.3, -1.2
    expected = plane.origin + a * plane.u_hat + b * plane.v_hat
    assert torch.allclose(sum(ci * wi for ci, wi in zip(plane.combination(a, b), w)), expected)  # type: ignore[arg-type]


def test_models_on_a_line_are_refused() -> None:
    zero, one = torch.zeros(3), torch.ones(3)
    with pytest.raises(UserError, match="equal"):
        Plane.through(zero, zero, one)
    with pytest.raises(UserError, match="on a line"):
        Plane.through(zero, one, 2 * one)


def test_batch_norm_statistics_follow_the_weights_and_stay_positive() -> None:
    def state(value: float, var: float) -> dict[str, torch.Tensor]:
        return {
            "bn.running_mean": torch.tensor([value]),
            "bn.running_var": torch.tensor([var]),
            "bn.num_batches_tracked": torch.tensor(int(value)),
            "frozen.running_var": torch.tensor([0.3]),
        }

    states = [state(0.0, 1.0), state(1.0, 2.0), state(2.0, 3.0)]
    found = combine(states, (0.5, 0.25, 0.25))
    assert found["bn.running_mean"].item() == 0.75
    assert found["bn.running_var"].item() == 1.75
    assert combine(states, (4.0, -1.0, -2.0))["bn.running_var"].item() == 1.0  # would be −4
    assert combine(states, (4.0, -1.0, -2.0))["frozen.running_var"].item() == torch.tensor(0.3).item()
    assert found["bn.num_batches_tracked"].item() == 2


def test_the_grid_holds_every_path_with_a_margin() -> None:
    assert span_grid(np.array([0.0, 10.0, 4.0]), 3).tolist() == [-1.5, 5.0, 11.5]


def test_surface_of_two_runs(erm: OpenedRun, mixing: OpenedRun) -> None:
    found = compute_surface(erm, mixing, resolution=4, samples=20, progress=False)
    assert found.values.shape == (3, 4, 4)
    assert found.paths.tolist() == ["ERM", "ERM + SWA", "FGMix", "FGMix + SWA"]
    for p in range(4):
        own = found.path_points[found.path == p]
        assert found.path_steps[found.path == p].tolist() == [0, 10, 20, 30]
        np.testing.assert_allclose(own[0], [0, 0], atol=1e-9)  # all start at the common initial weights
    np.testing.assert_allclose(found.path_points[found.path == 1][-1], found.anchor_points[1], atol=1e-9)
    np.testing.assert_allclose(found.path_points[found.path == 3][-1], found.anchor_points[2], atol=1e-9)

    # One point of the grid, made by hand: w = w₁ + a û + b v̂, parameter by parameter.
    models = [erm.initial(), erm.algorithm("last", "swa"), mixing.algorithm("last", "swa")]
    plane = Plane.through(*map(flatten, models))
    w = (plane.origin + found.u[2] * plane.u_hat + found.v[1] * plane.v_hat).float()
    network = models[1]
    torch.nn.utils.vector_to_parameters(w, [*network.featurizer.parameters(), *network.classifier.parameters()])
    train, test = erm.sample(erm.sources, limit=20), erm.sample(erm.test_domains, limit=20)
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(network.classifier(train.codes(network)), train.y)
        right = network.classifier(test.codes(network)).argmax(1) == test.y
    assert found.values[0, 1, 2] == pytest.approx(float(loss), rel=1e-4)
    assert found.values[2, 1, 2] == pytest.approx(100 * float(right.float().mean()))
    assert found.correct[1, 2].tolist() == right.tolist()
    assert not np.allclose(found.values[0], found.values[1])  # the second loss has mixed codes in it


def test_without_snapshots_a_path_is_its_ends(erm: OpenedRun, mixing: OpenedRun, tmp_path: Path) -> None:
    """The weights that a run started from are made again: they are those of the first snapshot."""
    bare = []
    for run in (erm, mixing):
        folder = shutil.copytree(run.folder, tmp_path / run.folder.name)
        shutil.rmtree(folder / "snapshots")
        bare.append(replace(run, folder=folder))
    assert torch.equal(flatten(bare[0].initial()), flatten(erm.initial()))
    found = compute_surface(*bare, resolution=2, samples=5, progress=False)
    whole = compute_surface(erm, mixing, resolution=2, samples=5, progress=False)
    np.testing.assert_allclose(found.anchor_points, whole.anchor_points)
    assert found.path_steps.tolist() == [0, 30] * 4


def test_runs_that_start_apart_are_refused(erm: OpenedRun, mixing: OpenedRun) -> None:
    other = replace(mixing, record=replace(mixing.record, spec=replace(mixing.record.spec, seed=1)))
    with pytest.raises(UserError, match="same seed"):
        compute_surface(erm, other)


def test_runs_from_other_weights_are_refused(erm: OpenedRun, mixing: OpenedRun, tmp_path: Path) -> None:
    snapshots = shutil.copytree(mixing.folder, tmp_path / "run") / "snapshots"
    shutil.copy(snapshots / "0000010.pt", snapshots / "0000000.pt")
    with pytest.raises(UserError, match="initial weights"):
        compute_surface(erm, replace(mixing, folder=tmp_path / "run"), progress=False)


def test_the_vector_holds_parameters_alone(erm: OpenedRun) -> None:
    algorithm = erm.algorithm()
    parameters = {name for name, _ in algorithm.named_parameters()}
    size = sum(value.numel() for name, value in get_predictor_tensors(algorithm).items() if name in parameters)
    assert flatten(algorithm).shape == (size,)
