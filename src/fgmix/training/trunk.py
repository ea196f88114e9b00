"""Shared trunks: first steps that are the same in several runs of a sweep are trained once.

A method declares in `trunk_steps` how many of its first steps train its model exactly as ERM does. Runs that agree in
everything that these steps depend on start from the state after them; their records and weights are byte-identical to
those of separate runs.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fgmix.algorithms import get
from fgmix.algorithms._trunk import Trunk
from fgmix.records.schema import ResolvedSpec, keeps
from fgmix.records.store import RunBusy, RunFolder
from fgmix.training import state as checkpoint

if TYPE_CHECKING:
    from fgmix.algorithms import Algorithm
    from fgmix.training.averaging import WeightAverage

FOLDER = "trunks"  # in the folder of the runs
SHARED_SETTINGS = ("lr", "weight_decay")  # the only settings that a trunk's steps depend on


def trunk_steps(spec: ResolvedSpec) -> int:
    """How many first steps of a run train as ERM does, as its method declares."""
    algorithm = get(spec.algorithm)
    return min(spec.steps, algorithm.trunk_steps(algorithm.Config.of(**{**spec.settings, "steps": spec.steps})))


def trunk_of(spec: ResolvedSpec) -> ResolvedSpec:
    """The spec of a run's trunk: equal for runs that may share it."""
    settings = {name: spec.settings[name] for name in SHARED_SETTINGS}
    return replace(spec, algorithm="erm", settings=settings, arm="", hparams_seed=0, checkpoint_every=0)


def shared_trunks(runs: Iterable[ResolvedSpec]) -> dict[str, int]:
    """How many first steps each run shares with others, by the run's name; 0 if none."""
    runs = list(runs)
    keys = {run.name: trunk_of(run).name for run in runs}
    own = {run.name: trunk_steps(run) for run in runs}
    ends: dict[str, set[int]] = defaultdict(set)  # where runs of one trunk leave it
    for run in runs:
        if 0 < own[run.name] < run.steps:
            ends[keys[run.name]].add(own[run.name])
    longest = {run.name: max((end for end in ends[keys[run.name]] if end <= own[run.name]), default=0) for run in runs}
    users = Counter((keys[name], end) for name, end in longest.items())
    return {name: end if users[keys[name], end] > 1 else 0 for name, end in longest.items()}


def trunk_folder(spec: ResolvedSpec, steps: int, out: Path) -> RunFolder:
    """The folder of the first `steps` steps of a run's trunk."""
    return RunFolder(out / FOLDER / f"{trunk_of(spec).name}-{steps}")


def remove_trunks(out: Path) -> None:
    """Delete the trunks of a finished sweep, except those that another process is training."""
    for path in (out / FOLDER).glob("*"):
        with suppress(RunBusy), RunFolder(path).held():
            shutil.rmtree(path)


def build_trunk(algorithm: Algorithm, spec: ResolvedSpec) -> Trunk:
    """The algorithm that trains a trunk, with the networks of the method."""
    settings = {name: spec.settings[name] for name in SHARED_SETTINGS}
    config = Trunk.Config.of(**settings, steps=spec.steps)
    return Trunk(algorithm.featurizer, algorithm.classifier, algorithm.n_domains, config)


def start_from(
    trunk: RunFolder,
    folder: RunFolder,
    spec: ResolvedSpec,
    algorithm: Algorithm,
    average: WeightAverage | None,
) -> checkpoint.Standing:
    """Bring a run to the end of its trunk: state, average, evaluations and the weights kept so far.

    Args:
        trunk: the finished trunk's folder.
        folder: the run's own, without files of an earlier attempt.
        spec: the run's.
        algorithm: the run's, with its initial weights.
        average: the run's, if it has one.
    """
    state = checkpoint.read(trunk.checkpoint, next(algorithm.parameters()).device)
    at = checkpoint.Standing(**state["progress"])
    idle = {name: value.float() for name, value in algorithm.trunk_metrics().items()}
    at.metrics_length = _copy_evaluations(trunk, folder, idle)
    at.sums = {**at.sums, **_sums(idle, at.counted)}
    for model in at.best:
        if keeps(spec, "best", model):
            _take(algorithm, checkpoint.read_weights(trunk.weights("best", model)))
            checkpoint.save_weights(folder.weights("best", model), algorithm, model_only=spec.keep == "best")
    if (trunk.path / "snapshots").exists():
        shutil.copytree(trunk.path / "snapshots", folder.path / "snapshots", dirs_exist_ok=True)
    _take(algorithm, state["algorithm"])
    _take_optimizer(algorithm, state["algorithm"]["_extra_state"])
    if average:
        average.load_state_dict(state["average"])
    return at


def _take(algorithm: Algorithm, tensors: dict[str, Any]) -> None:
    with torch.no_grad():
        algorithm.take_trunk({name: value for name, value in tensors.items() if isinstance(value, Tensor)})


def _take_optimizer(algorithm: Algorithm, extra: dict[str, Any]) -> None:
    """Load Adam's moments of g and h, which are the first of the optimiser's parameters; others have none yet."""
    algorithm.updates = extra["updates"]
    own = algorithm.optimizer.state_dict()
    algorithm.optimizer.load_state_dict({**own, "state": extra["optimizers"]["optimizer"]["state"]})


def _copy_evaluations(trunk: RunFolder, folder: RunFolder, idle: dict[str, Tensor]) -> int:
    """Copy the trunk's evaluations to the run, with the metrics of its method in these steps; returns their length."""
    length, before = 0, 0
    for evaluation in trunk.evaluations():
        steps = evaluation.step - before
        means = {name: float(value) / steps for name, value in _sums(idle, steps).items()}
        length = folder.append(replace(evaluation, metrics={**evaluation.metrics, **means}))
        before = evaluation.step
    return length


def _sums(idle: dict[str, Tensor], steps: int) -> dict[str, Tensor]:
    """Sums over steps, added one by one as in the loop: steps · value could differ in the last bit."""
    sums: dict[str, Tensor] = {}
    for _ in range(steps):
        for name, value in idle.items():
            sums[name] = sums.get(name, 0) + value
    return sums
