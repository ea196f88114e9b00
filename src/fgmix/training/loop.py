"""The training loop: `train(spec)` takes data on disk to a finished, resumable run.

A run trains all its steps: there is no early stopping, and steps are selected afterwards from the evaluations in the
record. Learning rates are a function of the step (`Algorithm.step`). Checkpoints, resuming and the weights that a run
keeps are in `state`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any, NoReturn

import msgspec
import torch
from msgspec import structs
from torch import Tensor

import fgmix
from fgmix.algorithms import Algorithm, Batches
from fgmix.data import DomainDataset
from fgmix.data.loading import deliver
from fgmix.errors import bad_value
from fgmix.progress import Progress
from fgmix.records.evaluations import Evaluation, Evaluations, Metrics, Model, make_evaluation
from fgmix.records.files import check_path
from fgmix.records.metrics import metrics, name_part
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import ResolvedSpec, RunRecord, RunSpec, Unseen, keeps, selected_weights
from fgmix.records.store import RunFolder, describe_older, is_other_code, read_record, write_record
from fgmix.seeding import seed_torch
from fgmix.terminal import print_notes
from fgmix.training.devices import (
    autocast,
    describe_environment,
    describe_gpu,
    deterministic_operations,
    pick_device,
)
from fgmix.training.evaluate import (
    DomainScores,
    Outputs,
    Start,
    bind_weights,
    score_run,
)
from fgmix.training.memory import keep_freed_memory
from fgmix.training.prepare import (
    PreparedRun,
    build_algorithm,
    build_average,
    build_source,
    describe_code,
    prepare,
    warm_up,
)
from fgmix.training.resolve import list_notes
from fgmix.training.signals import Stop, Stopped, stop_on_signal
from fgmix.training.state import is_measured, list_models, list_snapshot_steps, resume, save_checkpoint, save_weights
from fgmix.training.text import embed_texts
from fgmix.training.trunk import build_trunk, check_trunk, describe_trunk, load_trunk, locate_trunk

OnEvaluation = Callable[[ResolvedSpec, Evaluation], None]
CHECK_EVERY = 10  # steps between checks of the loss: each check waits for the device


def train(
    spec: RunSpec,
    out: str | Path = "runs",
    *,
    dataset: DomainDataset | None = None,
    device: str = "auto",
    progress: bool | Progress = True,
    trunk: int = 0,
    on_evaluation: OnEvaluation | None = None,
    accept_code: bool = False,
) -> RunRecord:
    """Train one run and return its record; an interrupted run resumes, a finished one is read.

    A run that is interrupted by SIGTERM or SIGUSR1 writes a checkpoint first and raises `signals.Stopped`.

    Args:
        spec: what to run.
        out: the folder in which the run's own folder is made, named by the content of the spec.
        dataset: the dataset, if it is loaded already; else `spec.dataset` is.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        progress: show a progress bar; or a bar of the caller's, for several runs.
        trunk: how many first steps to share with other runs in `out` (see `training.trunk`); the record is the same.
            At most as many as the algorithm trains exactly as ERM does.
        on_evaluation: called with the resolved spec and every new evaluation, once its line and a checkpoint are
            written: the record does not depend on it. An exception that it raises ends the training and is passed on;
            the same call resumes behind that evaluation.
        accept_code: resume or read a run of other code of the method; otherwise the first is an error, the second
            prints a note.

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
    runs = check_path("out", out)
    run = prepare(spec, dataset, device=device, progress=progress)
    if progress is True:
        print_notes(*list_notes(spec, run.spec))
    how: dict[str, Any] = {"trunk": trunk, "on_evaluation": on_evaluation, "accept_code": accept_code}
    return train_prepared(run, runs, device=device, progress=progress, **how)


def train_prepared(
    run: PreparedRun,
    out: Path,
    *,
    device: str = "auto",
    progress: bool | Progress = True,
    trunk: int = 0,
    on_evaluation: OnEvaluation | None = None,
    accept_code: bool = False,
    on_start: Callable[[Algorithm], None] | None = None,
) -> RunRecord:
    """Train a run whose data are prepared; the arguments are those of `train`.

    `on_start` is called with the algorithm as it enters the first step of this process, resumed if there was one.
    """
    if trunk != 0:
        check_trunk(run.spec, trunk)
    keep_freed_memory()
    environment, code = describe_environment(), describe_code(run.spec)
    folder = RunFolder(out / run.spec.name)
    with folder.hold():
        spec = folder.enter(run.spec, environment, code, accept_code=accept_code)
        run = replace(run, spec=spec)
        if folder.is_done:
            record = read_record(folder.path)
            if is_other_code(record.code, code) and not accept_code:
                print_notes(describe_older(1, spec.algorithm, folder.path))
            return record
        algorithm = initialise(build_algorithm(run), run, pick_device(device), progress)
        operations = deterministic_operations() if spec.deterministic else nullcontext()
        with operations, stop_on_signal() as stop:
            loop = _Loop(run, folder, algorithm, progress, stop, on_evaluation)
            if trunk and loop.state.step == 0:
                loop.start_from_trunk(trunk)
            if on_start:
                on_start(algorithm)
            with folder.session(loop.state):
                diverged_at = loop.run_until(spec.steps)
            return loop.finish(diverged_at)


def initialise(algorithm: Algorithm, run: PreparedRun, device: torch.device, show: bool | Progress) -> Algorithm:
    """Move a new algorithm to its device, compile and warm it up if the spec says so."""
    algorithm = algorithm.to(device)
    if run.spec.compile:
        algorithm.featurizer.compile()  # the names of its tensors do not change
    if run.spec.warmup_head:
        warm_up(algorithm, run, progress=show)
    return algorithm.train()


def take_step(algorithm: Algorithm, spec: ResolvedSpec, step: int, batches: Batches) -> dict[str, Tensor]:
    """Take the step of a number, with its own random numbers, in the precision of the spec."""
    seed_torch("step", spec.seed, step)
    with autocast(spec.precision, batches[0][0].device):
        return algorithm.step(batches)


class _Loop:
    """One run in progress."""

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
        self.written: Future[None] = Future()  # the last checkpoint, once the disk has it
        self.written.set_result(None)
        self.new_evaluation: Evaluation | None = None  # of this step, until the caller is notified
        self.device = next(algorithm.parameters()).device
        self.algorithm = algorithm
        self.average = None if self.spec.averaging == "none" else build_average(self.spec, self.algorithm)
        self.models = list_models(self.spec)
        self.snapshot_steps = {*list_snapshot_steps(self.spec, self.spec.steps)} if self.spec.snapshots else set()
        self.pending: list[Tensor] = []  # losses of the steps since the last check
        self.saved_at = monotonic()
        self.state, self.evaluations = resume(folder, self.spec, self.algorithm, self.average)
        evaluations = PROTOCOLS[run.spec.protocol].evaluations
        self.evaluation_steps = set(evaluations(run.spec.eval_every, run.spec.steps))

    def start_from_trunk(self, steps: int) -> None:
        """Take over the first steps from the trunk beside this run; train it if nobody has."""
        folder = locate_trunk(self.spec, steps, self.folder.path.parent)
        with folder.hold():
            folder.enter(describe_trunk(self.spec), describe_environment())
            erm = build_trunk(build_algorithm(self.run), self.spec)
            algorithm = initialise(erm, self.run, self.device, self.show)
            run = replace(self.run, spec=structs.replace(self.spec, keep="all"))
            trunk = _Loop(run, folder, algorithm, self.show, self.stop)
            with folder.session(trunk.state):
                diverged_at = trunk.run_until(steps)
            if diverged_at is not None:
                return  # the run finds out by itself
        self.state, self.evaluations = load_trunk(folder, self.folder, self.spec, self.algorithm, self.average)
        save_checkpoint(self.folder.checkpoints, self.algorithm, self.average, self.state)()

    def run_until(self, last: int) -> int | None:
        """Train up to step `last`; returns the first step whose loss was not finite, if there is one."""
        title = f"{self.spec.algorithm} {'+'.join(self.spec.test_domains) or 'on all domains'}"
        progress = Progress(title, last, "steps", done=self.state.step, show=self.show)
        with progress as bar, ThreadPoolExecutor(1) as self.writer:
            if self.state.step in self.snapshot_steps:
                self._save_snapshot()
            if self._evaluation_due:  # the run was stopped before it
                if not self._evaluate(bar):
                    return self.state.step
                self._save()
            source = build_source(self.run)
            steps, layout = range(self.state.step, last), self.spec.channels_last
            threads = source.workers if self.device.type == "cpu" else None
            for batches in deliver(source.prepare, steps, device=self.device, workers=threads, channels_last=layout):
                self._step(batches)
                stopping = self.stop.reason  # read once: it may be set at any moment
                saving = bool(stopping) or self._checkpoint_due or self.state.step == last
                diverged_at = self._check_losses(bar, saving)
                if diverged_at:
                    return diverged_at
                if self.state.step in self.snapshot_steps:
                    self._save_snapshot()
                if stopping:
                    self._save_and_stop()
                if self._evaluation_due and not self._evaluate(bar):
                    return self.state.step
                if saving:
                    self._save()
            self.written.result()
        return None

    def _save(self) -> None:
        """Write a checkpoint; once it is whole, call the caller's function if there is a new evaluation."""
        self.written.result()  # raises the error if the one before failed
        put = save_checkpoint(self.folder.checkpoints, self.algorithm, self.average, self.state)
        self.written = self.writer.submit(put)
        self.saved_at = monotonic()
        evaluation, self.new_evaluation = self.new_evaluation, None
        if self.on_evaluation and evaluation:
            self.written.result()
            self.on_evaluation(self.spec, deepcopy(evaluation))

    def _save_snapshot(self) -> None:
        """Save the weights of each model after this step."""
        for model in self.models:
            path = self.folder.snapshot(self.state.step, model)
            path.parent.mkdir(exist_ok=True)
            save_weights(path, self.algorithm, None if model == "raw" else self.average, model_only=True)

    def _save_weights(self, path: Path, model: Model) -> None:
        """Save the best or the last weights of a model."""
        average, only = None if model == "raw" else self.average, self.spec.keep == "best"
        save_weights(path, self.algorithm, average, model_only=only)

    def _save_and_stop(self) -> NoReturn:
        self._save()
        self.written.result()
        raise Stopped(
            f"Stopped by {self.stop.reason} after step {self.state.step:,} of {self.spec.steps:,}, with a checkpoint "
            f"in {self.folder.path}. Rerun the same command to resume."
        )

    @property
    def _evaluation_due(self) -> bool:
        """Whether this step is evaluated and has not been yet: an evaluation empties the sums."""
        return self.state.step in self.evaluation_steps and bool(self.state.counted)

    @property
    def _checkpoint_due(self) -> bool:
        """Whether a checkpoint is due, by step count or elapsed time. Checkpoints do not affect the record."""
        every, minutes = self.spec.checkpoint_every, self.spec.checkpoint_minutes
        by_step = self.state.step in self.evaluation_steps or (every > 0 and self.state.step % every == 0)
        return by_step or (minutes > 0 and monotonic() - self.saved_at >= 60 * minutes)

    def _step(self, batches: Batches) -> None:
        self.algorithm.measures = is_measured(self.state.step + 1, self.evaluation_steps)
        metrics = take_step(self.algorithm, self.spec, self.state.step, batches)
        self.state.step += 1
        self.state.add(metrics)
        self.pending.append(metrics["loss"])
        if self.average:
            self.average.update(self.state.step)

    def _check_losses(self, bar: Progress, saving: bool) -> int | None:
        """Fetch the losses now and then, and before they are lost to a checkpoint.

        Shows the last one, and returns the first step whose loss is not finite.
        """
        if not saving and self.state.step % CHECK_EVERY:
            bar.advance()
            return None
        losses = torch.stack(self.pending)
        self.pending.clear()
        best = f", validation {100 * self.state.best['raw']:.1f} % at best" if "raw" in self.state.best else ""
        bar.advance(note=f"loss {float(losses[-1]):.3f}{best}")
        broken = (~torch.isfinite(losses)).nonzero()
        return self.state.step - len(losses) + int(broken[0]) + 1 if len(broken) else None

    def _evaluate(self, bar: Progress) -> bool:
        """Score the raw and the averaged model, keep the best weights of each, write the line.

        Returns False, and writes nothing, when a loss is not finite: the step before broke the weights.
        """
        bar.advance(0, f"evaluating after step {self.state.step:,}")
        means = self.state.average_metrics()
        try:
            scores = self._score_models()
        except Stopped:
            self._save_and_stop()
        evaluation = make_evaluation(scores, self.state.step, means, self.spec.metric)
        if not all(math.isfinite(v) for parts in evaluation.loss["raw"].values() for v in parts.values()):
            return False
        self.state.sums, self.state.counted = {}, {}
        self.state.metrics_length = self.folder.append(evaluation)
        self.evaluations.append(evaluation)
        for model in self.models:
            value = evaluation.validation(self.run.sources, model)
            better = value > self.state.best.get(model, -1.0)
            if better or selected_weights(model) == "last":
                tests = {name: scores[model][name]["train"].outputs for name in self.spec.test_domains}
                unseen = {name: metrics(*tests[name]) for name in self.run.dataset.domain_names if name in tests}
                for name, outputs in tests.items() if self.run.listed else ():
                    unseen |= self._score_lists(name, outputs)
                self.state.unseen[model] = msgspec.to_builtins(unseen)
            if better:
                self.state.best[model] = value
                if keeps(self.spec, "best", model):  # written before the checkpoint that refers to them
                    self._save_weights(self.folder.weights("best", model), model)
        self.new_evaluation = evaluation
        return True

    def _score_lists(self, domain: str, outputs: Outputs) -> dict[str, Metrics]:
        """Compute the metrics on the images of a test domain that are in lists, by the name of that part."""
        scored = self.run.splits[domain].train
        masks = {name: of_domains[domain][scored] for name, of_domains in self.run.listed.items()}
        return {
            name_part(domain, name): metrics(
                outputs.y[mask], outputs.guesses[mask], outputs.probabilities[mask[: len(outputs.probabilities)]]
            )
            for name, mask in masks.items()
            if mask.any()
        }

    def _score_models(self) -> dict[Model, DomainScores]:
        """Score the raw and, once it differs, the averaged model.

        They share one pass over the data unless the average waits for the raw losses or the method adapts, which needs
        the averaged weights in place.
        """
        averaged, algorithm = self.average, self.algorithm
        start: Start = algorithm.start_test if algorithm.adapts_at_test else lambda: algorithm.predict
        together = averaged is not None and not (averaged.follows_losses or self.algorithm.adapts_at_test)
        models: dict[Model, Start] = {"raw": start}
        if averaged and together and not averaged.is_raw:
            models[self.models[-1]] = partial(bind_weights, self.algorithm, averaged.average())
        with self.stop.at_once():
            scores = score_run(self.run, self.algorithm, models, self.state.step)
        if averaged and averaged.is_raw:
            return dict.fromkeys(self.models, scores["raw"])
        if averaged is None or together:
            return scores
        averaged.add_loss(fmean(scores["raw"][name]["holdout"].loss for name in self.run.sources))
        with averaged.applied_to(self.algorithm):
            return scores | score_run(self.run, self.algorithm, {self.models[-1]: start}, self.state.step)

    def finish(self, diverged_at: int | None) -> RunRecord:
        """Save the last weights, write the record and remove the checkpoints."""
        if diverged_at is None:
            for model in self.models:
                if keeps(self.spec, "last", model):
                    self._save_weights(self.folder.weights("last", model), model)
        gpu = describe_gpu(self.device)
        notes = self._review() if diverged_at is None else []
        unseen = {model: self.state.unseen[model] for model in self.models if model in self.state.unseen}
        record = RunRecord(
            spec=self.spec,
            status="done" if diverged_at is None else "diverged",
            fgmix_version=fgmix.__version__,
            label=self.algorithm.label,
            domainbed_name=self.algorithm.domainbed_name,
            cost=self.algorithm.cost,
            domains=self.run.dataset.domain_names,
            notes=(*self.run.dataset.notes, *notes),
            weights_matched=getattr(self.algorithm.featurizer, "weights_matched", None),
            gpu=gpu,
            text_digest=embed_texts(self.spec).digest if self.spec.texts else "",
            code=self.folder.code,
            classes=self.run.dataset.classes,
            unseen=msgspec.convert(unseen, Unseen),
            evaluations=Evaluations(self.evaluations),
            diverged_at=diverged_at,
            folder=self.folder.path,
        )
        write_record(record, self.folder.record)
        for path in self.folder.checkpoints:
            path.unlink(missing_ok=True)
        return record

    def _review(self) -> list[str]:
        """Return the method's notes on the finished run, printed unless the caller shows its own progress."""
        sums: dict[str, float] = {}
        for evaluation, before in zip(self.evaluations, (0, *(e.step for e in self.evaluations))):
            for name, value in evaluation.metrics.items():
                sums[name] = sums.get(name, 0.0) + value * (evaluation.step - before)
        means = {name: total / self.spec.steps for name, total in sums.items()}
        notes = self.algorithm.review(self.algorithm.config, means)
        if self.show is True:
            print_notes(*notes)
        return notes
