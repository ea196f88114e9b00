"""Choose the recipe of a model by leave-one-domain-out, within a budget of time.

With a_r(e | S) the metric on domain e of recipe r trained on the domains S, and all of them D:

    r*  = choice_r  (a_r(e | D − e))_{e in D}                 the recipe of the model
    r_d = choice_r  (a_r(e | D − e − d))_{e ≠ d}              the recipe that the other domains choose
    estimate = mean_d a_{r_d}(d | D − d)                      of this procedure: domain d has no part in choosing r_d

`choice` is the recipe with the highest mean (`choose_best` has an exception for networks), among those that were not
far behind (`Trials._race`). max_r mean_e a_r(e | D − e) is no estimate: it is too high, because chance selects,
too. So is one that only leaves out the score of domain d and keeps a_r(e | D − e), trained with d: domains that are
alike by chance then choose what suits them (tests/deploy/test_choose.py simulates all three). Varma and Simon, "Bias in
error estimation when using cross-validation for model selection", 2006, https://doi.org/10.1186/1471-2105-7-91.

r_d needs trainings without pairs of domains. Where only one domain is left to train on after that, or where the budget
is too short, r_d is the recipe with the best metric on the holdout parts of D − d: a weaker choice, as honest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
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
from fgmix.progress import Progress, format_duration
from fgmix.records.code import describe_plug_in
from fgmix.records.evaluations import Metric, Rates, Share
from fgmix.records.files import make_folder, read_bytes, read_json, write_bytes, write_json
from fgmix.records.metrics import rates
from fgmix.records.model import Trial
from fgmix.records.schema import ResolvedSpec, RunSpec, to_plain
from fgmix.sweeps.calibrate import calibrate, estimate_cost
from fgmix.training.devices import pick_device
from fgmix.training.open_run import PartName, Predictor, draw_sample, find_device, train_and_open
from fgmix.training.prepare import PreparedRun, locate_activations, prepare_data, split_and_standardise
from fgmix.training.resolve import resolve

FOLDS, RUNS = "folds", "runs"  # folders in that of the model
TRIED = 0.5  # share of the budget to try recipes; the rest is for trainings without pairs of domains
TIMED = 2.0  # seconds to time a network that is not small before its first training
BATCH = 1024  # samples that a classifier predicts at a time
REACH = 0.1  # how far a recipe may be behind another one after the first domain
FEW = 9  # errors e of n samples: e / 3 exceeds its standard error, √e, from 9 on
CHEAP = 0.1  # seconds of a training
DEARER = 3.0  # times the cost of the recipe that it follows, or of all classifiers: one that takes longer is not tried


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


Values = dict[Candidate, list[float]]  # by candidate, the metric on the first domains


@dataclass
class Trials:
    """Trainings of the candidates on all domains but one, and on all but two.

    Args:
        candidates: what to try, in the order of preference.
        domains: names of the domains.
        samples: how many they have together.
        holdout: the share of them in the holdout parts.
        budget: seconds for all trainings; what earlier, interrupted calls spent on finished ones counts.
        progress: show a bar.
    """

    candidates: Sequence[Candidate]
    domains: Sequence[str]
    samples: int
    holdout: float
    budget: float
    progress: bool = True
    spent: float = 0.0  # seconds
    folds: dict[Candidate, dict[frozenset[str], Fold]] = field(default_factory=dict)  # by what was held out
    skipped: dict[Candidate, str] = field(default_factory=dict)  # why
    objections: dict[Candidate, str] = field(default_factory=dict)  # why a candidate was not worth while
    values: Values = field(default_factory=dict)  # on the domains
    nested: dict[str, Values] = field(default_factory=dict)  # without a domain
    is_nested: bool = False  # on the other domains, not on holdout samples of the domains trained on
    guesses: dict[Candidate, float] = field(init=False)  # seconds of a training

    def __post_init__(self) -> None:
        self.guesses = {each: each.guess_seconds() for each in self.candidates}

    def run(self) -> None:
        """Race the candidates on all domains, then without each domain on the others, if there is time for that.

        Classifiers come before networks, cheap before costly. A candidate that would exceed its share of the budget is
        skipped. Its cost is guessed before its first training, and taken from it after that; the first one is tried in
        any case.
        """
        k, guesses, order = len(self.domains), self.guesses, {}
        dearest = max(
            (guesses[each] for each in self.candidates if each.recipe.fit and not each.recipe.after), default=0
        )
        for each in self.candidates:
            parent = find_parent(each, self.candidates) or each
            order[each] = each.recipe.fit is None, guesses[parent], parent is not each, guesses[each]
            if guesses[each] > DEARER * guesses[parent]:
                self.skipped[each] = f"more than {DEARER:g} times as long as {parent.recipe.name}"
            elif parent is each and each.is_small_network and guesses[each] > DEARER * dearest > 0:
                self.skipped[each] = f"more than {DEARER:g} times as long as any classifier"
        racing = sorted((each for each in self.candidates if each not in self.skipped), key=order.__getitem__)
        with Progress("fit", len(racing) * k, "trainings", show=self.progress) as bar:

            def measure(each: Candidate, domain: str) -> float | None:
                bar.skip(k * racing.index(each) + self.domains.index(domain) - bar.done)
                done = self.folds.get(each, {})
                seconds = fmean(fold.seconds for fold in done.values()) if done else guesses[each]
                needed = seconds * (k + 2 - len(done) - bool(done))
                left = max(TRIED * self.budget - self.spent, 0)
                if each is not racing[0] and needed > left:
                    self.skipped[each] = f"{format_duration(needed)} needed, {format_duration(left)} left"
                    return None
                value = self._train(each, bar, domain).values[domain]
                bar.advance()
                return value

            self.values = self._race(racing, self.domains, measure, self.samples)
            bar.skip(k * len(racing) - bar.done)
        self._nest([each for each in racing if each in self.values and each not in self.skipped])

    def _nest(self, racing: Sequence[Candidate]) -> None:
        """Race what was tried without each domain on the others, each pair held out of training, if there is time.

        Otherwise it races by the metric on holdout samples of the other domains.
        """
        k, pairs = len(self.domains), list(combinations(self.domains, 2))
        able = [each for each in racing if each.min_domains <= k - 2]
        counts = {each: len(pairs) if len(values) == k else k for each, values in self.values.items() if each in able}
        cost = sum(n * fmean(fold.seconds for fold in self.folds[each].values()) for each, n in counts.items())
        self.is_nested = len(able) > 1 and self.spent + cost <= self.budget
        if self.is_nested:
            racing = able
        with Progress("choose", len(pairs) * len(racing), "trainings", show=self.progress and self.is_nested) as bar:

            def measure_pair(each: Candidate, other: str, domain: str) -> float:
                pair = [name for name in self.domains if name in (domain, other)]
                bar.advance(frozenset(pair) not in self.folds.get(each, {}))
                return self._train(each, bar, *pair).values[other]

            for i, domain in enumerate(self.domains):
                # Symmetric in i and j, so that both domains of a pair come to it early or late: what falls behind
                # after two of six domains has trained 7 pairs instead of 9.
                others = [self.domains[j] for j in sorted(range(k), key=lambda j: (i + j) % k) if j != i]
                if self.is_nested:
                    self.nested[domain] = self._race(racing, others, partial(measure_pair, domain=domain), self.samples)
                else:
                    self.nested[domain] = self._race(
                        racing,
                        [domain],
                        lambda each, name: self._train(each, bar, name).in_domain_value,
                        self.holdout * self.samples,
                    )
            bar.skip(bar.total - bar.done)

    def _race(
        self,
        candidates: Sequence[Candidate],
        domains: Sequence[str],
        measure: Callable[[Candidate, str], float | None],
        samples: float,
    ) -> Values:
        """Measure candidates one after the other on domains; `measure` returns None for one to be left out.

        One that is too far behind another one, on the domains that both were measured on, is not measured on the rest.
        Candidates `by_domain` do not compete with the rest, which can predict a sample alone, but the rest
        do with them.
        """
        values: Values = {}
        for each in candidates:
            rivals = {other: v for other, v in values.items() if other.by_domain <= each.by_domain}
            means = {other: fmean(v) for other, v in rivals.items() if len(v) == len(domains)}
            if means and (why := self._object(each, means, samples)):
                self.objections.setdefault(each, why)
                continue
            found: list[float] = []
            for number, domain in enumerate(domains, 1):
                if (value := measure(each, domain)) is None:
                    break
                values[each] = found
                found.append(value)
                ahead = {r: fmean(v[:number]) - fmean(found) for r, v in rivals.items() if len(v) >= number}
                if any(gap > _set_reach(each, rival, number) for rival, gap in ahead.items()):
                    break
        return values

    def _object(self, each: Candidate, means: Mapping[Candidate, float], samples: float) -> str:
        """Say why not to measure a candidate, from the means of others; empty if it is worth while.

        One that follows a recipe is, if that or another one that follows it is the best. One that is not cheap is, if
        the best makes errors enough: a third fewer than `FEW` would not be more than chance.
        """
        best = max(means, key=means.__getitem__)
        is_akin = best.by_domain == each.by_domain and each.recipe.after in (best.recipe.name, best.recipe.after)
        parent = find_parent(each, self.candidates)
        if parent and not is_akin:
            return f"{parent.recipe.name} is not the best"
        is_worth_while = self.guesses[each] < CHEAP or (1 - means[best]) * samples > FEW
        return "" if is_worth_while else "simpler ones make few errors"

    def _train(self, each: Candidate, bar: Progress, *held_out: str) -> Fold:
        """Train a candidate once; read the result after that."""
        folds, key = self.folds.setdefault(each, {}), frozenset(held_out)
        if key not in folds:
            bar.advance(0, f"{each.title} without {' and '.join(held_out)}")
            folds[key] = each.train(*held_out)
            self.spent += folds[key].seconds
        return folds[key]

    def choose(self, *, by_domain: bool = False) -> Candidate | None:
        """Choose a candidate, among those `by_domain` or the others; None if no such candidate kept up."""
        kept = [each for each in self.candidates if len(self.values.get(each, ())) == len(self.domains)]
        group = {each: self.values[each] for each in kept if each.by_domain is by_domain}
        return choose_best(group) if group else None

    def choose_without(self, domain: str, *, by_domain: bool = False) -> Candidate:
        """Return the candidate that the other domains choose; `domain` has no part in it."""
        found = self.nested[domain]
        values = {each: found[each] for each in self.candidates if each in found and each.by_domain is by_domain}
        if not values:  # they are not worth while among the others
            return next(each for each in self.candidates if each.by_domain is by_domain and each in self.values)
        longest = max(map(len, values.values()))
        return choose_best({each: v for each, v in values.items() if len(v) == longest})

    def describe(self) -> tuple[Trial, ...]:
        """List what was tried and skipped, for the record of the choice."""
        return tuple(map(self._describe, sorted(self.candidates, key=lambda each: each not in self.values)))

    def _describe(self, each: Candidate) -> Trial:
        values, why = self.values.get(each, []), self.skipped.get(each, "")
        if not why and not values:
            why = self.objections[each]
        elif not why and len(values) < len(self.domains):
            why = f"behind on {', '.join(list(self.domains)[: len(values)])}"
        return Trial(
            recipe=each.recipe.name,
            about=each.recipe.about,
            by_domain=each.by_domain,
            values={} if why else dict(zip(self.domains, values)),
            cpu_seconds=sum(fold.cpu_seconds for fold in self.folds.get(each, {}).values()),
            skipped=why,
        )


def _set_reach(candidate: Candidate, rival: Candidate, domains: int) -> float:
    """Set how far a candidate may be behind a rival after some domains: the more, the less.

    From the second domain on, a network may not be behind a classifier, because `choose_best` wants it to be ahead.
    """
    needs_lead = candidate.recipe.fit is None and rival.recipe.fit is not None
    return 0.0 if needs_lead and domains > 1 else REACH / domains


def find_parent(candidate: Candidate, others: Iterable[Candidate]) -> Candidate | None:
    """Find the candidate that another one follows."""
    after, by_domain = candidate.recipe.after, candidate.by_domain
    return next((each for each in others if (each.recipe.name, each.by_domain) == (after, by_domain)), None)


def choose_best(values: Mapping[Candidate, Sequence[float]]) -> Candidate:
    """Choose the candidate with the highest mean; a network only if it is more than a standard error above classifiers.

    The error is that of the mean of paired differences from the best classifier: a few domains often favour a network
    by chance, whose result also depends on its seed. With a single domain, the mean decides.
    """
    best = _find_best(values)
    fitted = {each: own for each, own in values.items() if each.recipe.fit}
    if not fitted or best in fitted:
        return best
    rival = _find_best(fitted)
    ahead = [b - r for b, r in zip(values[best], fitted[rival], strict=True)]
    error = stdev(ahead) / len(ahead) ** 0.5 if len(ahead) > 1 else 0.0
    return best if fmean(ahead) > error else rival


def _find_best(values: Mapping[Candidate, Sequence[float]]) -> Candidate:
    return max(values, key=lambda each: round(fmean(values[each]), 9))
