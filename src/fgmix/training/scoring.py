"""What a run evaluates, and how the scores become a line of its metrics.

Every evaluation scores the holdout parts of the source domains, which select steps and hyper-parameters, and both parts
of the test domains; on request also the training parts of the sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from fgmix.algorithms import Algorithm
from fgmix.records.metrics import Metric
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import Evaluation, Model, Scores
from fgmix.training.evaluation import Part, Predict, Score, evaluating, score_parts
from fgmix.training.precision import autocast
from fgmix.training.prepare import PreparedRun

Found = dict[str, dict[str, Score]]  # by domain and part


def score_run(run: PreparedRun, algorithm: Algorithm, models: Mapping[Model, Predict], step: int) -> dict[Model, Found]:
    """Scores of each model on all parts that the run evaluates, in one pass over the data.

    Args:
        run: the data, and how they are split.
        algorithm: what the models belong to; it is in evaluation mode meanwhile.
        models: logits by name of the model.
        step: how many steps were trained, for the draws of protocols that augment validation images.
    """
    keys, parts = zip(*_parts(run, step))
    device = next(algorithm.parameters()).device
    with evaluating(algorithm), autocast(run.spec.precision, device):
        scores = score_parts(models, parts, device, len(run.dataset.classes))
    found: dict[Model, Found] = {model: {} for model in models}
    for model in models:
        for (name, part), score in zip(keys, scores[model]):
            found[model].setdefault(name, {})[part] = score
    return found


def _parts(run: PreparedRun, step: int) -> Iterator[tuple[tuple[str, str], Part]]:
    """Each part to score, with the names of its domain and part."""
    augmented_validation = PROTOCOLS[run.spec.protocol].augmented_validation
    for name, split in run.splits.items():
        is_source = name in run.sources
        domain = run.dataset.domains[run.dataset.index(name)]
        for part in ("holdout",) if is_source and not run.spec.evaluate_train else ("train", "holdout"):
            draws = (run.spec.seed, name, part, step) if is_source and augmented_validation else None
            reported = not is_source and part == "train"
            yield (name, part), Part(domain, getattr(split, part), draws, outputs=reported)


def as_evaluation(scores: Mapping[Model, Found], step: int, training: dict[str, float], metric: Metric) -> Evaluation:
    """The line of an evaluation.

    Args:
        scores: of every model.
        step: how many steps were trained.
        training: the method's metrics, as means over the steps since the evaluation before.
        metric: what the run selects by; its values are stored where it is not accuracy, which always is.
    """
    return Evaluation(
        step=step,
        accuracy={model: _pick(found, "accuracy") for model, found in scores.items()},
        loss={model: _pick(found, "loss") for model, found in scores.items()},
        metrics=training,
        headline={} if metric == "accuracy" else {model: _values(found, metric) for model, found in scores.items()},
    )


def _pick(found: Found, which: Literal["accuracy", "loss"]) -> Scores:
    return {name: {part: getattr(score, which) for part, score in parts.items()} for name, parts in found.items()}


def _values(found: Found, metric: Metric) -> Scores:
    return {name: {part: s.counts.value(metric) for part, s in parts.items()} for name, parts in found.items()}


def unseen_metrics(run: PreparedRun, found: Found) -> dict[str, dict[str, Any]]:
    """All metrics on the test domains: of the part that is reported, which no selection rule uses."""
    unseen = {}
    for name, split in run.splits.items():
        if name not in run.sources and (outputs := found[name]["train"].outputs):
            part = Part(run.dataset.domains[run.dataset.index(name)], split.train)
            unseen[name] = part.metrics(outputs).as_dict()
    return unseen
