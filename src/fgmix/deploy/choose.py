"""Choose the recipe of a model by leave-one-domain-out, within a budget of time.

With a_r(e | S) the metric on domain e of recipe r trained on the domains S, and all of them D:

    r*  = argmax_r mean_e a_r(e | D − e)                      the recipe of the model
    r_d = argmax_r mean_{e ≠ d} a_r(e | D − e − d)            the recipe that the other domains choose
    estimate = mean_d a_{r_d}(d | D − d)                      of this procedure: domain d has no part in choosing r_d

max_r mean_e a_r(e | D − e) itself is too high, because chance selects, too. So is an estimate that only leaves out the
score of domain d and keeps a_r(e | D − e), trained with d: domains that resemble each other by chance then choose
what suits them (tests/deploy/test_choose.py simulates all three). Varma and Simon, "Bias in error estimation when using
cross-validation for model selection", 2006, https://doi.org/10.1186/1471-2105-7-91.

r_d needs a training without each pair of domains. Where only one domain is left to train on after that, or where the
budget is too short, r_d is the recipe with the best metric on the holdout parts of D − d: a weaker choice, as honest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import torch
from msgspec import Struct, structs
from safetensors.torch import load, save
from torch import Tensor

from fgmix.algorithms import get
from fgmix.data import ArrayInputs, DomainDataset
from fgmix.data.dataset import Indices
from fgmix.data.sampling import sampling_weights
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
from fgmix.errors import UserError
from fgmix.networks import build_featurizer
from fgmix.networks.stages import sections
from fgmix.progress import Progress, format_duration
from fgmix.records.evaluations import Metric, Rates
from fgmix.records.files import make_folder, read_bytes, read_json, write_bytes, write_json
from fgmix.records.metrics import rates
from fgmix.records.model import Share, Trial
from fgmix.records.plugins import describe_plug_in
from fgmix.records.schema import ResolvedSpec, RunSpec, to_plain
from fgmix.training.calibrate import calibrate, estimate
from fgmix.training.devices import pick_device
from fgmix.training.open_run import PartName, Predictor, draw_sample, find_device, train_and_open
from fgmix.training.prepare import PreparedRun, locate_activations, prepare_data, split_and_standardise
from fgmix.training.resolve import resolve

FOLDS, RUNS = "folds", "runs"  # folders in that of the model
C = TypeVar("C")
TRIED = 0.5  # share of the budget to try recipes; the rest is for trainings without pairs of domains
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
    def last_cut(self) -> int:
        """Number of sections of the backbone before the last one."""
        spec = resolve(self.spec, self.dataset)
        return len(sections(build_featurizer(spec.backbone, spec.input_shape))) - 1

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
    def min_domains(self) -> int:
        """Least number of domains to train on."""
        return 1 if self.recipe.fit else get(self.recipe.options["algorithm"]).min_domains

    @property
    def metric(self) -> Metric:
        return self.bench.spec.metric

    def prepare(self, *held_out: str) -> PreparedRun:
        """Prepare the data for one training, with domains held out or with all."""
        options = dict(self.recipe.options)
        if self.recipe.tunes:
            options |= {"frozen": False, "freeze": self.bench.last_cut}
        if self.recipe.fit or self.by_domain:
            options["arm"] = self.title
        spec = structs.replace(self.bench.spec, test_domains=held_out, **options)
        resolved = resolve(spec, self.bench.dataset)
        if resolved.on_activations and not resolved.frozen:  # of other sections than the shared ones
            return prepare_data(resolved, self.bench.dataset, device=self.bench.device, progress=self.bench.progress)
        run = split_and_standardise(resolved, self.bench.features)
        return standardise_by_domain(run) if self.by_domain else run

    def guess_seconds(self) -> float:
        """Estimate the seconds of one training, before there was any."""
        if self.recipe.fit or (self.bench.features.kind == "features" and not self.recipe.tunes):
            return self.recipe.cost(self.bench.size)
        spec = self.prepare().spec
        timed = calibrate(spec, self.bench.dataset, device=self.bench.device, repeats=1, budget=TIMED)
        extraction = timed.activations.seconds if timed.activations else 0.0
        return estimate(spec, self.bench.dataset, timed).seconds + extraction / len(self.bench.dataset.domains)

    def train(self, *held_out: str) -> Fold:
        """Train the recipe without some domains and score it there; a finished training is read."""
        run = self.prepare(*held_out)
        path = self.locate(run, ".json")
        if path.exists():
            return msgspec.convert(read_json(path), Fold)
        make_folder(path.parent)
        began, cpu = time.monotonic(), time.process_time()
        predictor, accuracy, value = self._train(run)
        unseen = {name: score(run, predictor, (name,)).value(self.metric) for name in held_out}
        spent = time.process_time() - cpu, time.monotonic() - began
        fold = Fold(unseen, accuracy, value, *spent)
        write_json(path, to_plain(fold))
        return fold

    def open(self, *held_out: str) -> tuple[PreparedRun, Predictor]:
        """Return a finished training: its data and the predictor."""
        run = self.prepare(*held_out)
        if not self.recipe.fit:
            return run, self._train(run)[0]  # which reads the finished run
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
        """Return a function that predicts rows of a domain by the training without it, adapted to them if it adapts."""
        run, predictor = self.open(domain)
        inputs = cast("ArrayInputs", run.dataset.domains[run.dataset.index(domain)].inputs)

        def guess(rows: Indices) -> Indices:
            adapted = inputs
            if self.by_domain and run.standard:
                adapted = replace(inputs, standard=fit_to_batch(inputs.x[rows], run.standard))
            with torch.no_grad():
                logits = predictor.classifier(predictor.featurizer(adapted.clean(rows).to(find_device(predictor))))
            guesses: Indices = logits.argmax(1).cpu().numpy()
            return guesses

        return guess

    def _train(self, run: PreparedRun) -> tuple[Predictor, float, float]:
        """Train on the source domains; return also the accuracy and the metric on their holdout parts."""
        if self.recipe.fit:
            classifier = self._fit(run, PARTS[:1])
            write_bytes(self.locate(run, ".safetensors"), save(classifier.state_dict()))
            fitted = Fitted(classifier).eval()
            scores = [score(run, fitted, (name,), PARTS[1:]) for name in run.sources]
            return fitted, fmean(each.accuracy for each in scores), fmean(each.value(self.metric) for each in scores)
        how: dict[str, Any] = {"device": self.bench.device, "accept_code": self.bench.accept_code}
        opened = train_and_open(run, self.bench.out / RUNS, self.bench.dataset, progress=False, **how)
        if opened.record.status == "diverged":
            raise UserError(f"The run {opened.folder} diverged at step {opened.record.diverged_at}.")
        return opened.algorithm(*select_weights(opened.record)), *measure_in_domain(opened)

    def _fit(self, run: PreparedRun, parts: Sequence[PartName]) -> FittedClassifier:
        domains = [domain for domain in run.dataset.domains if domain.name in run.sources]
        pools = [np.concatenate([getattr(run.splits[d.name], part) for part in parts]) for d in domains]
        x = np.concatenate([d.inputs.clean(pool).numpy().reshape(len(pool), -1) for d, pool in zip(domains, pools)])
        y = np.concatenate([d.y[pool] for d, pool in zip(domains, pools)])
        weights = sampling_weights(domains, pools, balanced=run.spec.class_weight == "balanced")
        classes = len(run.dataset.classes)
        return self.recipe.train(x, y, np.concatenate(weights) if weights else None, classes).eval()

    def locate(self, run: PreparedRun, ending: str) -> Path:
        """Locate a file of a training."""
        code = describe_plug_in(GROUP, self.recipe.name, self.recipe.fit) if self.recipe.fit else ""
        name = "-".join(filter(None, (self.recipe.name, run.spec.name, code[:12])))
        return self.bench.out / FOLDS / f"{name}{ending}"


def score(run: PreparedRun, predictor: Predictor, names: Sequence[str], parts: Sequence[PartName] = PARTS) -> Rates:
    """Score a predictor on parts of domains."""
    samples = [draw_sample(run, names, part) for part in parts]
    y = torch.cat([sample.y for sample in samples]).numpy()
    device = find_device(predictor)
    with torch.no_grad():
        logits = [predictor.classifier(predictor.featurizer(x.to(device))) for s in samples for x in s.inputs(BATCH)]
    guesses = torch.cat(logits).argmax(1).cpu().numpy()
    counts = (np.bincount(each, minlength=len(run.dataset.classes)) for each in (y, guesses, y[y == guesses]))
    return rates(*counts)


def standardise_by_domain(run: PreparedRun) -> PreparedRun:
    """Standardise the samples of each domain by their own mean and scale, in place of those of the source domains."""
    domains = []
    assert run.standard is not None
    for domain in run.dataset.domains:
        inputs = cast("ArrayInputs", domain.inputs)
        own = fit_to_batch(inputs.x[np.arange(len(domain))], run.standard)
        domains.append(replace(domain, inputs=replace(inputs, standard=own)))
    return replace(run, dataset=replace(run.dataset, domains=tuple(domains)))


@dataclass
class Budget:
    """Time for the choice; what earlier, interrupted calls spent on finished trainings counts."""

    seconds: float
    spent: float = 0.0

    def has(self, seconds: float, share: float = 1.0) -> bool:
        """Tell whether there is time left for that long, within a share of the budget."""
        return self.spent + seconds <= share * self.seconds


@dataclass
class Trials:
    """Trainings of the candidates on all domains but one, and on all but two.

    Args:
        candidates: what to try.
        domains: names of the domains.
        budget: which is spent.
        progress: show a bar.
    """

    candidates: Sequence[Candidate]
    domains: Sequence[str]
    budget: Budget
    progress: bool = True
    folds: dict[Candidate, dict[str, Fold]] = field(default_factory=dict)  # by held-out domain
    nested: dict[Candidate, dict[frozenset[str], Fold]] = field(default_factory=dict)  # by pairs of them
    skipped: dict[Candidate, str] = field(default_factory=dict)  # why

    def run(self) -> None:
        """Hold out every domain with each candidate, cheapest first; then every pair, if there is time for all.

        A candidate that would exceed its share of the budget is skipped. Its cost is guessed before its first training,
        and taken from it after that; the cheapest one is tried in any case.
        """
        guesses = {each: each.guess_seconds() * (len(self.domains) + 2) for each in self.candidates}
        ordered = sorted(self.candidates, key=guesses.__getitem__)
        with Progress("fit", len(ordered) * len(self.domains), "trainings", show=self.progress) as bar:
            for candidate in ordered:
                self._try(candidate, guesses[candidate], bar)
                bar.skip(len(self.domains) - len(self.folds[candidate]))
        self._nest()

    @property
    def tried(self) -> list[Candidate]:
        """Candidates that were tried on all domains, in the order of their cost."""
        return [each for each in self.folds if each not in self.skipped]

    def _try(self, candidate: Candidate, seconds: float, bar: Progress) -> None:
        folds = self.folds[candidate] = {}
        for number, domain in enumerate(self.domains):
            if len(self.folds) > 1 and not self.budget.has(seconds, TRIED):
                left = max(TRIED * self.budget.seconds - self.budget.spent, 0)
                self.skipped[candidate] = f"{format_duration(seconds)} needed, {format_duration(left)} left"
                return
            bar.say(f"{candidate.title} without {domain}")
            folds[domain] = fold = candidate.train(domain)
            self.budget.spent += fold.seconds
            seconds = fmean(each.seconds for each in folds.values()) * (len(self.domains) + 1 - number)
            bar.advance()

    def _nest(self) -> None:
        """Hold out every pair of domains with all tried candidates that can do with so few, or with none."""
        left = len(self.domains) - 2
        able = [each for each in self.tried if each.min_domains <= left]
        pairs = list(combinations(self.domains, 2))
        cost = sum(fmean(fold.seconds for fold in self.folds[each].values()) for each in able) * len(pairs)
        if len(self.tried) < 2 or not left or not self.budget.has(cost):
            return
        with Progress("choose", len(able) * len(pairs), "trainings", show=self.progress) as bar:
            for candidate in able:
                self.nested[candidate] = {}
                for pair in pairs:
                    bar.say(f"{candidate.title} without {' and '.join(pair)}")
                    self.nested[candidate][frozenset(pair)] = fold = candidate.train(*pair)
                    self.budget.spent += fold.seconds
                    bar.advance()

    def choose(self, *, by_domain: bool = False) -> Candidate:
        """Return the candidate with the highest mean over domains, among those `by_domain` or the others."""
        return choose_best(
            {
                each: [self.folds[each][name].values[name] for name in self.domains]
                for each in self.tried
                if each.by_domain is by_domain
            }
        )

    def choose_without(self, domain: str, *, by_domain: bool = False) -> Candidate:
        """Return the candidate that the other domains choose."""
        nested = {each: folds for each, folds in self.nested.items() if each.by_domain is by_domain}
        if not nested:
            tried = (each for each in self.tried if each.by_domain is by_domain)
            return choose_best({each: [self.folds[each][domain].in_domain_value] for each in tried})
        others = [name for name in self.domains if name != domain]
        return choose_best(
            {each: [folds[frozenset((domain, e))].values[e] for e in others] for each, folds in nested.items()}
        )

    def describe(self) -> tuple[Trial, ...]:
        """List what was tried and skipped, for the record of the choice."""
        return tuple(
            Trial(
                recipe=each.recipe.name,
                about=each.recipe.about,
                by_domain=each.by_domain,
                values={} if each in self.skipped else {name: fold.values[name] for name, fold in folds.items()},
                cpu_seconds=sum(fold.cpu_seconds for fold in (*folds.values(), *self.nested.get(each, {}).values())),
                skipped=self.skipped.get(each, ""),
            )
            for each, folds in self.folds.items()
        )


def choose_best(values: Mapping[C, Sequence[float]]) -> C:
    """Return the first key with the highest mean.

    >>> choose_best({"a": [0.6, 0.8], "b": [0.7, 0.9], "c": [0.9, 0.7]})
    'b'
    """
    return max(values, key=lambda each: round(fmean(values[each]), 9))
