"""Predictions of a run for the domain it held out, with their novelty and that of noise."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fgmix.algorithms import Algorithm
from fgmix.data.dataset import Indices
from fgmix.deploy.noise import noise_for
from fgmix.deploy.novelty import Familiar, fit_familiar
from fgmix.records.evaluations import Model
from fgmix.records.metrics import Floats
from fgmix.records.schema import RunRecord, Which, selected_weights
from fgmix.training.open_run import OpenedRun, Sample

CODES = 2000  # codes of each domain that `Familiar` is fitted to: more hardly change it and need memory
NOISE, BATCH = 200, 64  # noise samples that novelty is tested on, and their batch size


@dataclass(frozen=True)
class HeldOut:
    """Predictions for one domain by a network that was not trained on it.

    Args:
        domain: its name.
        logits: (n, C) of all of its samples.
        novelty: both parts of it (n, 2), see `Familiar.parts`.
        y: labels.
        in_domain_accuracy: of the same network on held-out samples of its source domains.
        noise: both parts of the novelty of noise, (m, 2).
    """

    domain: str
    logits: Floats
    novelty: Floats
    y: Indices
    in_domain_accuracy: float
    noise: Floats = field(default_factory=lambda: np.zeros((0, 2)))

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.logits.argmax(axis=1) == self.y
        return found


def selected(record: RunRecord) -> tuple[Which, Model]:
    """The selected weights of a run: averaged if it averages; at the selected step, or SWAD's own average."""
    model = record.models[-1]
    return selected_weights(model), model


def hold_out(run: OpenedRun, noise: Tensor | None = None) -> HeldOut:
    """Predict the domain that a finished run held out.

    Args:
        run: the run.
        noise: for a run on a frozen backbone, features of noise images (`noise_features`).
    """
    which, model = selected(run.record)
    algorithm = run.algorithm(which, model)
    familiar = familiar_to(run, algorithm)
    (domain,) = run.test_domains
    parts = [run.sample([domain], part) for part in ("train", "holdout")]
    found = [_predict(algorithm, familiar, x) for part in parts for x in part.inputs()]
    return HeldOut(
        domain=domain,
        logits=np.concatenate([logits for logits, _ in found]),
        novelty=np.concatenate([novelty for _, novelty in found]),
        y=np.concatenate([part.y.numpy() for part in parts]),
        in_domain_accuracy=in_domain_accuracy(run),
        noise=np.concatenate([_predict(algorithm, familiar, x)[1] for x in noise_for(run, NOISE, noise).split(BATCH)]),
    )


def in_domain_accuracy(run: OpenedRun) -> float:
    """Accuracy of a run's selected weights on held-out samples of its source domains, mean over domains."""
    _, model = selected(run.record)
    scores = run.record.selected(model).accuracy[model]
    return float(np.mean([scores[name]["holdout"] for name in run.sources]))


def in_domain_value(run: OpenedRun) -> float:
    """The same for the metric that selects the run's weights."""
    _, model = selected(run.record)
    return run.record.selected(model).validation(run.sources, model)


def familiar_to(run: OpenedRun, algorithm: Algorithm) -> Familiar:
    """A `Familiar` of the run's source domains, from codes of its network."""
    seen, new = (run.sample(run.sources, part, limit=CODES) for part in ("train", "holdout"))
    spec = run.record.spec
    on_features = spec.frozen or len(spec.input_shape) == 1
    features = torch.cat(list(new.inputs())).numpy() if on_features else None
    return fit_familiar(_codes(seen, algorithm), seen.y.numpy(), _codes(new, algorithm), features)


def _codes(sample: Sample, algorithm: Algorithm) -> Floats:
    codes: Floats = sample.codes(algorithm).cpu().double().numpy()
    return codes


@torch.no_grad()
def _predict(algorithm: Algorithm, familiar: Familiar, x: Tensor) -> tuple[Floats, Floats]:
    """Logits and novelty of a batch. Codes are not kept: 170,000 codes of 2,048 numbers are gigabytes."""
    z = algorithm.featurizer(x.to(next(algorithm.parameters()).device)).float()
    return algorithm.classifier(z).cpu().double().numpy(), familiar.parts(z.cpu().double().numpy(), x.numpy())
