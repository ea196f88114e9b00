"""A recipe on the data that all recipes share: it is trained without some domains, and scored there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import msgspec
import numpy as np
import torch
from msgspec import Struct, structs
from safetensors.torch import load, save
from torch import Tensor

from fgmix.algorithms import get
from fgmix.data import ArrayInputs, DomainDataset
from fgmix.data.dataset import Indices
from fgmix.data.sampling import weigh_samples
from fgmix.data.standardisation import fit_to_batch
from fgmix.deploy.adapt import Guess
from fgmix.deploy.classifiers import Fitted, FittedClassifier, build_classifier
from fgmix.deploy.hold_out import (
    NOISE,
    PARTS,
    HeldOut,
    compute_noise_features,
    measure_familiar,
    measure_in_domain,
    predict_held_out,
    select_weights,
)
from fgmix.deploy.novelty import Familiar
from fgmix.deploy.recipes import GROUP, Recipe, Size
from fgmix.networks import build_featurizer
from fgmix.networks.stages import sections
from fgmix.records.code import describe_plug_in
from fgmix.records.evaluations import Metric, Rates, Share
from fgmix.records.files import make_folder, read_bytes, read_json, write_bytes, write_json
from fgmix.records.metrics import rates
from fgmix.records.schema import ResolvedSpec, RunSpec, to_plain
from fgmix.sweeps.calibrate import calibrate, estimate_cost
from fgmix.training.devices import pick_device
from fgmix.training.open_run import PartName, Predictor, draw_sample, find_device, train_and_open
from fgmix.training.prepare import PreparedRun, locate_activations, prepare_data, split_and_standardise
from fgmix.training.resolve import resolve

FOLDS, RUNS = "folds", "runs"  # folders in that of the model
TIMED = 2.0  # seconds to time a network that is not small before its first training
BATCH = 1024  # samples that a classifier predicts at a time


class Fold(Struct, frozen=True, forbid_unknown_fields=True):
    """What a recipe got on a held-out domain; the file of it says that this training is done."""

    values: dict[str, Share]  # the metric on each held-out domain
    in_domain_accuracy: Share  # on holdout samples of the source domains
    in_domain_value: Share  # the same for the metric
    cpu_seconds: float
    seconds: float


@dataclass(frozen=True)
class Workbench:
    """The data that all recipes share: the features of a frozen backbone are computed once.

    Args:
        spec: what the user asked for, except the method; `frozen` for images with a pre-trained backbone.
        dataset: as loaded.
        out: the model's folder.
        device: as in `fit`.
        progress: show progress bars.
        accept_code: as in `fit`.
    """

    spec: RunSpec
    dataset: DomainDataset
    out: Path
    device: str
    progress: bool = True
    accept_code: bool = False
    familiar: dict[tuple[str, bool], Familiar] = field(default_factory=dict)  # by held-out domain
    noise: dict[int | str, Tensor] = field(default_factory=dict)  # activations, by the place of the cut
    prepared: dict[tuple[tuple[str, ...], bool], PreparedRun] = field(default_factory=dict)  # by what is held out

    @cached_property
    def features(self) -> DomainDataset:
        """What recipes see instead of the dataset."""
        resolved = resolve(self.spec, self.dataset)
        if not resolved.on_activations:
            return self.dataset
        cache = locate_activations(resolved, self.dataset, device=self.device)
        cache.fill(progress=self.progress)
        return cache.read()

    @cached_property
    def tuning(self) -> dict[str, Any]:
        """Options of a run that trains the last section of the frozen backbone."""
        spec = resolve(self.spec, self.dataset)
        cut = len(sections(build_featurizer(spec.backbone, spec.input_shape))) - 1
        return {"frozen": False, "backbone": spec.backbone, "freeze": cut}

    def compute_noise(self, spec: ResolvedSpec) -> Tensor | None:
        """Compute the activations of noise images for a run on activations, once for each place of the cut."""
        if not spec.on_activations:
            return None
        if spec.freeze not in self.noise:
            self.noise[spec.freeze] = compute_noise_features(spec, NOISE, pick_device(self.device))
        return self.noise[spec.freeze]

    @property
    def size(self) -> Size:
        """Size of the training of a model on all domains."""
        shape = self.features.input_shape
        return Size(sum(map(len, self.dataset.domains)), int(np.prod(shape)), len(self.dataset.classes))


@dataclass(frozen=True, eq=False)
class Candidate:
    """A recipe on the data of a workbench."""

    recipe: Recipe
    bench: Workbench
    by_domain: bool = False  # each domain standardised by itself, as `predict --adapt` standardises a new one

    @property
    def title(self) -> str:
        return f"{self.recipe.name}{' by domain' if self.by_domain else ''}"

    @property
    def is_small_network(self) -> bool:
        """Whether it trains a network on features, which classifiers can use as well."""
        return not self.recipe.fit and self.bench.features.kind == "features" and not self.recipe.tunes

    @property
    def min_domains(self) -> int:
        """Least number of domains to train on."""
        return 1 if self.recipe.fit else get(self.recipe.options["algorithm"]).min_domains

    @property
    def accepts_targets(self) -> bool:
        """Whether its loss allows the soft labels of the data, and weights in the loss if they are asked for."""
        allowed = "weighted" if self.recipe.fit else get(self.recipe.options["algorithm"]).targets
        soft = any(domain.soft is not None for domain in self.bench.dataset.domains)
        return allowed == "weighted" or not (self.bench.spec.weighted_loss or (soft and allowed == "classes"))

    @property
    def metric(self) -> Metric:
        return self.bench.spec.metric

    def resolve(self, *held_out: str) -> ResolvedSpec:
        """Resolve the spec of one training, with domains held out or with all."""
        options = dict(self.recipe.options)
        if self.recipe.tunes:
            options |= self.bench.tuning
        if self.recipe.fit or self.by_domain:
            options["arm"] = self.title
        return resolve(structs.replace(self.bench.spec, test_domains=held_out, **options), self.bench.dataset)

    def prepare(self, *held_out: str) -> PreparedRun:
        """Prepare the data for one training."""
        resolved = self.resolve(*held_out)
        if resolved.on_activations and not resolved.frozen:  # of other sections than the shared ones
            return prepare_data(resolved, self.bench.dataset, device=self.bench.device, progress=self.bench.progress)
        shared, key = self.bench.prepared, (held_out, self.by_domain)
        if key not in shared:
            run = split_and_standardise(resolved, self.bench.features)
            shared[key] = standardise_by_domain(run) if self.by_domain else run
        return replace(shared[key], spec=resolved)

    def guess_seconds(self) -> float:
        """Estimate the seconds of one training, before there was any."""
        if self.recipe.fit or self.is_small_network:
            return self.recipe.cost(self.bench.size)
        spec = self.resolve()
        timed = calibrate(spec, self.bench.dataset, device=self.bench.device, repeats=1, budget=TIMED)
        extraction = timed.activations.seconds if timed.activations else 0.0
        return estimate_cost(spec, self.bench.dataset, timed).seconds + extraction / len(self.bench.dataset.domains)

    def train(self, *held_out: str) -> Fold:
        """Train the recipe without some domains and score it there; a finished training is read."""
        run = self.prepare(*held_out)
        path = self.locate(run, ".json")
        if path.exists():
            return msgspec.convert(read_json(path), Fold)
        make_folder(path.parent)
        began, cpu = time.monotonic(), time.process_time()
        predictor, accuracy, value = self._train(run)
        unseen = {name: each.value(self.metric) for name, each in score(run, predictor, held_out).items()}
        spent = time.process_time() - cpu, time.monotonic() - began
        fold = Fold(unseen, accuracy, value, *spent)
        write_json(path, to_plain(fold))
        return fold

    def open(self, *held_out: str) -> tuple[PreparedRun, Predictor]:
        """Train the recipe, or read a finished training; return its data and the predictor."""
        run = self.prepare(*held_out)
        if not self.recipe.fit:
            return run, self._train(run)[0]  # which reads the finished run
        self.train(*held_out)
        tensors = load(read_bytes(self.locate(run, ".safetensors")))
        return run, Fitted(build_classifier(tensors)).eval()

    def hold_out(self, domain: str) -> HeldOut:
        """Predict a domain by the training without it, with novelty."""
        run, predictor = self.open(domain)
        familiar, noise = None, self.bench.compute_noise(run.spec)
        if self.recipe.fit:  # its codes are the samples themselves, which all classifiers share
            known = self.bench.familiar
            familiar = known.get((domain, self.by_domain)) or measure_familiar(run, predictor)
            known[domain, self.by_domain] = familiar
        return predict_held_out(run, predictor, self.train(domain).in_domain_accuracy, noise, familiar)

    def refit(self) -> tuple[PreparedRun, Predictor]:
        """Return the model of all domains: a classifier has nothing to select, and is trained on all samples."""
        run = self.prepare()
        return (run, Fitted(self._fit(run, PARTS)).eval()) if self.recipe.fit else self.open()

    def guess(self, domain: str) -> Guess:
        """Return a function that predicts batches of a domain by the training without it, adapted to each if it adapts.

        All batches are predicted at once: a call costs more than a sample.
        """
        run, predictor = self.open(domain)
        inputs = cast("ArrayInputs", run.dataset.domains[run.dataset.index(domain)].inputs)

        def standardise(rows: Indices) -> Tensor:
            own = run.standard
            if self.by_domain and own:
                return replace(inputs, standard=fit_to_batch(inputs.x[rows], own)).clean(rows)
            return inputs.clean(rows)

        def guess(batches: Sequence[Indices]) -> Indices:
            return _guess(predictor, torch.cat(list(map(standardise, batches))).split(BATCH))

        return guess

    def _train(self, run: PreparedRun) -> tuple[Predictor, float, float]:
        """Train on the source domains; return also the accuracy and the metric on their holdout parts."""
        if self.recipe.fit:
            classifier = self._fit(run, PARTS[:1])
            write_bytes(self.locate(run, ".safetensors"), save(classifier.state_dict()))
            fitted = Fitted(classifier).eval()
            scores = score(run, fitted, run.sources, PARTS[1:]).values()
            return fitted, fmean(each.accuracy for each in scores), fmean(each.value(self.metric) for each in scores)
        how: dict[str, Any] = {"device": self.bench.device, "accept_code": self.bench.accept_code}
        opened = train_and_open(run, self.bench.out / RUNS, self.bench.dataset, progress=False, **how)
        return opened.algorithm(*select_weights(opened.record)), *measure_in_domain(opened)

    def _fit(self, run: PreparedRun, parts: Sequence[PartName]) -> FittedClassifier:
        domains = [domain for domain in run.dataset.domains if domain.name in run.sources]
        pools = [np.concatenate([getattr(run.splits[d.name], part) for part in parts]) for d in domains]
        x = np.concatenate([d.inputs.clean(pool).numpy().reshape(len(pool), -1) for d, pool in zip(domains, pools)])
        y = np.concatenate([d.y[pool] for d, pool in zip(domains, pools)])
        weighed = weigh_samples(domains, pools, balanced=run.spec.class_weight == "balanced")
        weights, classes = np.concatenate(weighed) if weighed else None, len(run.dataset.classes)
        if any(d.soft is not None for d in domains):  # a sample of every possible class, weighed by its probability
            soft = np.concatenate([d.target(pool, classes) for d, pool in zip(domains, pools)])
            rows, y = np.nonzero(soft)
            x, weights = x[rows], soft[rows, y] * (1.0 if weights is None else weights[rows])
        return self.recipe.train(x, y, weights, classes).eval()

    def locate(self, run: PreparedRun, ending: str) -> Path:
        """Locate a file of a training."""
        code = describe_plug_in(GROUP, self.recipe.name, self.recipe.fit) if self.recipe.fit else ""
        name = "-".join(filter(None, (self.recipe.name, run.spec.name, code[:12])))
        return self.bench.out / FOLDS / f"{name}{ending}"


def score(
    run: PreparedRun, predictor: Predictor, names: Sequence[str], parts: Sequence[PartName] = PARTS
) -> dict[str, Rates]:
    """Score a predictor on parts of each of some domains."""
    if not names:
        return {}
    samples = [draw_sample(run, names, part) for part in parts]
    guesses = _guess(predictor, _fill(x for sample in samples for x in sample.inputs(BATCH)))
    y = torch.cat([sample.y for sample in samples]).numpy()
    domain = torch.cat([sample.domain for sample in samples]).numpy()
    found = {}
    for name in names:
        own, classes = domain == run.dataset.index(name), len(run.dataset.classes)
        counted = (y[own], guesses[own], y[own & (y == guesses)])
        found[name] = rates(*(np.bincount(each, minlength=classes) for each in counted))
    return found


def _fill(batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """Join small batches, up to `BATCH` samples: a call costs more than a sample."""
    waiting: list[Tensor] = []
    for x in batches:
        if sum(map(len, waiting)) + len(x) > BATCH and waiting:
            yield torch.cat(waiting)
            waiting = []
        waiting.append(x)
    yield torch.cat(waiting)


@torch.no_grad()
def _guess(predictor: Predictor, batches: Iterable[Tensor]) -> Indices:
    """Predict the classes of samples, given in parts."""
    device = find_device(predictor)
    logits = [predictor.classifier(predictor.featurizer(x.to(device))) for x in batches]
    guesses: Indices = torch.cat(logits).argmax(1).cpu().numpy()
    return guesses


def standardise_by_domain(run: PreparedRun) -> PreparedRun:
    """Standardise the samples of each domain by their own mean and scale, in place of those of the source domains."""
    domains = []
    assert run.standard is not None
    for domain in run.dataset.domains:
        inputs = cast("ArrayInputs", domain.inputs)
        own = fit_to_batch(inputs.x[np.arange(len(domain))], run.standard)
        domains.append(replace(domain, inputs=replace(inputs, standard=own)))
    return replace(run, dataset=replace(run.dataset, domains=tuple(domains)))
