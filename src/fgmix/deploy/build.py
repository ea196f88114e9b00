"""Build the network of a model and its description, from a run or from a fitted classifier."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

import fgmix
from fgmix.data import ArrayInputs, DomainDataset
from fgmix.deploy.hold_out import measure_familiar
from fgmix.deploy.network import Network
from fgmix.deploy.overlap import measure_overlap
from fgmix.deploy.summary import summarize_predictions
from fgmix.networks.lora import merge_adapters
from fgmix.records.model import Dtype, Estimate, ModelInfo, PredictionSummary
from fgmix.training.open_run import Predictor, draw_sample, find_device
from fgmix.training.prepare import PreparedRun, build_front, complete_featurizer

MOST = 2000  # holdout samples of each domain that are summarized


def build_network(run: PreparedRun, predictor: Predictor, estimate: Estimate | None = None) -> Network:
    """Build the complete network: it includes a frozen backbone, so that it accepts the samples of the dataset.

    Args:
        run: a run.
        predictor: featurizer and classifier, with the weights of the model.
        estimate: calibrates the confidence and the novelty; None: T = 1.
    """
    familiar, spec = measure_familiar(run, predictor), run.spec
    if estimate:  # novel: even for a sample of a new domain
        code, features = estimate.trust.limits
        familiar = replace(familiar, limit=familiar.limit * code, size=familiar.size * features)
    temperature = estimate.temperature if estimate else 1.0
    backbone = build_front(spec).to(find_device(predictor)) if spec.frozen else None
    featurizer = merge_adapters(complete_featurizer(spec, predictor.featurizer))
    return Network(featurizer, predictor.classifier, temperature, familiar, run.standard, backbone)


@torch.inference_mode()
def summarize_holdout(run: PreparedRun, predictor: Predictor, network: Network) -> PredictionSummary:
    """Summarize predictions for holdout samples of the source domains, at most `MOST` of each.

    Args:
        run: a run.
        predictor: trained without these samples.
        network: of the model, which calibrates the predictions and measures their novelty.
    """
    probabilities, novelty = [], []
    for x in draw_sample(run, run.sources, "holdout", limit=MOST).inputs():
        x = x.to(find_device(predictor))
        z = predictor.featurizer(x).float()
        probabilities.append(torch.softmax(predictor.classifier(z) / network.temperature, dim=1).cpu())
        novelty.append(network.measure_novelty(z, x).cpu())
    return summarize_predictions(torch.cat(probabilities).numpy(), torch.cat(novelty).numpy())


def describe(
    dataset: DomainDataset, trained: Path, *, features: DomainDataset | None = None, **fields: Any
) -> ModelInfo:
    """Fill a `ModelInfo`: what a dataset tells, and the given fields.

    Args:
        dataset: the domains that the model was trained on.
        trained: a file that the training wrote last, whose date is the model's.
        features: of its images, by a frozen network.
        fields: those that differ between a model of one run and of several.
    """
    rows = (np.bincount(domain.y, minlength=len(dataset.classes)) for domain in dataset.domains)
    return ModelInfo(
        dataset=dataset.name,
        data_fingerprint=dataset.fingerprint,
        kind=dataset.kind,
        input_shape=dataset.input_shape,
        dtype=_dtype(dataset),
        classes=dataset.classes,
        domains=dataset.domain_names,
        fgmix_version=fgmix.__version__,
        # Of the run, so that the same runs give the same model.
        date=datetime.fromtimestamp(trained.stat().st_mtime, UTC).date().isoformat(),
        counts=tuple(tuple(row.tolist()) for row in rows),
        groups=_count_groups(dataset),
        columns=dataset.columns,
        overlap=measure_overlap(dataset, features),
        **fields,
    )


def _count_groups(dataset: DomainDataset) -> tuple[int, ...]:
    """Count the groups of each domain, 0 for one without; empty if none has groups."""
    counts = tuple(0 if domain.groups is None else len(np.unique(domain.groups)) for domain in dataset.domains)
    return counts if any(counts) else ()


def _dtype(dataset: DomainDataset) -> Dtype:
    """Return the type of the samples before preprocessing."""
    names = {d.inputs.x.dtype.name for d in dataset.domains if isinstance(d.inputs, ArrayInputs)}
    return next((dtype for dtype in get_args(Dtype) if dtype in names), "uint8")
