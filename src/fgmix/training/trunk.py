"""Shared trunks: first steps that are the same in several runs of a sweep are trained once.

ERM, and an algorithm in the first steps that it declares in `Algorithm.trunk_steps`, train the model in the same way.
Runs that agree in everything that these steps depend on start from the state after them; their records and weights are
byte-identical to those of separate runs.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm, BaseConfig, Batches, batch_of, get, part_of
from fgmix.errors import bad_value
from fgmix.mixing.fgmix import FGMix
from fgmix.mixing.prior import Prior
from fgmix.records.code import digest_source
from fgmix.records.evaluations import Evaluation
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import ResolvedSpec, keeps
from fgmix.records.store import RunBusy, RunFolder
from fgmix.training.averaging import WeightAverage
from fgmix.training.state import TrainingState, is_measured, read_checkpoint, read_weights, save_weights

FOLDER = "trunks"  # in the folder of the runs


class Trunk(Algorithm):
    """ERM that also updates the prior of FGMix, the moving averages of the codes. Not registered."""

    targets = "weighted"

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: BaseConfig) -> None:
        super().__init__(featurizer, classifier, n_domains, config)
        self.prior = Prior(self.code_size)

    def objective(self, batches: Batches) -> dict[str, Tensor]:
        x, y = batch_of(batches)
        z: Tensor = self.featurizer(x)
        self.prior.observe(z.detach())
        return {"loss": cross_entropy(self.classifier(z), y)}


# Which runs share what


def count_trunk_steps(spec: ResolvedSpec) -> int:
    """Return how many first steps of a run train as ERM does."""
    if spec.algorithm == "erm":
        return spec.steps
    algorithm = get(spec.algorithm)
    return min(spec.steps, algorithm.trunk_steps(algorithm.Config.of(**{**spec.settings, "steps": spec.steps})))


def check_trunk(spec: ResolvedSpec, steps: int) -> None:
    """Raise an error if a run cannot start from a trunk of so many steps."""
    most = count_trunk_steps(spec)
    if type(steps) is not int or not 0 <= steps <= most:
        raise bad_value("trunk", f"an integer from 0 to {most}, the steps that {spec.algorithm} shares with ERM", steps)


def describe_trunk(spec: ResolvedSpec) -> ResolvedSpec:
    """Return the spec of a run's trunk: equal for runs that may share it."""
    return structs.replace(
        spec, algorithm="erm", settings=_shared_settings(spec), arm="", hparams_seed=0, checkpoint_every=0
    )


def _shared_settings(spec: ResolvedSpec) -> dict[str, Any]:
    """Return the only settings that a trunk's steps depend on: learning rate, weight decay and optimiser."""
    return {name: spec.settings[name] for name in Trunk.Config.names() if name in spec.settings}


def find_shared_trunks(runs: Iterable[ResolvedSpec]) -> dict[str, int]:
    """Return how many first steps each run shares with others, by the run's name; 0 if none."""
    runs = list(runs)
    keys = {run.name: describe_trunk(run).name for run in runs}
    own = {run.name: count_trunk_steps(run) for run in runs}
    ends: dict[str, set[int]] = defaultdict(set)  # where runs of one trunk leave it
    for run in runs:
        if 0 < own[run.name] < run.steps:
            ends[keys[run.name]].add(own[run.name])
    longest = {run.name: max((end for end in ends[keys[run.name]] if end <= own[run.name]), default=0) for run in runs}
    users = Counter((keys[name], end) for name, end in longest.items())
    return {name: end if users[keys[name], end] > 1 else 0 for name, end in longest.items()}


# Training a trunk, and a run from it


def locate_trunk(spec: ResolvedSpec, steps: int, out: Path) -> RunFolder:
    """Return the folder of the first `steps` steps of a run's trunk."""
    return RunFolder(out / FOLDER / f"{describe_trunk(spec).name}-{steps}-{digest_source(Trunk, Algorithm)}")


def remove_trunks(out: Path) -> None:
    """Delete the trunks of a finished sweep, except those that another process is training."""
    for path in (out / FOLDER).glob("*"):
        with suppress(RunBusy), RunFolder(path).hold():
            shutil.rmtree(path)


def build_trunk(algorithm: Algorithm, spec: ResolvedSpec) -> Trunk:
    """Build the algorithm that trains a trunk, with the networks of the run's algorithm."""
    config = Trunk.Config.of(**_shared_settings(spec), steps=spec.steps)
    return Trunk(algorithm.featurizer, algorithm.classifier, algorithm.n_domains, config)


def load_trunk(
    trunk: RunFolder, folder: RunFolder, spec: ResolvedSpec, algorithm: Algorithm, average: WeightAverage | None
) -> tuple[TrainingState, list[Evaluation]]:
    """Bring a run to the end of its trunk: return its state and evaluations, load algorithm and average, and write
    the weights kept so far to its folder, which has no files of an earlier attempt.
    """
    checkpoint = read_checkpoint(trunk.checkpoint, next(algorithm.parameters()).device)
    state = TrainingState(**checkpoint["progress"])
    evaluations = list(trunk.evaluations())
    if mixer := _find_mixer(algorithm):
        evaluations = _add_metrics(evaluations, state, mixer, spec)
    for evaluation in evaluations:
        state.metrics_length = folder.append(evaluation)
    for model in state.best:
        if keeps(spec, "best", model):
            _load_tensors(algorithm, read_weights(trunk.weights("best", model)))
            save_weights(folder.weights("best", model), algorithm, model_only=spec.keep == "best")
    if (trunk.path / "snapshots").exists():
        shutil.copytree(trunk.path / "snapshots", folder.path / "snapshots", dirs_exist_ok=True)
    _load_tensors(algorithm, checkpoint["algorithm"])
    # Adam's moments of g and h, which are the first of the optimiser's parameters; others have none yet.
    extra = checkpoint["algorithm"]["_extra_state"]
    algorithm.updates = extra["updates"]
    own = algorithm.optimizer.state_dict()
    algorithm.optimizer.load_state_dict({**own, "state": extra["optimizers"]["optimizer"]["state"]})
    if average:
        average.load_state_dict(checkpoint["average"])
    return state, evaluations


def _find_mixer(algorithm: Algorithm) -> FGMix | None:
    """Return the part of an algorithm that mixes, which has a prior and metrics of its own before it mixes."""
    return next((module for module in algorithm.modules() if isinstance(module, FGMix)), None)


def _load_tensors(algorithm: Algorithm, tensors: dict[str, Any]) -> None:
    """Load g, h and the prior, if the algorithm has one."""
    parts = {"featurizer": algorithm.featurizer, "classifier": algorithm.classifier}
    if (mixer := _find_mixer(algorithm)) and mixer.prior is not None:
        parts["prior"] = mixer.prior
    with torch.no_grad():
        for part, module in parts.items():
            module.load_state_dict(part_of(tensors, part))


def _add_metrics(
    evaluations: Iterable[Evaluation], state: TrainingState, mixer: FGMix, spec: ResolvedSpec
) -> list[Evaluation]:
    """Add the metrics of steps that do not mix yet to the evaluations of a trunk and to its state, step by step as in
    the loop: a product could differ from a sum in the last bit."""
    steps = set(PROTOCOLS[spec.protocol].evaluations(spec.eval_every, spec.steps))
    added, idle, by_step = [], TrainingState(), {each.step: each for each in evaluations}
    for step in range(1, state.step + 1):
        idle.add(mixer.idle_metrics(measure=is_measured(step, steps)))
        if step in by_step:
            means = {**by_step[step].metrics, **idle.average_metrics()}
            added.append(structs.replace(by_step[step], metrics=means))
            idle = TrainingState()
    state.sums, state.counted = {**state.sums, **idle.sums}, {**state.counted, **idle.counted}
    return added
