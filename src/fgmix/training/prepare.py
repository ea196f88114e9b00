"""A run before its first step: load the data, fill in the defaults, split the domains, build the networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from msgspec import structs
from torch import nn
from torch.nn.functional import cross_entropy

from fgmix import algorithms, data
from fgmix.algorithms import Algorithm, Task, create, get
from fgmix.data import DomainDataset, LoadOptions, Split, depends_on_trial, load, split_dataset
from fgmix.data.activations import ActivationCache
from fgmix.data.dataset import Listed, find_listed
from fgmix.data.loading import BatchSource, deliver
from fgmix.data.sampling import ClassAwareSampler, PairedSampler, UniformSampler, spread_weights, weigh_samples
from fgmix.data.standardisation import Standardisation, fit_standardisation, standardise
from fgmix.data.transforms import transform_dataset
from fgmix.errors import UserError, bad_value
from fgmix.networks import Featurizer, build_classifier, build_featurizer
from fgmix.networks.lora import add_adapters
from fgmix.networks.names import is_clip
from fgmix.networks.parts import Front, recompute_blocks, split_network
from fgmix.networks.preprocessing import Normalisation, find_image_size
from fgmix.networks.registry import OWN_BACKBONES, check_backbone
from fgmix.networks.text import TEXT_HEADS, TextHead
from fgmix.progress import Progress
from fgmix.records.protocols import PROTOCOLS
from fgmix.records.schema import ResolvedSpec, RunSpec
from fgmix.seeding import seed_hash, seed_torch
from fgmix.terminal import print_notes
from fgmix.training.averaging import OverfitAware, RunningMean, WeightAverage
from fgmix.training.devices import autocast, pick_device
from fgmix.training.resolve import resolve
from fgmix.training.text import build_text, embed_texts

ON_FROZEN = "mlp"  # network trained on the features of a frozen backbone, as on other features
WARMUP_LR = 1e-3  # Adam's default: the classifier starts from random weights, whatever the network's learning rate


@dataclass(frozen=True)
class PreparedRun:
    """A run with all names and values checked, before training."""

    spec: ResolvedSpec
    dataset: DomainDataset  # as the network sees it
    splits: dict[str, Split]  # of every domain, by name
    standard: Standardisation | None = None  # None for samples that are not standardised
    listed: Listed = field(default_factory=dict)  # samples in lists, which are counted apart

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(name for name in self.dataset.domain_names if name not in self.spec.test_domains)


def choose_load_options(spec: RunSpec, *, progress: bool = True) -> LoadOptions:
    """Return where and how a spec's dataset is loaded."""
    root = Path(spec.data_root) if spec.data_root else None
    shared = spec.trial_seed == 0 or not depends_on_trial(spec.dataset)
    trial_seed = 0 if shared else spec.trial_seed  # 0: trials share the loaded data
    named = spec.backbone or PROTOCOLS[spec.protocol].backbone
    preferred = find_image_size(named) if named and named not in OWN_BACKBONES else None
    size = spec.image_size or None
    skip, window = spec.skip_unreadable, spec.window
    return LoadOptions(root, size, trial_seed, skip, progress, window=window, preferred_size=preferred)


def load_dataset(spec: RunSpec, *, progress: bool = True) -> DomainDataset:
    """Load the dataset of a spec; with `progress`, notes about it are printed."""
    dataset = load(spec.dataset, choose_load_options(spec, progress=progress))
    if progress and dataset.notes:
        print_notes(*dataset.notes)
    return dataset


def describe_code(spec: RunSpec) -> str:
    """Describe the code of a run's method and, if it is of a plug-in, of its dataset."""
    own = data.describe_code(spec.dataset)
    return algorithms.describe_code(spec.algorithm) + (f", data {own}" if own else "")


def prepare(
    spec: RunSpec, dataset: DomainDataset | None = None, *, device: str = "auto", progress: bool | Progress = True
) -> PreparedRun:
    """Load the data if they are not given, fill in the defaults, split the domains.

    The device is where the activations of a frozen network are computed; with `progress`, bars are shown and notes
    about the data printed.
    """
    given: object = dataset
    if not isinstance(given, DomainDataset | None):
        hint = "Make one with fgmix.data.from_arrays(X, y, domains)."
        raise bad_value("dataset", "a DomainDataset or None", type(given).__name__, hint)
    dataset = dataset or load_dataset(spec, progress=bool(progress))
    resolved = resolve(spec, dataset)
    if resolved.on_activations:
        run = prepare_data(resolved, dataset, device=device, progress=progress)
    else:
        run = split_and_standardise(resolved, dataset)
    return replace(run, listed=find_listed(dataset, spec.image_lists)) if spec.image_lists else run


def prepare_data(
    spec: ResolvedSpec, dataset: DomainDataset, *, device: str = "auto", progress: bool | Progress = True
) -> PreparedRun:
    """Split the domains of a run; resize and normalise images, or replace them by the activations of a frozen network;
    standardise arrays.

    The standardisation is fitted to the training parts of the source domains only.
    """
    if spec.on_activations:
        cache = locate_activations(spec, dataset, device=device)
        cache.fill(progress=progress)
        dataset = cache.read()
    return split_and_standardise(spec, dataset)


def split_and_standardise(spec: ResolvedSpec, dataset: DomainDataset) -> PreparedRun:
    """Prepare a run on images, features or activations."""
    if spec.interpolation and not spec.on_activations:
        dataset = dataset.normalise(Normalisation(spec.mean, spec.std, spec.interpolation))
    splits = split_dataset(dataset, spec.holdout_fraction, spec.trial_seed)
    standard = None
    if spec.standardize:
        sources = [domain for domain in dataset.domains if domain.name not in spec.test_domains]
        standard = fit_standardisation(((domain, splits[domain.name].train) for domain in sources), spec.tail)
        dataset = standardise(dataset, standard)
    return PreparedRun(spec, transform_dataset(dataset, spec.augment) if spec.augment else dataset, splits, standard)


def rehearse(spec: RunSpec, *, progress: bool = True) -> ResolvedSpec:
    """Resolve a spec and raise the errors that training would raise; nothing is downloaded or trained."""
    dataset = load_dataset(spec, progress=progress)
    resolved = resolve(spec, dataset)
    split_dataset(dataset, resolved.holdout_fraction, resolved.trial_seed)
    sources = [name for name in dataset.domain_names if name not in resolved.test_domains]
    new_algorithm(resolved, dataset.classes, sources, blank=True, recompute=resolved.checkpoint_activations)
    return resolved


def build_algorithm(run: PreparedRun) -> Algorithm:
    """Build the run's algorithm with its initial weights: the same for all algorithms with one seed and network."""
    return new_algorithm(run.spec, run.dataset.classes, run.sources, recompute=run.spec.checkpoint_activations)


def new_algorithm(
    spec: ResolvedSpec,
    classes: Sequence[str],
    domains: Sequence[str],
    *,
    blank: bool = False,
    recompute: bool = False,
) -> Algorithm:
    """Build the algorithm of a resolved spec, for the named classes and source domains.

    With `blank`, pre-trained weights are not loaded: for a network whose weights are all loaded from another file. With
    `recompute`, blocks of the network do not store activations, which only matters in training.
    """
    if spec.frozen:
        seed_torch("init", spec.seed)
        featurizer = build_featurizer(ON_FROZEN, (spec.code_size,), dropout=spec.dropout)
    else:
        featurizer = _build_backbone(spec, blank, dropout=spec.dropout, freeze_bn=spec.freeze_bn)
        if spec.on_activations:
            _, featurizer = split_network(featurizer, spec.freeze)
    if recompute:
        recompute_blocks(featurizer)
    if spec.head in TEXT_HEADS:
        classifier: nn.Module = _build_text_head(spec, featurizer.out_features, len(classes), blank)
    else:
        classifier = build_classifier(spec.head, featurizer.out_features, len(classes))
    task = _describe_task(spec, classes, domains, blank) if get(spec.algorithm).needs_task else None
    settings = {**spec.settings, "steps": spec.steps}
    try:
        return create(
            spec.algorithm,
            featurizer=featurizer,
            classifier=classifier,
            n_domains=len(domains),
            task=task,
            **settings,
        )
    except UserError as error:
        if not spec.on_activations:
            raise
        option = "--frozen" if spec.frozen else "--views"
        raise UserError(
            f"Expected a method that trains on features, with {option}. Found {spec.algorithm}, which needs images. "
            f"Drop {option}, or choose a method such as erm or fgmix."
        ) from error


def _build_text_head(spec: ResolvedSpec, code_size: int, n_classes: int, blank: bool) -> TextHead:
    """Build a classifier of text embeddings; with `blank` they are not computed, because a file replaces them."""
    embeddings, scale = torch.ones(n_classes, code_size), 1.0
    if not blank:
        with torch.random.fork_rng(devices=[]):  # a cached embedding must not change what is random after it
            embeddings, scale, _ = embed_texts(spec)
        if embeddings.shape[1] != code_size:
            raise UserError(
                f"Expected codes of {embeddings.shape[1]} numbers, as wide as the text embeddings. Found {code_size}. "
                "Drop --frozen, or use --head linear."
            )
    return TextHead(embeddings, scale, frozen=spec.head == "text-frozen")


def _describe_task(spec: ResolvedSpec, classes: Sequence[str], domains: Sequence[str], blank: bool) -> Task:
    """Describe the task of a run, for methods that ask for it."""
    normalisation = Normalisation(spec.mean, spec.std, spec.interpolation or "bilinear") if spec.mean else None
    texts = partial(build_text, spec, blank=blank) if is_clip(spec.backbone) else None
    return Task(spec.texts or tuple(classes), tuple(domains), normalisation, texts)


def locate_activations(spec: ResolvedSpec, dataset: DomainDataset, *, device: str = "auto") -> ActivationCache:
    """Return the cache of the activations that a run trains on.

    Args:
        spec: the run, `on_activations`.
        dataset: its images.
        device: where missing activations are computed.
    """
    backbone = f"{spec.backbone} {spec.backbone_digest}".strip()
    name = backbone if spec.frozen else f"{backbone} up to {spec.freeze}"
    # Half precision: the maps of PACS at 224 px are gigabytes, and rounding is far below the noise of a training step.
    precision: Literal["float32", "float16"] = "float32" if spec.frozen else "float16"
    if spec.interpolation:
        dataset = dataset.normalise(Normalisation(spec.mean, spec.std, spec.interpolation))
    return ActivationCache(dataset, build_front(spec), name, spec.views, precision, pick_device(device))


def build_front(spec: ResolvedSpec, *, blank: bool = False) -> Featurizer | Front:
    """Build the frozen network, or first sections, of a run `on_activations`; `blank` as in `new_algorithm`."""
    whole = _build_backbone(spec, blank, dropout=0.0, freeze_bn=True).requires_grad_(False).eval()
    return whole if spec.frozen else split_network(whole, spec.freeze)[0]


def complete_featurizer(spec: ResolvedSpec, featurizer: nn.Module) -> nn.Module:
    """Return the featurizer of images of a run: one trained after a cut gets its frozen first sections back."""
    if spec.frozen or not spec.on_activations:
        return featurizer
    whole = _build_backbone(spec, False, dropout=spec.dropout, freeze_bn=spec.freeze_bn)
    whole.load_state_dict({**whole.state_dict(), **featurizer.state_dict()})
    return whole.to(next(featurizer.parameters()).device).train(featurizer.training)


def _build_backbone(spec: ResolvedSpec, blank: bool, *, dropout: float, freeze_bn: bool) -> Featurizer:
    """Build the network of images, before anything else that is random: without pre-trained weights it is the same."""
    seed_torch("init", spec.seed)
    if spec.backbone_digest:
        check_backbone(spec.backbone, spec.backbone_digest)
    # Images in arrays are not resized: the network normalises them.
    within = Normalisation(spec.mean, spec.std) if spec.mean and not spec.interpolation else None
    featurizer = build_featurizer(
        spec.backbone,
        spec.input_shape,
        pretrained=spec.pretrained and not blank,
        weights=None if blank or not spec.weights else spec.weights,
        dropout=dropout,
        freeze_bn=freeze_bn,
        freeze=spec.freeze,
        channels_last=spec.channels_last,
        normalisation=within,
    )
    if spec.lora:
        add_adapters(featurizer, spec.lora, spec.lora_targets, spec.lora_alpha, spec.lora_dropout)
    return featurizer


def build_average(spec: ResolvedSpec, algorithm: Algorithm) -> WeightAverage | None:
    """Build the weight average of a spec; None without one."""
    if spec.averaging == "swa":
        return RunningMean(algorithm, spec.averaging_start)
    return OverfitAware(algorithm, spec.averaging_start) if spec.averaging == "swad" else None


def build_source(run: PreparedRun) -> BatchSource:
    """Build the source of the batches of the run's source domains."""
    spec = run.spec
    domains = tuple(domain for domain in run.dataset.domains if domain.name in run.sources)
    pools = tuple(run.splits[domain.name].train for domain in domains)
    labels = tuple(domain.y for domain in domains)
    weights = weigh_samples(domains, pools, balanced=spec.class_weight == "balanced")
    drawn, in_loss = ((), spread_weights(domains, pools, weights)) if spec.weighted_loss else (weights, ())
    sampler: UniformSampler | ClassAwareSampler = UniformSampler(spec.seed, pools, spec.batch_size, drawn)
    if spec.classes_per_batch:
        sampler = ClassAwareSampler(spec.seed, pools, labels, spec.batch_size, spec.classes_per_batch)
    algorithm = get(spec.algorithm)
    wrapped = algorithm.wrap_sampler(PairedSampler(sampler, labels) if algorithm.paired_batches else sampler, labels)
    n_classes = len(run.dataset.classes) if in_loss or any(domain.soft is not None for domain in domains) else 0
    return BatchSource(domains, wrapped, spec.seed, algorithm.needs_indices, n_classes, in_loss)


def warm_up(algorithm: Algorithm, run: PreparedRun, *, progress: bool | Progress = True) -> None:
    """Train the classifier alone for `warmup_head` steps of ERM, with a separate Adam.

    They are part of the initialisation: a resumed run repeats them, with the same result. Batches are sampled with
    another seed than the run's.

    The first gradients of a new classifier would distort pre-trained features. Kumar et al., "Fine-Tuning can Distort
    Pretrained Features and Underperform Out-of-Distribution", 2022, https://arxiv.org/abs/2202.10054.
    """
    steps, h = run.spec.warmup_head, algorithm.classifier
    device = next(algorithm.parameters()).device
    source = build_source(replace(run, spec=structs.replace(run.spec, seed=seed_hash("warm-up", run.spec.seed))))
    optimizer = torch.optim.Adam(h.parameters(), lr=WARMUP_LR)
    algorithm.featurizer.eval()  # codes as in evaluation: no dropout, and batch-norm statistics do not change
    h.train()
    with Progress("warm-up", steps, "steps", show=progress, counts=False) as bar:
        for step, batches in enumerate(deliver(source.prepare, range(steps), device=device)):
            seed_torch("warm-up", run.spec.seed, step)
            x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
            with torch.no_grad(), autocast(run.spec.precision, device):
                z = algorithm.featurizer(x)
            loss = cross_entropy(h(z.float()), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            bar.advance()
    optimizer.zero_grad(set_to_none=True)
