"""The only loop: `fit(spec)` takes data on disk to a finished, resumable run."""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import fgmix
from fgmix import checkpoint
from fgmix.algorithms import Algorithm, create
from fgmix.averaging import build_average
from fgmix.data import DomainDataset, LoadOptions, Split, load, split_dataset
from fgmix.data._dataset import fingerprint_of
from fgmix.data.loading import BatchSource
from fgmix.data.sampling import ClassAwareSampler, UniformSampler
from fgmix.errors import UserError
from fgmix.evaluation import Score, evaluating, score
from fgmix.networks import build_classifier, build_featurizer
from fgmix.progress import Progress as ProgressBar
from fgmix.records import Evaluation, Model, RunRecord, Scores
from fgmix.run_folder import RunFolder
from fgmix.seeding import seed_torch, torch_generator
from fgmix.spec import RunSpec, folder_name, identity, resolve

CHECK_EVERY = 10  # steps between looks at the loss: each look waits for the device


def fit(
    spec: RunSpec,
    out: str | Path = "runs",
    *,
    dataset: DomainDataset | None = None,
    device: str = "auto",
    progress: bool = True,
) -> RunRecord:
    """Train one run and return its record; a run that was killed goes on, a run that is done is read.

    Args:
        spec: what to run.
        out: the folder in which the run's own folder is made, named by the content of the spec.
        dataset: the dataset, if it is loaded already; else `spec.dataset` is.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        progress: show a progress bar.

    Example:
        >>> import tempfile, numpy as np
        >>> from fgmix.data import from_arrays
        >>> rng = np.random.default_rng(0)
        >>> y, d = np.arange(90) % 3, np.arange(90) // 30
        >>> data = from_arrays(rng.normal(size=(90, 4)) + y[:, None], y, d)
        >>> spec = RunSpec(dataset="arrays", algorithm="erm", test_domains=("2",), steps=20)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     fit(spec, out, dataset=data, progress=False).status
        'done'
    """
    run = prepare(spec, dataset, progress=progress)
    folder = RunFolder(Path(out) / run.name)
    with folder.opened(run.identity, run.spec.as_dict()):
        return folder.finished() or _Loop(run, folder, pick_device(device), progress).run_to_end()


@dataclass(frozen=True)
class PreparedRun:
    """A run whose every name and number is checked, before anything is trained."""

    spec: RunSpec
    dataset: DomainDataset
    splits: dict[str, Split]
    identity: dict[str, Any]

    @property
    def name(self) -> str:
        return folder_name(self.identity)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(name for name in self.dataset.domain_names if name not in self.spec.test_domains)


def load_dataset(spec: RunSpec, *, progress: bool = True) -> DomainDataset:
    """The dataset of a spec; what a user should know of it is printed."""
    root = Path(spec.data_root) if spec.data_root else None
    options = LoadOptions(root, spec.image_size, spec.trial_seed, spec.skip_unreadable, progress)
    dataset = load(spec.dataset, options)
    for note in dataset.notes if progress else ():
        print(f"note: {note}", file=sys.stderr)
    return dataset


def name_run(spec: RunSpec, dataset: DomainDataset) -> str:
    """The name of the folder that `fit` makes for a spec."""
    spec = resolve(spec, dataset)
    return folder_name(identity(spec, dataset, _file_digest(spec.weights) if spec.weights else None))


def prepare(spec: RunSpec, dataset: DomainDataset | None = None, *, progress: bool = True) -> PreparedRun:
    """Load the data, fill in the defaults, split the domains."""
    dataset = dataset or load_dataset(spec, progress=progress)
    spec = resolve(spec, dataset)
    weights = _file_digest(spec.weights) if spec.weights else None
    splits = split_dataset(dataset, spec.holdout_fraction, spec.trial_seed)
    return PreparedRun(spec, dataset, splits, identity(spec, dataset, weights))


def build_algorithm(run: PreparedRun) -> Algorithm:
    """The run's algorithm with its initial weights: the same for every algorithm with the same seed and network."""
    return new_algorithm(run.spec, run.dataset.input_shape, len(run.dataset.classes), len(run.sources))


def new_algorithm(spec: RunSpec, input_shape: tuple[int, ...], n_classes: int, n_domains: int) -> Algorithm:
    """The algorithm of a resolved spec for inputs of a shape, with its initial weights."""
    seed_torch("init", spec.seed)
    featurizer = build_featurizer(
        spec.backbone or "",
        input_shape,
        pretrained=bool(spec.pretrained),
        weights=spec.weights,
        dropout=spec.dropout,
        freeze_bn=spec.freeze_bn,
        channels_last=bool(spec.channels_last),
    )
    classifier = build_classifier(spec.head, featurizer.out_features, n_classes)
    return create(
        spec.algorithm,
        featurizer=featurizer,
        classifier=classifier,
        n_domains=n_domains,
        **{**spec.settings, "steps": spec.steps},
    )


def batch_source(run: PreparedRun) -> BatchSource:
    """The batches of the run's source domains."""
    spec = run.spec
    domains = tuple(run.dataset.domains[run.dataset.index(name)] for name in run.sources)
    pools = tuple(run.splits[domain.name].train for domain in domains)
    size = spec.batch_size or 1
    if spec.classes_per_batch is None:
        return BatchSource(domains, UniformSampler(spec.seed, pools, size), spec.seed)
    labels = tuple(domain.y for domain in domains)
    return BatchSource(domains, ClassAwareSampler(spec.seed, pools, labels, size, spec.classes_per_batch), spec.seed)


def pick_device(name: str) -> torch.device:
    """The named device; "auto" takes a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"Expected a device that torch can use here. Found {name!r}. Try auto or cpu.") from error
    return device


class _Loop:
    """One run in progress: algorithm, average, and where it stands."""

    def __init__(self, run: PreparedRun, folder: RunFolder, device: torch.device, show: bool) -> None:
        self.run, self.spec, self.folder, self.device, self.show = run, run.spec, folder, device, show
        self.algorithm = build_algorithm(run).to(device).train()
        self.average = build_average(self.spec, self.algorithm)
        self.models: tuple[Model, ...] = ("raw",) if self.spec.averaging == "none" else ("raw", self.spec.averaging)
        self.at = checkpoint.Progress()
        self.pending: list[Tensor] = []  # losses of the steps since the last look
        if folder.checkpoint.exists():
            self.at = checkpoint.load(folder.checkpoint, self.algorithm, self.average)
        folder.cut_metrics(self.at.metrics_length)

    @property
    def total(self) -> int:
        return self.spec.steps or 0

    def run_to_end(self) -> RunRecord:
        diverged_at = None
        source = batch_source(self.run)
        title = f"{self.spec.algorithm} {'+'.join(self.spec.test_domains) or 'on all domains'}"
        with (
            self.folder.session(self.at.step) as session,
            ProgressBar(title, self.total, done=self.at.step, show=self.show) as bar,
        ):
            self._snapshot()
            for batches in source.ahead(self.at.step, self.total):
                self._step(batches)
                diverged_at = self._look(bar)
                session["last_step"] = self.at.step
                if diverged_at:
                    break
                self._snapshot()
                evaluate = self._due(self.spec.eval_every) or self.at.step == self.total
                if evaluate and not self._evaluate():
                    diverged_at = self.at.step
                    break
                if evaluate or self._due(self.spec.checkpoint_every):
                    checkpoint.save(self.folder.checkpoint, self.algorithm, self.average, self.at)
        return self._finish(diverged_at)

    def _due(self, every: int | None) -> bool:
        return every is not None and self.at.step % every == 0

    def _step(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        moved = [(self._place(x), y.to(self.device, non_blocking=True)) for x, y in batches]
        seed_torch("step", self.spec.seed, self.at.step)
        with torch.autocast(self.device.type, torch.bfloat16) if self.spec.bf16 else nullcontext():
            metrics = self.algorithm.step(moved)
        self.at.step += 1
        self.at.counted += 1
        for name, value in metrics.items():
            self.at.sums[name] = self.at.sums.get(name, 0) + value.float()
        self.pending.append(metrics["loss"])
        if self.average:
            self.average.update(self.algorithm, self.at.step)

    def _place(self, x: Tensor) -> Tensor:
        x = x.to(self.device, non_blocking=True)
        return x.contiguous(memory_format=torch.channels_last) if self.spec.channels_last and x.ndim == 4 else x

    def _look(self, bar: ProgressBar) -> int | None:
        """Fetch the losses now and then: show the last one, and find the first that is not finite."""
        at_boundary = self._due(self.spec.eval_every) or self._due(self.spec.checkpoint_every)
        if not (self.at.step % CHECK_EVERY == 0 or at_boundary or self.at.step == self.total):
            bar.advance()
            return None
        losses = torch.stack(self.pending)
        self.pending.clear()
        bar.advance(note=f"loss {float(losses[-1]):.3f}{self._accuracy_note}")
        broken = (~torch.isfinite(losses)).nonzero()
        return self.at.step - len(losses) + int(broken[0]) + 1 if len(broken) else None

    @property
    def _accuracy_note(self) -> str:
        return f", holdout {100 * self.at.best['raw']:.1f} % at best" if "raw" in self.at.best else ""

    def _evaluate(self) -> bool:
        """Score the raw and the averaged model, keep the best weights of each, write the line.

        False, and nothing written, when a loss is not finite: the step before broke the weights.
        """
        scores: dict[Model, dict[str, dict[str, Score]]] = {"raw": self._scores()}
        if self.average:
            self.average.evaluated(fmean(scores["raw"][name]["holdout"].loss for name in self.run.sources))
            with self.average.applied_to(self.algorithm):
                scores[self.models[-1]] = self._scores()
        evaluation = Evaluation(
            step=self.at.step,
            accuracy={model: _pick(found, 0) for model, found in scores.items()},
            loss={model: _pick(found, 1) for model, found in scores.items()},
            metrics={name: float(value) / self.at.counted for name, value in self.at.sums.items()},
        )
        if not all(math.isfinite(v) for parts in evaluation.loss["raw"].values() for v in parts.values()):
            return False
        self.at.sums, self.at.counted = {}, 0
        for model in self.models:
            self._keep_best(evaluation, model)
        self.at.metrics_length = self.folder.append(evaluation)
        return True

    def _scores(self) -> dict[str, dict[str, Score]]:
        """Source holdouts, both parts of the test domains, and the sources' training parts on request."""
        found: dict[str, dict[str, Score]] = {}
        with evaluating(self.algorithm):
            for name, split in self.run.splits.items():
                parts = {"train": split.train, "holdout": split.holdout}
                is_source = name in self.run.sources
                if is_source and not self.spec.evaluate_train:
                    del parts["train"]
                domain = self.run.dataset.domains[self.run.dataset.index(name)]
                augment = is_source and self.spec.protocol == "domainbed"
                found[name] = {
                    part: score(
                        self.algorithm,
                        domain,
                        indices,
                        generator=torch_generator("evaluate", self.spec.seed, name, part, self.at.step)
                        if augment
                        else None,
                    )
                    for part, indices in parts.items()
                }
        return found

    def _keep_best(self, evaluation: Evaluation, model: Model) -> None:
        """Weights of the highest validation accuracy; written before the checkpoint that knows of them."""
        value = evaluation.validation(self.run.sources, model)
        if value > self.at.best.get(model, -1.0):
            self.at.best[model] = value
            self._save_weights("best", model)

    def _save_weights(self, which: str, model: Model, *, model_only: bool = False) -> None:
        path = self.folder.path / (f"{which}.pt" if model == "raw" else f"{which}_{model}.pt")
        with self.average.applied_to(self.algorithm) if self.average and model != "raw" else nullcontext():
            checkpoint.save_weights(path, self.algorithm, model_only=model_only)

    def _snapshot(self) -> None:
        """Weights on the way, evenly spaced from the initial to the last, for paths on loss surfaces."""
        if self.spec.snapshots and self.at.step in _evenly(self.total, self.spec.snapshots):
            (self.folder.path / "snapshots").mkdir(exist_ok=True)
            for model in self.models:
                self._save_weights(f"snapshots/{self.at.step:07d}", model, model_only=True)

    def _finish(self, diverged_at: int | None) -> RunRecord:
        if diverged_at is None:
            for model in self.models:
                self._save_weights("last", model)
        record = RunRecord(
            spec=self.spec,
            status="done" if diverged_at is None else "diverged",
            fgmix_version=fgmix.__version__,
            dataset=self.run.dataset.name,
            data_fingerprint=self.run.dataset.fingerprint,
            domains=self.run.dataset.domain_names,
            evaluations=self.folder.evaluations(),
            diverged_at=diverged_at,
            folder=self.folder.path,
        )
        record.write(self.folder.record)
        self.folder.checkpoint.unlink(missing_ok=True)
        return record


def _pick(found: dict[str, dict[str, Score]], which: int) -> Scores:
    return {name: {part: value[which] for part, value in parts.items()} for name, parts in found.items()}


def _evenly(total: int, count: int) -> set[int]:
    """`count` + 1 steps from 0 to `total`, evenly spaced."""
    return {round(i * total / count) for i in range(count + 1)}


@lru_cache(maxsize=8)  # a sweep names thousands of runs that share one file
def _file_digest(path: str) -> str:
    try:
        return fingerprint_of([Path(path).read_bytes()])
    except OSError as error:
        raise UserError(f"Expected a weights file at {path}. It cannot be read ({error.strerror}).") from error
