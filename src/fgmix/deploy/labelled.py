"""Labelled data for a finished model: loaded and prepared as its training data were."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from msgspec import structs

from fgmix.data import ArrayInputs, Domain, DomainDataset, load
from fgmix.data.augment import ImageInputs
from fgmix.data.dataset import Indices
from fgmix.data.folders import list_some
from fgmix.data.image_cache import CachedImages
from fgmix.data.images import Change
from fgmix.data.tables import is_table, load_table
from fgmix.deploy.model import Model, Predictions
from fgmix.errors import UserError
from fgmix.records.evaluations import Metric
from fgmix.records.files import as_path
from fgmix.records.metrics import metrics
from fgmix.training.prepare import choose_load_options


@dataclass(frozen=True)
class LabelledDomain:
    """Predictions for one domain, with labels."""

    name: str
    y: Indices  # indices of the model's classes
    predicted: Predictions
    groups: Indices | None = None  # such as patients, whose samples depend on each other

    @property
    def correct(self) -> Indices:
        """1 where the most probable class is the label, else 0."""
        hits: Indices = (self.predicted.probabilities.argmax(axis=1) == self.y).astype(np.int64)
        return hits

    def measure(self, metric: Metric) -> float:
        """Compute a metric of the predictions."""
        p = self.predicted.probabilities.astype(np.float64)
        return metrics(self.y, p.argmax(axis=1), p).value(metric)


def load_for(model: Model, data: str | Path, *, progress: bool = True) -> DomainDataset:
    """Load labelled data for a model: images in its size and window, tables in its columns. One domain is enough."""
    info = model.info
    if info.columns and is_table(path := as_path(str(data))):
        return load_table(path, columns=info.columns)
    options = choose_load_options(structs.replace(info.spec, dataset=str(data)), progress=progress)
    dataset = load(str(data), replace(options, fewest=1))
    if dataset.kind != info.kind or dataset.input_shape != info.input_shape:
        raise UserError(
            f"Expected {info.kind} of shape {info.input_shape} for the model of {info.dataset}. Found {dataset.kind} "
            f"of shape {dataset.input_shape} in {data}. Prepare them as the training data were."
        )
    return dataset


def count_lost(dataset: DomainDataset) -> int:
    """Count the grey images that lie outside the window in which they are shown, black or white throughout."""
    lost = 0
    for domain in dataset.domains:
        inputs = domain.inputs
        if isinstance(inputs, ImageInputs) and isinstance(inputs.images, CachedImages):
            lost += int(np.count_nonzero(inputs.images.changes[inputs.rows] & Change.LOST))
    return lost


def predict_labelled(model: Model, dataset: DomainDataset) -> list[LabelledDomain]:
    """Predict all domains of a dataset; labels are matched with the model's classes by name."""
    names = model.info.classes
    if lacking := [name for name in dataset.classes if name not in names]:
        raise UserError(
            f"Expected classes of the model ({list_some(names)}). Found {list_some(lacking)} in {dataset.name}. "
            "Correct the labels, leave these samples out, or fit a model with these classes."
        )
    numbers = np.array([names.index(name) for name in dataset.classes])
    return [
        LabelledDomain(each.name, numbers[each.y], predict_domain(model, each), each.groups) for each in dataset.domains
    ]


def predict_domain(model: Model, domain: Domain, places: Indices | None = None) -> Predictions:
    """Predict samples of a domain, by default all."""
    places = np.arange(len(domain)) if places is None else places
    inputs = domain.inputs
    if isinstance(inputs, ImageInputs):
        return model.predict_inputs(replace(inputs, rows=inputs.rows[places]).normalise(model.normalisation))
    if isinstance(inputs, ArrayInputs):
        return model.predict(inputs.x[places])  # in their own precision, which the model checks and converts
    raise AssertionError("a loaded dataset has images or arrays")
