"""The only loop: `train(spec)` takes data on disk to a finished, resumable run."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import NoReturn

import torch
from torch import Tensor

import fgmix
from fgmix.algorithms import Algorithm
from fgmix.data import DomainDataset
from fgmix.errors import bad_value
from fgmix.progress import Part as PartOfBar
from fgmix.progress import Progress, bar_for
from fgmix.records.digests import Damaged, damaged
from fgmix.records.files import checked_path
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import Evaluation, Model, ResolvedSpec, RunRecord, RunSpec, Which, keeps, selected_weights
from fgmix.records.store import RunFolder
from fgmix.seeding import seed_torch
from fgmix.training import state as checkpoint
from fgmix.training.averaging import build_average
from fgmix.training.devices import deterministic_operations, gpu_of, pick_device
from fgmix.training.evaluation import Predict, with_tensors
from fgmix.training.precision import LossScaler, autocast
from fgmix.training.prepare import PreparedRun, batch_source, build_algorithm, compiled, prepare
from fgmix.training.resolve import notes_of
from fgmix.training.scoring import Found, as_evaluation, score_run, unseen_metrics
from fgmix.training.signals import Stop, Stopped, stop_on_signal
from fgmix.training.trunk import build_trunk, start_from, trunk_folder, trunk_of
from fgmix.training.warmup import warmed_up

OnEvaluation = Callable[[ResolvedSpec, Evaluation], None]
CHECK_EVERY = 10  # steps between looks at the loss: each look waits for the device


def train(
    spec: RunSpec,
    out: str | Path = "runs",
    *,
    dataset: DomainDataset | None = None,
    device: str = "auto",
    progress: bool | Progress = True,
    trunk: int = 0,
    on_evaluation: OnEvaluation | None = None,
) -> RunRecord:
    """Train one run and return its record; an interrupted run resumes, a finished one is read.

    A run that is interrupted by SIGTERM or SIGUSR1 writes a checkpoint first and raises `signals.Stopped`.

    Args:
        spec: what to run.
        out: the folder in which the run's own folder is made, named by the content of the spec.
        dataset: the dataset, if it is loaded already; else `spec.dataset` is.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        progress: show a progress bar; or a bar of the caller's, for several runs.
        trunk: how many first steps to share with other runs in `out` (see `runs.trunk`); the record is the same.
        on_evaluation: called with the resolved spec and every new evaluation, once its line and a checkpoint are
            written: the record does not depend on it. An exception that it raises ends the training and is passed on;
            the same call resumes behind that evaluation.

    Example:
        >>> import tempfile, numpy as np
        >>> from fgmix.data import from_arrays
        >>> rng = np.random.default_rng(0)
        >>> y, d = np.arange(90) % 3, np.arange(90) // 30
        >>> data = from_arrays(rng.normal(size=(90, 4)) + y[:, None], y, d)
        >>> spec = RunSpec(dataset="arrays", algorithm="erm", test_domains=("2",), steps=20)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     train(spec, out, dataset=data, progress=False).status
        'done'
    """
    if not isinstance(spec, RunSpec):
        raise bad_value("spec", "a RunSpec", spec)
    if on_evaluation is not None and not callable(on_evaluation):
        raise bad_value("on_evaluation", "a function of a spec and an evaluation", on_evaluation)
    runs = checked_path("out", out)
    run = prepare(spec, dataset, device=device, progress=bool(progress))
    for note in notes_of(spec, run.spec) if progress is True else ():
        print(f"note: {note}", file=sys.stderr)
    folder = RunFolder(runs / run.spec.name)
    with folder.opened(run.spec) as made:
        run = replace(run, spec=made)
        if found := folder.finished():
            return found
        algorithm = compiled(build_algorithm(run).to(pick_device(device)), made)
        algorithm = warmed_up(algorithm, run, progress=progress is True)
        with deterministic_operations(made.deterministic), stop_on_signal() as stop:
            loop = _Loop(run, folder, algorithm, progress, stop, on_evaluation)
            if trunk and loop.at.step == 0:
                loop.start_from_trunk(trunk)
            return loop.run_to_end()


class _Loop:
    """One run in progress: algorithm, average, and where it stands."""

    def __init__(
        self,
        run: PreparedRun,
        folder: RunFolder,
        algorithm: Algorithm,
        show: bool | Progress,
        stop: Stop,
        on_evaluation: OnEvaluation | None = None,
    ) -> None:
        self.run, self.spec, self.folder, self.show, self.stop = run, run.spec, folder, show, stop
        self.on_evaluation = on_evaluation
        self.evaluated: Evaluation | None = None  # of this step, until it is handed on
        self.device = next(algorithm.parameters()).device
        evaluations = PROTOCOLS[run.spec.protocol].evaluations
        self.evaluation_steps = set(evaluations(run.spec.eval_every, run.spec.steps))
        self.algorithm = algorithm.train()
        self.average = build_average(self.spec, self.algorithm)
        self.scaler = LossScaler(self.algorithm) if self.spec.precision == "fp16" else None
        self.models: tuple[Model, ...] = ("raw",) if self.spec.averaging == "none" else ("raw", self.spec.averaging)
        self.at = checkpoint.Standing()
        self.pending: list[Tensor] = []  # losses of the steps since the last look
        self.saved_at = monotonic()
        self._resume()

    def _resume(self) -> None:
        """Continue from the newest checkpoint that is whole, with everything that it builds on; else from the start."""
        found = [path for path in self.folder.checkpoints if path.exists()]
        for path in found:
            try:
                state = checkpoint.read(path, self.device)
                self.folder.evaluations(state["progress"]["metrics_length"])
                for model in state["progress"]["best"]:
                    if keeps(self.spec, "best", model):
                        checkpoint.check_weights(self.folder.weights("best", model))
                if state["progress"]["step"] > self.spec.steps:
                    raise damaged(str(path))
            except Damaged as error:
                print(f"note: {error} The run resumes from what is whole.", file=sys.stderr)
                continue
            self._take(checkpoint.restore(state, path, self.algorithm, self.average))
            self.folder.cut_metrics(self.at.metrics_length)
            return
        self.folder.start_over()

    def _take(self, at: checkpoint.Standing) -> None:
        """Stand where a checkpoint says."""
        self.at = at
        if self.scaler:
            self.scaler.load_state_dict(at.scaler)

    def start_from_trunk(self, steps: int) -> None:
        """Take over the first steps from the trunk beside this run; train it if nobody has."""
        folder = trunk_folder(self.spec, steps, self.folder.path.parent)
        with folder.opened(trunk_of(self.spec)):
            algorithm = compiled(build_trunk(build_algorithm(self.run), self.spec).to(self.device), self.spec)
            algorithm = warmed_up(algorithm, self.run, progress=self.show is True)
            run = replace(self.run, spec=replace(self.spec, keep="all"))
            trunk = _Loop(run, folder, algorithm, self.show, self.stop)
            if trunk.run_until(steps) is not None:
                return  # it diverged: the run finds out by itself
        self._take(start_from(folder, self.folder, self.spec, self.algorithm, self.average))
        self._save()

    def run_to_end(self) -> RunRecord:
        return self._finish(self.run_until(self.spec.steps))

    def run_until(self, last: int) -> int | None:
        """Train up to step `last`; the first step whose loss was not finite, if there is one."""
        source = batch_source(self.run)
        title = f"{self.spec.algorithm} {'+'.join(self.spec.test_domains) or 'on all domains'}"
        with (
            self.folder.session(self.at.step) as session,
            bar_for(self.show, title, last, done=self.at.step) as bar,
        ):
            self._snapshot()
            if self._evaluation_due:  # the run was stopped before it
                if not self._evaluate(bar):
                    return self.at.step
                self._save()
                self._hand_on()
            for batches in source.ahead(self.at.step, last, device=self.device):
                self._step(batches)
                stopping = self.stop.reason  # read once: it may be set at any moment
                saving = bool(stopping) or self._checkpoint_due or self.at.step == last
                diverged_at = self._look(bar, saving)
                session["last_step"] = self.at.step
                if diverged_at:
                    return diverged_at
                self._snapshot()
                if stopping:
                    self._save_and_stop()
                if self._evaluation_due and not self._evaluate(bar):
                    return self.at.step
                if saving:
                    self._save()
                    self._hand_on()
        return None

    def _save(self) -> None:
        if self.scaler:
            self.at.scaler = self.scaler.state_dict()
        checkpoint.save(self.folder.checkpoints, self.algorithm, self.average, self.at)
        self.saved_at = monotonic()

    def _hand_on(self) -> None:
        """Call the caller's function, if there is a new evaluation; the files are whole, whatever it does."""
        evaluation, self.evaluated = self.evaluated, None
        if self.on_evaluation and evaluation:
            self.on_evaluation(self.spec, evaluation)

    def _save_and_stop(self) -> NoReturn:
        self._save()
        raise Stopped(
            f"Stopped by {self.stop.reason} after step {self.at.step:,} of {self.spec.steps:,}, with a checkpoint in "
            f"{self.folder.path}. Rerun the same command to resume."
        )

    @property
    def _evaluation_due(self) -> bool:
        """Whether this step is evaluated and has not been yet: an evaluation empties the sums."""
        return self.at.step in self.evaluation_steps and self.at.counted > 0

    @property
    def _checkpoint_due(self) -> bool:
        """By step or by time; what a run keeps and records is the same, whenever it saves."""
        every, minutes = self.spec.checkpoint_every, self.spec.checkpoint_minutes
        by_step = self.at.step in self.evaluation_steps or (every > 0 and self.at.step % every == 0)
        return by_step or (minutes > 0 and monotonic() - self.saved_at >= 60 * minutes)

    def _step(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        placed = [(self._placed(x), y) for x, y in batches]
        seed_torch("step", self.spec.seed, self.at.step)
        with autocast(self.spec.precision, self.device), self.scaler.step() if self.scaler else nullcontext():
            metrics = self.algorithm.step(placed)
        self.at.step += 1
        self.at.counted += 1
        for name, value in metrics.items():
            self.at.sums[name] = self.at.sums.get(name, 0) + value.float()
        self.pending.append(metrics["loss"])
        if self.average:
            self.average.update(self.algorithm, self.at.step)

    def _placed(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last) if self.spec.channels_last and x.ndim == 4 else x

    def _look(self, bar: Progress | PartOfBar, saving: bool) -> int | None:
        """Fetch the losses now and then, and before they are lost to a checkpoint: show the last one, and find the
        first that is not finite."""
        if not saving and self.at.step % CHECK_EVERY:
            bar.advance()
            return None
        if self.scaler:
            self.scaler.check()
        losses = torch.stack(self.pending)
        self.pending.clear()
        bar.advance(note=f"loss {float(losses[-1]):.3f}{self._accuracy_note}")
        broken = (~torch.isfinite(losses)).nonzero()
        return self.at.step - len(losses) + int(broken[0]) + 1 if len(broken) else None

    @property
    def _accuracy_note(self) -> str:
        return f", holdout {100 * self.at.best['raw']:.1f} % at best" if "raw" in self.at.best else ""

    def _evaluate(self, bar: Progress | PartOfBar) -> bool:
        """Score the raw and the averaged model, keep the best weights of each, write the line.

        False, and nothing written, when a loss is not finite: the step before broke the weights.
        """
        bar.say(f"evaluating after step {self.at.step:,}")
        try:
            scores = self._scores()
        except Stopped:
            self._save_and_stop()
        training = {name: float(value) / self.at.counted for name, value in self.at.sums.items()}
        evaluation = as_evaluation(scores, self.at.step, training, self.spec.metric)
        if not all(math.isfinite(v) for parts in evaluation.loss["raw"].values() for v in parts.values()):
            return False
        self.at.sums, self.at.counted = {}, 0
        for model in self.models:
            self._keep_best(evaluation, model, scores[model])
        self.at.metrics_length = self.folder.append(evaluation)
        self.evaluated = evaluation
        return True

    def _scores(self) -> dict[Model, Found]:
        """Scores of the raw and of the averaged model, where the average allows it in one pass over the data."""
        averaged = self.average
        models: dict[Model, Predict] = {"raw": self.algorithm.predict}
        if averaged and not averaged.follows_losses:
            models[self.models[-1]] = with_tensors(self.algorithm, averaged.average())
        with self.stop.at_once():
            scores = score_run(self.run, self.algorithm, models, self.at.step)
        if averaged is None or not averaged.follows_losses:
            return scores
        averaged.evaluated(fmean(scores["raw"][name]["holdout"].loss for name in self.run.sources))
        models = {self.models[-1]: with_tensors(self.algorithm, averaged.average())}
        return scores | score_run(self.run, self.algorithm, models, self.at.step)

    def _keep_best(self, evaluation: Evaluation, model: Model, found: Found) -> None:
        """Weights of the highest validation value; written before the checkpoint that knows of them."""
        value = evaluation.validation(self.run.sources, model)
        better = value > self.at.best.get(model, -1.0)
        if better:
            self.at.best[model] = value
            self._save_weights("best", model)
        if better or selected_weights(model) == "last":
            self.at.unseen[model] = unseen_metrics(self.run, found)

    def _save_weights(self, which: Which, model: Model) -> None:
        if keeps(self.spec, which, model):
            self._write_weights(self.folder.weights(which, model), model, model_only=self.spec.keep == "best")

    def _write_weights(self, path: Path, model: Model, *, model_only: bool) -> None:
        with self.average.applied_to(self.algorithm) if self.average and model != "raw" else nullcontext():
            checkpoint.save_weights(path, self.algorithm, model_only=model_only)

    def _snapshot(self) -> None:
        """Weights on the way, evenly spaced from the initial to the last, for paths on loss surfaces."""
        if self.spec.snapshots and self.at.step in _evenly(self.spec.steps, self.spec.snapshots):
            for model in self.models:
                path = self.folder.snapshot(self.at.step, model)
                path.parent.mkdir(exist_ok=True)
                self._write_weights(path, model, model_only=True)

    def _finish(self, diverged_at: int | None) -> RunRecord:
        if diverged_at is None:
            for model in self.models:
                self._save_weights("last", model)
        record = RunRecord(
            spec=self.spec,
            status="done" if diverged_at is None else "diverged",
            fgmix_version=fgmix.__version__,
            label=self.algorithm.label,
            domainbed_name=self.algorithm.domainbed_name,
            domains=self.run.dataset.domain_names,
            notes=self.run.dataset.notes,
            weights_matched=getattr(self.algorithm.featurizer, "weights_matched", None),
            gpu=gpu_of(self.device),
            classes=self.run.dataset.classes,
            unseen={model: self.at.unseen[model] for model in self.models if model in self.at.unseen},
            evaluations=self.folder.evaluations(),
            diverged_at=diverged_at,
            folder=self.folder.path,
        )
        record.write(self.folder.record)
        for path in self.folder.checkpoints:
            path.unlink(missing_ok=True)
        return record


def _evenly(total: int, count: int) -> set[int]:
    """`count` + 1 steps from 0 to `total`, evenly spaced."""
    return {round(i * total / count) for i in range(count + 1)}
