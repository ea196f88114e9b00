"""Predictions of a run for the domain it held out, with their novelty and that of noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fgmix.data.dataset import Indices
from fgmix.deploy.novelty import Familiar, fit_familiar
from fgmix.records.evaluations import Model
from fgmix.records.metrics import Floats
from fgmix.records.schema import ResolvedSpec, RunRecord, Which, selected_weights
from fgmix.training.open_run import OpenedRun, PartName, Predictor, Sample, draw_sample, find_device
from fgmix.training.prepare import PreparedRun, build_front

CODES = 2000  # codes of each domain that `Familiar` is fitted to: more hardly change it and need memory
KNOWN = 500  # holdout samples of each source domain whose predictions are summarised
NOISE = 200  # noise samples that novelty is tested on: predictions for them should not be trusted
BATCH = 64  # of noise, per forward pass
PARTS: tuple[PartName, PartName] = ("train", "holdout")


@dataclass(frozen=True)
class HeldOut:
    """Predictions for one domain by a network that was not trained on it."""

    domain: str  # its name
    logits: Floats  # (n, C) of all of its samples
    novelty: Floats  # both parts of it (n, 2), see `Familiar.parts`
    y: Indices  # labels
    in_domain_accuracy: float  # of the same network on held-out samples of its source domains
    noise: Floats = field(default_factory=lambda: np.zeros((0, 2)))  # both parts of the novelty of noise, (m, 2)
    # Logits, and both parts of the novelty, of holdout samples of the source domains.
    reference: tuple[Floats, Floats] = field(default_factory=lambda: (np.zeros((0, 0)), np.zeros((0, 2))))
    # Of each sample its group if no training sample of the network has it, else −1; None unless all domains have groups
    new: Indices | None = None

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        correct: npt.NDArray[np.bool_] = self.logits.argmax(axis=1) == self.y
        return correct


def select_weights(record: RunRecord) -> tuple[Which, Model]:
    """Name the selected weights of a run: averaged if it averages; at the selected step, or SWAD's own average."""
    model = record.models[-1]
    return selected_weights(model), model


def hold_out(run: OpenedRun, noise: Tensor | None = None) -> HeldOut:
    """Predict the domain that a finished run held out.

    Args:
        run: the run.
        noise: for a run on activations, those of noise images (`compute_noise_features`).
    """
    return predict_held_out(run.prepared, run.algorithm(*select_weights(run.record)), measure_in_domain(run)[0], noise)


def predict_held_out(
    run: PreparedRun,
    predictor: Predictor,
    in_domain_accuracy: float,
    noise: Tensor | None = None,
    familiar: Familiar | None = None,
) -> HeldOut:
    """Predict the domain that a run holds out, by what was trained on the others.

    Args:
        run: the data, prepared for this domain.
        predictor: trained on the source domains.
        in_domain_accuracy: its accuracy on their holdout samples.
        noise: for a run on activations, those of noise images (`compute_noise_features`).
        familiar: of the source domains, if it is known.
    """
    familiar = familiar or measure_familiar(run, predictor)
    (domain,) = run.spec.test_domains
    parts = [draw_sample(run, [domain], part) for part in PARTS]
    logits, novelty = _predict_all(predictor, familiar, (x for part in parts for x in part.inputs()))
    known = draw_sample(run, run.sources, "holdout", limit=KNOWN)
    return HeldOut(
        domain=domain,
        logits=logits,
        novelty=novelty,
        y=np.concatenate([part.y.numpy() for part in parts]),
        in_domain_accuracy=in_domain_accuracy,
        noise=_predict_all(predictor, familiar, make_noise(run, NOISE, noise).split(BATCH))[1],
        reference=_predict_all(predictor, familiar, known.inputs()),
        new=_find_new(run, domain),
    )


def _find_new(run: PreparedRun, name: str) -> Indices | None:
    """Find the groups of a domain that no training sample of the other domains has, by sample; −1 for the others."""
    groups = {domain.name: domain.groups for domain in run.dataset.domains if domain.groups is not None}
    if len(groups) < len(run.dataset.domains):
        return None
    known = np.concatenate([groups[source][run.splits[source].train] for source in run.sources])
    rows = np.concatenate([getattr(run.splits[name], part) for part in PARTS])
    own = groups[name][rows]
    return np.where(np.isin(own, known), -1, own)


def measure_in_domain(run: OpenedRun) -> tuple[float, float]:
    """Compute the accuracy of a run's selected weights on holdout samples of its source domains, mean over domains.

    The second number is the same for the metric that selects the weights.
    """
    _, model = select_weights(run.record)
    selected = run.record.selected(model)
    accuracy = float(np.mean([selected.accuracy[model][name]["holdout"] for name in run.sources]))
    return accuracy, selected.validation(run.sources, model)


def measure_familiar(run: PreparedRun, predictor: Predictor) -> Familiar:
    """Fit a `Familiar` to the run's source domains, from codes of its network."""
    seen, new = (draw_sample(run, run.sources, part, limit=CODES) for part in PARTS)
    spec = run.spec
    on_features = spec.frozen or spec.standardize or len(spec.input_shape) == 1
    features = torch.cat(list(new.inputs())).numpy() if on_features else None
    return fit_familiar(_codes(seen, predictor), seen.y.numpy(), _codes(new, predictor), features)


def _codes(sample: Sample, predictor: Predictor) -> Floats:
    codes: Floats = sample.codes(predictor).cpu().double().numpy()
    return codes


def _predict_all(predictor: Predictor, familiar: Familiar, batches: Iterable[Tensor]) -> tuple[Floats, Floats]:
    """Compute logits and novelty of samples, given in batches."""
    logits, novelty = zip(*(_predict(predictor, familiar, x) for x in batches))
    return np.concatenate(logits), np.concatenate(novelty)


@torch.no_grad()
def _predict(predictor: Predictor, familiar: Familiar, x: Tensor) -> tuple[Floats, Floats]:
    """Compute logits and novelty of a batch. Codes are not kept: 170,000 codes of 2,048 numbers are gigabytes."""
    z = predictor.featurizer(x.to(find_device(predictor))).float()
    return predictor.classifier(z).cpu().double().numpy(), familiar.parts(z.cpu().double().numpy(), x.numpy())


def draw_noise(x: Tensor, n: int, seed: int = 0) -> Tensor:
    """Draw noise in the range of given samples: half images of random pixels, half of one random colour each.

    Features, and points of signals, are Gaussian and independent, each with its own mean and variance.

    Args:
        x: samples (m, f), (m, c, t) or (m, c, h, w), as input to a network.
        n: number of noise samples.
        seed: of the random numbers.

    Example:
        >>> draw_noise(torch.rand(9, 3, 8, 8), 4).shape
        torch.Size([4, 3, 8, 8])
    """
    generator = torch.Generator().manual_seed(seed)
    if x.ndim < 4:
        return x.mean(0) + x.std(0, correction=0) * torch.randn(n, *x.shape[1:], generator=generator)
    low, high = x.amin((0, 2, 3))[:, None, None], x.amax((0, 2, 3))[:, None, None]
    pixels = torch.rand(n - n // 2, *x.shape[1:], generator=generator)
    plain = torch.rand(n // 2, x.shape[1], 1, 1, generator=generator).expand(-1, *x.shape[1:])
    return low + (high - low) * torch.cat([pixels, plain])


@torch.inference_mode()
def compute_noise_features(spec: ResolvedSpec, n: int, device: torch.device) -> Tensor:
    """Compute activations (n, …) of noise images in a run's frozen network: not standardised, the same in every run.

    Args:
        spec: of a run `on_activations`.
        n: how many images.
        device: where to compute them.
    """
    mean, std = (torch.tensor(values)[:, None, None] for values in (spec.mean, spec.std))
    black_and_white = torch.stack([torch.zeros(spec.input_shape), torch.ones(spec.input_shape)])
    images = draw_noise((black_and_white - mean) / std, n)
    front = build_front(spec).to(device)
    return torch.cat([front(batch.to(device)).float().cpu() for batch in images.split(BATCH)])


def make_noise(run: PreparedRun, n: int, features: Tensor | None = None) -> Tensor:
    """Make noise inputs for the network of a run: in the range of its source domains, or given features, standardised.

    Args:
        run: the run.
        n: number of noise samples, without `features`.
        features: of noise images, for a run on activations.
    """
    if features is None:
        return draw_noise(torch.cat(list(draw_sample(run, run.sources, limit=n).inputs())), n)
    standard = run.standard
    return features if standard is None else torch.from_numpy(standard(features.numpy()))
