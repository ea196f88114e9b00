"""The content of `model.json`: how a model was trained, and what to expect of it. A new field is one line here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import stdev
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from fgmix.errors import UserError
from fgmix.records.columns import Column
from fgmix.records.digests import Damaged
from fgmix.records.evaluations import METRIC_NAMES, Metric, Metrics, Model, Share
from fgmix.records.files import may_exist, read_json, write_json
from fgmix.records.options import About, check_options
from fgmix.records.protocols import Kind
from fgmix.records.schema import Count, Positive, ResolvedSpec, to_plain

INFO = "model.json"
SCHEMA: Literal[6] = 6
WIDE = 0.6  # width above which an interval for one more domain excludes little
TARGET = 0.9  # accuracy of trusted predictions

Dtype = Literal["uint8", "uint16", "float32", "float64"]
Combination = Literal["uniform", "greedy", "ensemble", "interpolation"]

TargetShare = Annotated[float, Meta(gt=0, le=1)]
Images = Annotated[int, Meta(ge=0, le=1000)]
Temperature = Annotated[float, Meta(gt=0)]


class Terms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to trust a model, and its licence and use for the card.

    Example:
        >>> Terms(target_accuracy=0.99).min_confidence is None
        True
    """

    min_confidence: Annotated[
        Share | None,
        About("predictions below this confidence are not trusted; chosen for --target-accuracy by default", "Model"),
    ] = None
    target_accuracy: Annotated[TargetShare, About("accuracy among trusted predictions for unseen domains", "Model")] = (
        TARGET
    )
    heatmaps: Annotated[Images, About("images of which the card shows heat maps (needs fgmix[heatmaps])", "Model")] = 0
    licence: Annotated[str, About("licence of the model, for its card", "Model")] = ""
    intended_use: Annotated[str, About("intended use of the model, for its card", "Model")] = ""

    def __post_init__(self) -> None:
        check_options(self)


class PredictionSummary(Struct, frozen=True, forbid_unknown_fields=True):
    """How predictions for many samples are distributed: what `fgmix monitor` compares a batch with."""

    samples: Count
    mean_confidence: float  # calibrated
    novel: Share  # share of samples flagged as novel
    confidence: tuple[float, ...]  # quantiles at equal steps, from the smallest value to the largest
    novelty: tuple[float, ...]  # likewise
    classes: tuple[Count, ...]  # number of predictions of each class


class UnseenDomain(Struct, frozen=True, forbid_unknown_fields=True):
    """Results on a domain while it was held out."""

    domain: str  # its name
    metrics: Metrics  # of the network trained on the other domains, on all of its samples
    in_domain_accuracy: Share  # of the same network on held-out samples of its source domains
    unknown: Share  # share of samples whose class no other domain has, which this network cannot predict correctly
    confidence: float  # mean calibrated confidence; equal to the accuracy if the calibration is perfect
    calibration_error: float  # expected calibration error, with a temperature fitted on the other domains
    novel: Share  # share of samples flagged as novel, by a limit chosen on the other domains
    novel_accuracy: Share | None  # accuracy on those; None if there are none
    trusted: Share  # share of samples whose prediction is trusted, by a rule chosen on the other domains
    trusted_accuracy: Share | None  # accuracy on those; None if there are none
    predictions: PredictionSummary | None = None  # of the same network; None in models made before it
    reference: PredictionSummary | None = None  # of the same network for held-out samples of its source domains

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.metrics.samples

    @property
    def accuracy(self) -> float:
        """Accuracy on all samples."""
        return self.metrics.accuracy


class TrustRule(Struct, frozen=True, forbid_unknown_fields=True):
    """When a prediction is trusted: if it is confident enough for its class and its sample is not novel."""

    target: TargetShare | None  # target accuracy of trusted predictions; None if the user set the confidence
    min_confidence: Share | None  # minimum confidence of trusted predictions of any class; None: nothing is trusted
    # minimum confidence of trusted predictions of each class; None: none of the class is trusted
    by_class: tuple[Share | None, ...]
    uses_novelty: bool  # whether the novelty of codes is informative, and used
    novel_above: tuple[float, float]  # limit of each part of novelty, above which a sample is novel
    # P(a wrong prediction is more novel than a correct one), mean over domains; None if no domain has both
    wrong_auroc: float | None
    noise_auroc: float | None  # P(noise is more novel than a sample), mean over domains; None without noise

    @property
    def limits(self) -> tuple[float, float]:
        """`novel_above`, infinite for codes whose novelty is not used."""
        code, size = self.novel_above
        return code if self.uses_novelty else math.inf, size


class TrustLevel(Struct, frozen=True, forbid_unknown_fields=True):
    """Samples of held-out domains that are not novel and are predicted with at least this confidence.

    Only samples whose class another domain has are counted.
    """

    confidence: Share  # the level
    coverage: Share  # their share of the samples, with equal weight for each domain
    accuracy: float | None  # on those, with the same weights; None if there are none


class Bin(NamedTuple):
    """Predictions of similar confidence: mean confidence, accuracy, share of all predictions."""

    confidence: float
    accuracy: float
    share: float


class PredictedClass(Struct, frozen=True, forbid_unknown_fields=True):
    """Predictions of one class on held-out domains: an average over classes would hide rare ones."""

    predicted: Count  # number of predictions
    trusted: Count  # how many of these are trusted, by rules chosen on the other domains
    correct: Count  # how many of the trusted are correct

    @property
    def trusted_share(self) -> float | None:
        """Share of the predictions that are trusted; None if there are no predictions."""
        return self.trusted / self.predicted if self.predicted else None

    @property
    def trusted_accuracy(self) -> float | None:
        """Accuracy on trusted predictions; None if there are none."""
        return self.correct / self.trusted if self.trusted else None


class OperatingPoint(Struct, frozen=True, forbid_unknown_fields=True):
    """The threshold on the probability of a class for a wanted sensitivity, and what it gave on held-out domains."""

    wanted: Share  # sensitivity
    threshold: float | None  # chosen on all held-out domains; None if they do not share the class
    # means over held-out domains, each with the threshold that the others choose; None if there is none
    sensitivity: float | None
    lowest: float | None  # sensitivity of a domain
    specificity: float | None


class Overlap(Struct, frozen=True, forbid_unknown_fields=True):
    """How far the domains show the same objects, so that a held-out domain is not new in every respect."""

    groups: Share | None  # share of the samples whose group another domain has, too; None without groups
    near_duplicates: Count | None  # images with a near-duplicate in another domain; None for other data
    twins: Count | None = None  # images with a twin in another domain, by features; None without features of images


class NewObjects(Struct, frozen=True, forbid_unknown_fields=True):
    """The estimate for groups, such as patients, that no training sample shows; means over held-out domains.

    Their samples in other domains are holdout samples, which took part in choosing the recipe, and a network's step.
    """

    metric: Metric  # accuracy, or balanced accuracy
    value: Share
    known: Share  # of groups that training samples show
    groups: Count  # new ones, all domains together
    trusted: Share  # of the predictions for new groups
    trusted_accuracy: Share | None  # of these; None if none is trusted


class Estimate(Struct, frozen=True, forbid_unknown_fields=True):
    """Estimate for a new domain."""

    domains: tuple[UnseenDomain, ...]  # results on each domain while it was held out
    accuracy: Share  # mean over domains
    metric: Metric  # the metric that is reported first
    value: Share  # its mean over domains
    # 95 % prediction interval for its value on one more domain; None with fewer than three domains
    interval: tuple[Share, Share] | None
    temperature: Temperature  # fitted on all held-out domains
    trust: TrustRule  # when a prediction is trusted, chosen on all held-out domains
    levels: tuple[TrustLevel, ...]  # coverage and accuracy by confidence
    reliability: tuple[Bin, ...]  # accuracy by confidence, each domain with a temperature fitted on the others
    predicted: tuple[PredictedClass, ...]  # predictions by class, all domains together
    # by class and wanted sensitivity; empty for many classes, and in models made before it
    operating: tuple[tuple[OperatingPoint, ...], ...] = ()
    # by class, for sensitivities of 0.01, 0.02, …, 1; likewise
    thresholds: tuple[tuple[float, ...], ...] = ()
    # standard deviation of the value by the number of samples alone, the least that the interval uses
    floor: float = 0.0
    new_objects: NewObjects | None = None  # None unless some groups are in several domains, and some are not trained on

    @property
    def has_few_samples(self) -> bool:
        """Whether the number of samples, and not how the domains differ, sets the width of the interval."""
        values = [domain.metrics.value(self.metric) for domain in self.domains]
        return self.interval is not None and stdev(values) < self.floor

    @property
    def is_informative(self) -> bool:
        """Whether there is an interval that excludes much."""
        return self.interval is not None and self.interval[1] - self.interval[0] <= WIDE

    @property
    def metrics(self) -> dict[str, Metrics]:
        """By domain."""
        return {domain.domain: domain.metrics for domain in self.domains}


class Trial(Struct, frozen=True, forbid_unknown_fields=True):
    """A recipe that `fit` tried, or skipped."""

    recipe: str  # its name
    about: str  # one line
    by_domain: bool  # whether each domain was standardised by itself, as `predict --adapt` does
    values: dict[str, Share]  # the metric by held-out domain; empty if it was skipped
    cpu_seconds: float  # of all trainings and predictions, without those for the model
    skipped: str = ""  # why it was not tried on all domains; empty if it was

    @property
    def mean(self) -> float:
        """Mean over the held-out domains; 0 if it was skipped."""
        return sum(self.values.values()) / len(self.values) if self.values else 0.0


class Choice(Struct, frozen=True, forbid_unknown_fields=True):
    """How `fit` chose a recipe."""

    asked: str  # digest of what the user asked for
    recipe: str  # the model's: highest mean over all held-out domains; a network only if it is clearly ahead
    without: dict[str, str]  # by domain, the recipe that the other domains choose, whose result the estimate reports
    nested: bool  # whether they choose by leave-one-domain-out, too, or by the holdout parts of the source domains
    best: Share  # highest mean over the held-out domains, which is too high for an estimate: it was selected
    trials: tuple[Trial, ...]  # in the order of their cost
    budget: float  # seconds
    seconds: float  # spent
    given: dict[str, Any] | None = None  # options of a run that the user gave; None in models made before it


class HeatMap(Struct, frozen=True, forbid_unknown_fields=True):
    """An image beside its heat map: where the evidence for the predicted class lies."""

    file: str  # in the model's folder
    domain: str
    label: str
    predicted: str
    confidence: float


class BatchGain(Struct, frozen=True, forbid_unknown_fields=True):
    """Accuracy on batches of held-out domains, mean over domains."""

    samples: Count  # of a batch
    adapted: Share  # with the batch's own statistics
    plain: Share  # of the model that is not adapted, on the same samples


class Adaptation(Struct, frozen=True, forbid_unknown_fields=True):
    """What to expect of `predict --adapt`: predictions with the statistics of their batch."""

    recipe: str  # chosen like the model's, among recipes with each domain standardised by itself
    about: str  # one line
    spec: ResolvedSpec  # of its training
    without: dict[str, str]  # as in `Choice`
    estimate: Estimate  # where a whole domain is one batch
    sizes: tuple[BatchGain, ...]  # by size of the batch, drawn from one domain
    skewed: BatchGain  # where three quarters of a batch are of one class
    least: Count | None  # size from which on it never lowered the accuracy; None if there is none


class Composition(Struct, frozen=True, forbid_unknown_fields=True):
    """The runs that a soup or an ensemble is made of, and how they were selected."""

    kind: Combination  # how they are combined
    weights: Model  # which weights of each run: raw or swa, at the step that its validation selects, or swad
    runs: tuple[str, ...]  # names of the runs used
    left_out: tuple[str, ...]  # names of the runs that were given and not used
    # value of the metric of each run's own weights on the holdout parts of the training domains
    validation: dict[str, float]
    unseen: dict[str, float]  # accuracy of the model on all samples of each domain that the runs held out
    methods: tuple[str, ...] = ()  # labels of the methods of the runs given, sorted
    metric: Metric = "accuracy"  # what the runs are selected by
    alpha: Share | None = None  # share of the second end of an interpolation

    @property
    def members(self) -> int:
        """Number of networks in the model."""
        return len(self.runs) if self.kind == "ensemble" else 1

    @property
    def title(self) -> str:
        """Name in tables, without the number of runs, which may differ between test domains.

        >>> Composition("greedy", "raw", ("a", "b"), ("c",), {}, {}).title
        'greedy soup'
        >>> Composition("ensemble", "raw", ("a", "b"), (), {}, {}, ("CORAL", "ERM")).title
        'ensemble of CORAL and ERM'
        >>> Composition("interpolation", "raw", ("a",), (), {}, {}, alpha=0.5).title
        'WiSE-FT, α = 0.5'
        """
        if self.kind == "interpolation":
            title = f"{'WiSE-FT' if len(self.runs) == 1 else 'interpolation'}, α = {self.alpha:g}"
        else:
            title = "ensemble" if self.kind == "ensemble" else f"{self.kind} soup"
        return f"{title} of {_join(self.methods)}" if len(self.methods) > 1 else title

    def describe(self) -> list[str]:
        """Describe composition and selection, in sentences."""
        metric, n, several = METRIC_NAMES[self.metric], len(self.runs), len(self.methods)
        made = {
            "uniform": f"Uniform soup: the mean of the weights of {n} runs.",
            "greedy": f"Greedy soup: the mean of the weights of {n} of {n + len(self.left_out)} runs.",
            "ensemble": f"Ensemble: the mean of the logits of {n} models, one of each run.",
            "interpolation": f"Interpolation, {self.alpha or 0:g} of the way from the "
            + ("initial weights of the run to its own." if n == 1 else "first run to the second."),
        }
        steps = "" if self.weights == "swad" else f" at the step that the validation {metric} of the run selects"
        selection = "All runs given were used: nothing selected among them."
        if self.kind == "greedy":
            selection = (
                f"In the order of their validation {metric}, a run was added if the validation {metric} of the mean "
                "did not fall."
            )
        validation = (
            f"Validation {metric} is the mean over the training domains of the {metric} on their holdout parts."
        )
        if self.unseen:
            validation += f" No sample of {', '.join(self.unseen)} was used for training or selection."
        return [
            made[self.kind],
            *([f"The runs given are of {several} methods: {_join(self.methods)}."] if several > 1 else []),
            f"Of each run, its {self.weights} weights{steps}.",
            selection,
            validation,
        ]


class ModelInfo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `model.json`."""

    spec: ResolvedSpec  # the resolved spec of the run that made it
    run: str  # that run's name, which contains a digest of the spec
    dataset: str  # name of the training data
    data_fingerprint: str  # digest of the training data
    kind: Kind  # of the training data
    input_shape: Annotated[tuple[Positive, ...], Meta(min_length=1)]  # shape of the network's inputs
    dtype: Dtype  # of the training samples; uint8 and uint16 are scaled to [0, 1], floats are not
    classes: tuple[str, ...]  # names, in the order of probabilities
    domains: tuple[str, ...]  # names of the domains that it was trained on
    # by class; a prediction below it is not trusted. None: no prediction of the class is trusted
    min_confidence: tuple[Share | None, ...]
    estimate: Estimate | None  # for an unseen domain; None if it was not measured
    in_domain_accuracy: Share  # on held-out samples of its own domains
    notes: tuple[str, ...]  # on the data, such as files left out, and on the training
    fgmix_version: str  # the version that made it
    composition: Composition | None = None  # the runs that it is made of; None for a model of one run
    date: str = ""  # on which it was trained, such as 2026-01-31
    terms: Terms = Terms()  # options about trust and use
    counts: tuple[tuple[Count, ...], ...] = ()  # samples by domain (row) and class (column)
    groups: tuple[Count, ...] = ()  # number of groups, such as patients, by domain; empty without groups
    columns: tuple[Column, ...] = ()  # of a table, which the features encode
    # how tensors of a weights file were matched with the backbone's, "by name" or "by order"; None without a file
    weights_matched: str | None = None
    # the metric of its estimate on held-out samples of its own domains; None without an estimate
    in_domain_value: Share | None = None
    weights: str = ""  # digest of the file of its weights; empty before it is written
    choice: Choice | None = None  # how the recipe was chosen; None if the user named the method
    overlap: Overlap | None = None  # of its domains; None in models made before it
    sources: tuple[str, ...] = ()  # paths of its data, if domains were added; else `spec` has the path
    heatmaps: tuple[HeatMap, ...] = ()  # of holdout samples of its own domains, if they are asked for
    familiar: PredictionSummary | None = None  # for holdout samples of its own domains; None in models made before it
    adaptation: Adaptation | None = None  # to a batch of a new domain; None if it did not help, or was not tried
    schema: Literal[6] = SCHEMA  # version of this schema


def write_info(folder: Path, info: ModelInfo) -> None:
    """Write the `model.json` of a model's folder."""
    content = {**to_plain(info), "spec": to_plain(info.spec)}
    for name in ("groups", "columns", "choice", "adaptation"):
        if not content[name]:
            del content[name]  # so that models of earlier versions do not change
    if info.composition and info.composition.alpha is None:
        del content["composition"]["alpha"]
    write_json(folder / INFO, content)


def read_info(folder: Path) -> ModelInfo:
    """Read the `model.json` of a model's folder, checked against the schema."""
    if not may_exist(folder / INFO):
        raise UserError(f"{folder} is not a model: {INFO} is missing. `fgmix fit` creates one.")
    try:
        content = read_json(folder / INFO)
        if content.get("schema") != SCHEMA:
            raise UserError(
                f"Expected a model of schema {SCHEMA} at {folder}. Found {content.get('schema')}. Make it again."
            )
        return _check_lengths(msgspec.convert(content, ModelInfo))
    except (Damaged, msgspec.ValidationError) as error:
        raise explain_broken(folder, error) from error


def explain_broken(folder: Path, error: Exception) -> Damaged:
    """Make the error for a model that is not whole, from the one that reading it raised."""
    reason = str(error).partition("\n")[0].rstrip(".")  # torch's messages may fill a page
    if isinstance(error, msgspec.ValidationError):
        reason = f"{INFO}: {reason.replace('`$.', '`')}"
    elif not isinstance(error, UserError):
        reason = f"{type(error).__name__}: {reason}"
    return Damaged(
        f"Expected a whole model at {folder}. Found one that is not ({reason}). "
        f"Delete its {INFO} and run `fgmix fit` again: its runs are kept."
    )


def _check_lengths(info: ModelInfo) -> ModelInfo:
    """Return the content; raise an error if a table by class has not a value for each."""
    by_class: dict[str, Sequence[object]] = {f"counts[{i}]": row for i, row in enumerate(info.counts)}
    by_class["min_confidence"] = info.min_confidence
    if info.estimate:
        by_class |= {"estimate.trust.by_class": info.estimate.trust.by_class}
        by_class |= {"estimate.predicted": info.estimate.predicted}
    for name, values in by_class.items():
        if len(values) != len(info.classes):
            raise msgspec.ValidationError(f"Expected {len(info.classes)} values, got {len(values)} - at `$.{name}`")
    return info


def _join(names: tuple[str, ...]) -> str:
    """Join at least two names for a sentence."""
    return f"{', '.join(names[:-1])} and {names[-1]}"
