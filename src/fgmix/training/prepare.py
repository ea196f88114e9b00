"""A run before its first step: load the data, fill in the defaults, split the domains, build the networks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from fgmix.algorithms import Algorithm, create, get
from fgmix.data import DomainDataset, LoadOptions, Split, depends_on_trial, load, split_dataset
from fgmix.data.frozen import frozen_features
from fgmix.data.loading import BatchSource
from fgmix.data.sampling import ClassAwareSampler, PairedSampler, UniformSampler, sampling_weights
from fgmix.data.standardisation import Standardisation, fit_standardisation, standardise
from fgmix.errors import UserError, bad_value
from fgmix.networks import Featurizer, build_classifier, build_featurizer
from fgmix.networks.preprocessing import Normalisation
from fgmix.records.schema import ResolvedSpec, RunSpec
from fgmix.seeding import seed_torch
from fgmix.training.averaging import OverfitAware, RunningMean, WeightAverage
from fgmix.training.devices import pick_device
from fgmix.training.resolve import resolve

ON_FROZEN = "mlp"  # network trained on the features of a frozen backbone, as on other features


@dataclass(frozen=True)
class PreparedRun:
    """A run with all names and values checked, before training.

    Args:
        spec: its resolved spec.
        dataset: its data as the network sees them.
        splits: of every domain, by name.
        standard: the standardisation of features; None for images and for features that are not standardised.
    """

    spec: ResolvedSpec
    dataset: DomainDataset
    splits: dict[str, Split]
    standard: Standardisation | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(name for name in self.dataset.domain_names if name not in self.spec.test_domains)


def choose_load_options(spec: RunSpec, *, progress: bool = True) -> LoadOptions:
    """Return where and how a spec's dataset is loaded."""
    root = Path(spec.data_root) if spec.data_root else None
    trial_seed = spec.trial_seed if depends_on_trial(spec.dataset) else 0  # 0: trials share the loaded data
    return LoadOptions(root, spec.image_size or None, trial_seed, spec.skip_unreadable, progress)


def load_dataset(spec: RunSpec, *, progress: bool = True) -> DomainDataset:
    """Load the dataset of a spec; with `progress`, notes about it are printed."""
    dataset = load(spec.dataset, choose_load_options(spec, progress=progress))
    for note in dataset.notes if progress else ():
        print(f"note: {note}", file=sys.stderr)
    return dataset


def prepare(
    spec: RunSpec, dataset: DomainDataset | None = None, *, device: str = "auto", progress: bool = True
) -> PreparedRun:
    """Load the data, fill in the defaults, split the domains.

    Args:
        spec: the run.
        dataset: its dataset, if it is already loaded.
        device: where the features of a frozen backbone are computed.
        progress: show progress bars, and print notes about the data.
    """
    given: object = dataset
    if not isinstance(given, DomainDataset | None):
        hint = "Make one with fgmix.data.from_arrays(X, y, domains)."
        raise bad_value("dataset", "a DomainDataset or None", type(given).__name__, hint)
    dataset = dataset or load_dataset(spec, progress=progress)
    resolved = resolve(spec, dataset)
    return prepare_data(resolved, dataset, device=device, progress=progress)


def prepare_data(
    spec: ResolvedSpec, dataset: DomainDataset, *, device: str = "auto", progress: bool = True
) -> PreparedRun:
    """Split the domains of a run; resize and normalise images, or replace them by the features of a frozen backbone;
    standardise features.

    The standardisation is fitted to the training parts of the source domains only.
    """
    splits = split_dataset(dataset, spec.holdout_fraction, spec.trial_seed)
    if spec.interpolation:
        expected = Normalisation(spec.mean, spec.std, spec.interpolation)  # type: ignore[arg-type]
        dataset = dataset.normalise(expected)
    if spec.frozen:
        backbone, where = build_frozen_backbone(spec), pick_device(device)
        dataset = frozen_features(
            dataset, backbone, name=spec.backbone, views=spec.views, device=where, progress=progress
        )
    if not spec.standardize:
        return PreparedRun(spec, dataset, splits)
    sources = [domain for domain in dataset.domains if domain.name not in spec.test_domains]
    standard = fit_standardisation(((domain, splits[domain.name].train) for domain in sources), spec.tail)
    return PreparedRun(spec, standardise(dataset, standard), splits, standard)


def rehearse(spec: RunSpec, *, progress: bool = True) -> ResolvedSpec:
    """Resolve a spec and raise the errors that training would raise; nothing is downloaded or trained."""
    dataset = load_dataset(spec, progress=progress)
    resolved = resolve(spec, dataset)
    split_dataset(dataset, resolved.holdout_fraction, resolved.trial_seed)
    new_algorithm(resolved, len(dataset.classes), len(dataset.domains) - len(resolved.test_domains), blank=True)
    return resolved


def build_algorithm(run: PreparedRun) -> Algorithm:
    """Build the run's algorithm with its initial weights: the same for all algorithms with one seed and network."""
    return new_algorithm(run.spec, len(run.dataset.classes), len(run.sources))


def new_algorithm(spec: ResolvedSpec, n_classes: int, n_domains: int, *, blank: bool = False) -> Algorithm:
    """Build the algorithm of a resolved spec.

    Args:
        spec: the resolved spec.
        n_classes: number of classes.
        n_domains: number of source domains.
        blank: do not load pre-trained weights, for a network whose weights are all loaded from another file.
    """
    seed_torch("init", spec.seed)
    if spec.frozen:
        featurizer = build_featurizer(ON_FROZEN, (spec.code_size,), dropout=spec.dropout)
    else:
        featurizer = _build_backbone(spec, blank, dropout=spec.dropout, freeze_bn=spec.freeze_bn)
    classifier = build_classifier(spec.head, featurizer.out_features, n_classes)
    try:
        return create(
            spec.algorithm,
            featurizer=featurizer,
            classifier=classifier,
            n_domains=n_domains,
            **{**spec.settings, "steps": spec.steps},
        )
    except UserError as error:
        if not spec.frozen:
            raise
        raise UserError(
            f"Expected a method that trains on features, with --frozen. Found {spec.algorithm}, which needs images. "
            "Drop --frozen, or choose a method such as erm or fgmix."
        ) from error


def build_frozen_backbone(spec: ResolvedSpec, *, blank: bool = False) -> Featurizer:
    """Build the backbone of a run with `frozen`, images → features; `blank` as in `new_algorithm`."""
    return _build_backbone(spec, blank, dropout=0.0, freeze_bn=True).requires_grad_(False).eval()


def _build_backbone(spec: ResolvedSpec, blank: bool, *, dropout: float, freeze_bn: bool) -> Featurizer:
    return build_featurizer(
        spec.backbone,
        spec.input_shape,
        pretrained=spec.pretrained and not blank,
        weights=None if blank or not spec.weights else spec.weights,
        dropout=dropout,
        freeze_bn=freeze_bn,
        freeze=spec.freeze,
        channels_last=spec.channels_last,
        normalisation=_within_network(spec),
    )


def _within_network(spec: ResolvedSpec) -> Normalisation | None:
    """Return the normalisation within the network, for images in arrays, which are not resized; None for others."""
    return Normalisation(spec.mean, spec.std) if spec.mean and not spec.interpolation else None  # type: ignore[arg-type]


def build_average(spec: ResolvedSpec, algorithm: Algorithm) -> WeightAverage | None:
    """Build the weight average of a spec; None without one."""
    if spec.averaging == "swa":
        return RunningMean(algorithm, spec.averaging_start)
    return OverfitAware(algorithm, spec.averaging_start) if spec.averaging == "swad" else None


def compile_featurizer(algorithm: Algorithm, spec: ResolvedSpec) -> Algorithm:
    """Compile the featurizer if the spec says so; the names of its tensors do not change. Returns the algorithm."""
    if spec.compile:
        algorithm.featurizer.compile()
    return algorithm


def build_source(run: PreparedRun) -> BatchSource:
    """Return the batches of the run's source domains."""
    spec = run.spec
    domains = tuple(run.dataset.domains[run.dataset.index(name)] for name in run.sources)
    pools = tuple(run.splits[domain.name].train for domain in domains)
    labels = tuple(domain.y for domain in domains)
    weights = sampling_weights(domains, pools, balanced=spec.class_weight == "balanced")
    sampler: UniformSampler | ClassAwareSampler = UniformSampler(spec.seed, pools, spec.batch_size, weights)
    if spec.classes_per_batch:
        sampler = ClassAwareSampler(spec.seed, pools, labels, spec.batch_size, spec.classes_per_batch)
    paired = get(spec.algorithm).paired_batches
    return BatchSource(domains, PairedSampler(sampler, labels) if paired else sampler, spec.seed)
