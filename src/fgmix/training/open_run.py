"""Finished runs, reopened: their data, and their weights at every step that was kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from msgspec import structs
from torch import Tensor, nn

from fgmix.algorithms import Algorithm
from fgmix.data import Domain, DomainDataset
from fgmix.data.dataset import Indices
from fgmix.errors import UserError, bad_value
from fgmix.records.digests import Damaged
from fgmix.records.evaluations import Model
from fgmix.records.files import check_path
from fgmix.records.rows import label_arm, label_model
from fgmix.records.schema import RunRecord, Which, selected_weights
from fgmix.records.store import SNAPSHOTS, RunFolder, read_record
from fgmix.seeding import numpy_generator
from fgmix.training.devices import pick_device
from fgmix.training.loop import train_prepared
from fgmix.training.prepare import PreparedRun, load_dataset, new_algorithm, prepare_data
from fgmix.training.state import list_snapshot_steps, load_weights

PartName = Literal["train", "holdout"]


class Predictor(Protocol):
    """A featurizer and a classifier, trained in any way."""

    featurizer: nn.Module
    classifier: nn.Module


def find_device(predictor: Predictor) -> torch.device:
    """Return the device of a predictor, whose classifier may have buffers alone."""
    h = predictor.classifier
    return next(chain(h.parameters(), h.buffers())).device


@dataclass(frozen=True)
class Sample:
    """A subset of the samples of some domains, domain by domain."""

    domains: tuple[Domain, ...]
    ids: tuple[int, ...]  # their numbers in the dataset
    indices: tuple[Indices, ...]  # which samples of each

    def __len__(self) -> int:
        return sum(map(len, self.indices))

    @property
    def y(self) -> Tensor:
        """Classes (N,)."""
        return torch.cat([torch.from_numpy(d.y[indices]) for d, indices in zip(self.domains, self.indices)])

    @property
    def domain(self) -> Tensor:
        """Numbers of the domains (N,)."""
        return torch.cat([torch.full((len(indices),), i) for i, indices in zip(self.ids, self.indices)])

    def inputs(self, batch_size: int = 256) -> Iterator[Tensor]:
        """Yield the samples without augmentation, in batches."""
        for domain, indices in zip(self.domains, self.indices):
            for start in range(0, len(indices), batch_size):
                yield domain.inputs.clean(indices[start : start + batch_size])

    def codes(self, algorithm: Predictor) -> Tensor:
        """Compute z = g_θ(x) of all samples (N, d)."""
        device = find_device(algorithm)
        with torch.no_grad():
            return torch.cat([algorithm.featurizer(x.to(device)).float() for x in self.inputs()])


@dataclass(frozen=True)
class OpenedRun:
    """A finished run with its data."""

    record: RunRecord
    prepared: PreparedRun  # its spec, dataset and splits
    dataset: DomainDataset  # as loaded, for opening other runs: the prepared one may be features, standardised for this
    folder: Path
    device: torch.device  # of its models

    @property
    def files(self) -> RunFolder:
        return RunFolder(self.folder)

    @property
    def sources(self) -> tuple[str, ...]:
        return self.prepared.sources

    @property
    def test_domains(self) -> tuple[str, ...]:
        return self.record.spec.test_domains

    def label(self, model: Model = "raw") -> str:
        """Return the algorithm's label in tables, with its arm."""
        return label_model(label_arm(self.record.label, self.record.spec.arm), model)

    def algorithm(self, which: Which = "last", model: Model = "raw") -> Algorithm:
        """Build the algorithm with its weights after the last or at the selected step, in evaluation mode."""
        return self.at(self.files.weights(which, model))

    def at(self, path: Path) -> Algorithm:
        """Build the algorithm with the weights of a file of the run, in evaluation mode."""
        if not path.exists():
            kept = ", ".join(sorted(file.stem for file in path.parent.glob("*.pt"))) or "none"
            option = f"--snapshots {self.record.spec.snapshots}" if self.files.is_snapshot(path) else "--keep all"
            raise UserError(
                f"Expected the weights {path.stem} in {path.parent}. It keeps {kept}. Train the run in another folder "
                f"with {option}."
            )
        run = self.prepared
        # Pre-trained weights are loaded only below adapters: else every weight comes from the file.
        blank = not run.spec.lora
        algorithm = new_algorithm(run.spec, run.dataset.classes, run.sources, blank=blank)
        model_only = self.files.is_snapshot(path) or run.spec.keep == "best"
        try:
            load_weights(path, algorithm, model_only=model_only)
        except Damaged as error:
            raise Damaged(f"{error} Delete {self.folder} and train the run again.") from error
        return algorithm.to(self.device).eval()

    def initial(self) -> Algorithm:
        """Build the algorithm with its initial weights, in evaluation mode: from a snapshot, or initialised again."""
        if (snapshot := self.files.snapshot(0)).exists():
            return self.at(snapshot)
        run = self.prepared
        return new_algorithm(run.spec, run.dataset.classes, run.sources).to(self.device).eval()

    def path(self, model: Model = "raw") -> Iterator[tuple[int, Algorithm]]:
        """Yield the algorithm at the steps of the snapshots; without any, before the first and after the last step."""
        spec = self.record.spec
        steps = list_snapshot_steps(spec, (self.record.diverged_at or spec.steps + 1) - 1)
        if steps and (self.folder / SNAPSHOTS).exists():
            for step in steps:
                yield step, self.at(self.files.snapshot(step, model))
        else:
            yield 0, self.initial()
            yield spec.steps, self.algorithm("last", model)

    def sample(self, names: Sequence[str], part: PartName = "train", limit: int | None = None, seed: int = 0) -> Sample:
        """Return samples of a part of the named domains, at most `limit` of each, drawn without replacement."""
        return draw_sample(self.prepared, names, part, limit, seed)


def draw_sample(
    run: PreparedRun, names: Sequence[str], part: PartName = "train", limit: int | None = None, seed: int = 0
) -> Sample:
    """Return samples of a part of the named domains, at most `limit` of each, drawn without replacement."""
    ids = tuple(map(run.dataset.index, names))
    indices = []
    for name in names:
        pool: Indices = getattr(run.splits[name], part)
        if limit is not None and limit < len(pool):
            pool = numpy_generator("sample", seed, name, part).choice(pool, limit, replace=False)
        indices.append(pool)
    return Sample(tuple(run.dataset.domains[i] for i in ids), ids, tuple(indices))


def load_algorithm(
    record: RunRecord, model: Model = "raw", *, dataset: DomainDataset | str | None = None, device: str = "cpu"
) -> Algorithm:
    """Load the trained algorithm of a run in evaluation mode, with the weights that validation selects.

    Args:
        record: the run's, as `train` and `read_record` return it.
        model: "raw", or the averaged "swa" or "swad".
        dataset: the dataset, or its new location; None for its location during the run.
        device: as in `train`.
    """
    given: object = record
    if not isinstance(given, RunRecord):
        raise bad_value("record", "a RunRecord, as `fgmix.read_record` returns it", given)
    if record.folder is None:
        raise UserError(
            "Expected a record of a run's folder, which holds the weights. Found one without a folder. Read it with "
            "`read_record(folder)`."
        )
    record.require(model)
    run = open_run(record.folder, dataset=dataset, device=device, progress=False)
    return run.algorithm(selected_weights(model), model)


def open_run(
    folder: str | Path,
    *,
    dataset: DomainDataset | str | None = None,
    data_root: str | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> OpenedRun:
    """Open a finished run; the data must be what it was trained on.

    Args:
        folder: the run's folder.
        dataset: the dataset, or its new location; None for its location during the run.
        data_root: the folder of the datasets, if it has moved.
        device: "auto", "cpu", "cuda", …
        progress: show a progress bar while the dataset is decoded.
    """
    folder = check_path("folder", folder)
    record = read_record(folder)
    spec = record.spec
    if not isinstance(dataset, DomainDataset | str | Path | None):
        raise bad_value("dataset", "a DomainDataset, a name or a path", type(dataset).__name__)
    if not isinstance(dataset, DomainDataset):
        moved = structs.replace(spec, dataset=dataset or spec.dataset, data_root=data_root or spec.data_root)
        dataset = load_dataset(moved, progress=progress)
    if dataset.fingerprint != record.data_fingerprint:
        raise UserError(
            f"Expected the data that {folder.name} was trained on ({record.data_fingerprint}). Found other data "
            f"({dataset.fingerprint}). Name the right dataset with --dataset."
        )
    prepared = prepare_data(spec, dataset, device=device, progress=progress)
    return OpenedRun(record, prepared, dataset, folder, pick_device(device))


def train_and_open(run: PreparedRun, out: Path, dataset: DomainDataset, *, device: str, **how: Any) -> OpenedRun:
    """Train a run, or read it if it is finished, and open it with the data that were prepared for training.

    `how` are arguments of `train_prepared`. A run that diverged is an error.
    """
    record = train_prepared(run, out, device=device, **how)
    if record.status == "diverged":
        raise UserError(
            f"Training diverged at step {record.diverged_at} of {run.spec.name}: its loss was not finite. Lower the "
            "learning rate, the setting `lr` of a method; among recipes, leave this one out."
        )
    folder = out / run.spec.name
    return OpenedRun(record, replace(run, spec=record.spec), dataset, folder, pick_device(device))


def check_alike(first: OpenedRun, second: OpenedRun, names: Sequence[str], reason: str) -> None:
    """Raise an error if two runs differ in their data or in the named fields of their specs.

    The error says what equal fields make sure: "Runs with the same {name} {reason}; these have … and …"
    """
    for name in names:
        values = [getattr(run.record.spec, name) for run in (first, second)]
        if values[0] != values[1]:
            found = " and ".join("+".join(value) if isinstance(value, tuple) else str(value) for value in values)
            raise UserError(f"Runs with the same {name} {reason}; these have {found}. Name runs that agree in it.")
    if first.record.data_fingerprint != second.record.data_fingerprint:
        raise UserError("Expected runs on the same data. Found different data. Compare runs of one dataset.")
