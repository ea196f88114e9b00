"""`fgmix fit`: from a dataset to a model, with an estimate of its accuracy on an unseen domain.

1. Every domain is held out in turn: a run trains on the others, selects its weights without it, and predicts all of its
   samples. These predictions give the estimate and calibrate the confidence.
2. A run on all domains, with the same settings, gives the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np
from msgspec import structs

import fgmix
from fgmix.algorithms import Algorithm, check_domains
from fgmix.data import ArrayInputs, DomainDataset, split_dataset
from fgmix.deploy.card import CARD, CONFUSION, RELIABILITY, write_card
from fgmix.deploy.estimate import check_shared_classes, estimate
from fgmix.deploy.hold_out import (
    NOISE,
    compute_noise_features,
    hold_out,
    measure_familiar,
    measure_in_domain,
    select_weights,
)
from fgmix.deploy.model import WEIGHTS, Model, load_model
from fgmix.deploy.network import Network
from fgmix.deploy.steps import announce, note_steps, scale_steps
from fgmix.errors import UserError, bad_value
from fgmix.networks.lora import merge_adapters
from fgmix.progress import Progress
from fgmix.records.files import check_path, make_folder, remove_temporaries
from fgmix.records.locks import hold_lock
from fgmix.records.model import INFO, Dtype, Estimate, ModelInfo, Terms, read_info
from fgmix.records.options import options_of
from fgmix.records.schema import ResolvedSpec, RunSpec, to_spec
from fgmix.training.open_run import OpenedRun, train_and_open
from fgmix.training.prepare import (
    PreparedRun,
    build_front,
    complete_featurizer,
    load_dataset,
    new_algorithm,
    prepare_data,
)
from fgmix.training.resolve import list_notes, resolve

RUNS = "runs"
# Patterns of the files in a model's folder
OWN = (INFO, CARD, CONFUSION, RELIABILITY, RUNS, WEIGHTS, ".lock", ".*.tmp*", "*.onnx", "*.pt2")


def fit(
    data: str | Path | DomainDataset,
    out: str | Path,
    *,
    algorithm: str = "fgmix",
    estimated: bool = True,
    terms: Terms | None = None,
    device: str = "auto",
    progress: bool = True,
    **options: Any,
) -> Model:
    """Train a model on all domains, as `fgmix fit` does; if interrupted, the same call resumes.

    Args:
        data: a folder `domain/class/image`, a CSV manifest, an .npz file, a registered name, or a dataset in memory.
        out: the model's folder. It also contains the runs, which may be deleted once the model is complete.
        algorithm: a registered method.
        estimated: hold every domain out once for the estimate; without it, the accuracy on unseen domains is not
            measured and the confidence is not calibrated.
        terms: when to trust the model, and its use for the card; its fields may also be given by name
            (`min_confidence`, `target_accuracy`, `licence`, `intended_use`).
        device: as in `fgmix.train`.
        progress: show progress bars.
        options: options of a run, such as steps, backbone or settings (`fgmix.RunSpec`), and fields of `terms`.

    Example:
        >>> import tempfile
        >>> from fgmix.data import from_arrays
        >>> y, d = np.arange(90) % 3, np.arange(90) // 30
        >>> data = from_arrays(np.random.default_rng(0).normal(size=(90, 4)) + 3 * np.eye(3, 4)[y], y, d)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     model = fit(data, out, algorithm="erm", steps=40, progress=False)
        >>> model.info.classes
        ('0', '1', '2')
    """
    if options.get("test_domains"):
        raise UserError(
            f"`fit` trains on all domains. Found {options['test_domains']} to hold out. Use `fgmix.train` for that."
        )
    if options.get("keep") == "none":
        raise UserError("`fit` reads the weights of its runs. Found `keep` none. Use best or all.")
    out = check_path("out", out)
    if not isinstance(terms, Terms | None):
        raise bad_value("terms", "a Terms or None", terms)
    own = {name: options.pop(name) for name in options_of(Terms) if name in options}
    if own and terms is not None:
        raise UserError(f"Expected `terms`, or its fields by name. Found both ({', '.join(own)}). Drop one.")
    terms = terms or Terms(**own)
    name = data.name if isinstance(data, DomainDataset) else data
    said = to_spec({**options, "dataset": name, "algorithm": algorithm}, RunSpec)
    dataset = data if isinstance(data, DomainDataset) else load_dataset(said, progress=progress)
    spec = scale_steps(said, dataset)
    resolved = resolve(spec, dataset)
    _check_data(resolved, dataset, estimated)
    if not (out / INFO).exists():
        check_own_files(out, OWN)
    with lock_folder(out):
        _check_same(out, resolved, estimated, terms)
        if (out / INFO).exists():  # done before; its runs may be deleted by now
            model = load_model(out, device)
            write_card(out, model.info)
            return model
        notes = [*note_steps(said, spec), *list_notes(spec, resolved)]
        held_out = [(name,) for name in dataset.domain_names] if estimated else []
        specs = [resolve(structs.replace(spec, test_domains=names), dataset) for names in held_out]
        model = _train([*specs, resolved], dataset, out / RUNS, terms, notes, device, progress)
        model = model.write(out)
        write_card(out, model.info)
    return model


def _train(
    specs: Sequence[ResolvedSpec],
    dataset: DomainDataset,
    folder: Path,
    terms: Terms,
    notes: Sequence[str],
    device: str,
    progress: bool,
) -> Model:
    """Make the model from the runs in `folder`, of which the last gives it: finished ones are read, others trained."""
    # All are prepared before the first one trains: they share the features of a frozen backbone.
    prepared = [prepare_data(spec, dataset, device=device, progress=progress) for spec in specs]
    if progress:
        announce(specs, dataset, folder, device, notes)
    spec = specs[-1]
    with Progress("fit", len(specs) * spec.steps, "steps", show=progress) as bar:
        *runs, run = [_train_run(each, folder, dataset, device, bar) for each in prepared]
        bar.say("predicting the domains that were held out" if runs else "measuring what is familiar")
        noise = compute_noise_features(spec, NOISE, run.device) if runs and spec.on_activations else None
        held_out = [hold_out(each, noise) for each in runs]
        unseen = estimate(held_out, metric=spec.metric, terms=terms) if held_out else None
        return _make_model(run, dataset, unseen, terms, [*notes, *_note_improving([*runs, run])])


def _check_data(spec: ResolvedSpec, dataset: DomainDataset, estimated: bool) -> None:
    """Require two classes, and enough samples and domains after holding some out."""
    split_dataset(dataset, spec.holdout_fraction, spec.trial_seed)
    if len(dataset.classes) < 2:
        raise UserError(f"Expected at least two classes to tell apart. Found {len(dataset.classes)}.")
    if spec.on_activations:
        new_algorithm(spec, dataset.classes, dataset.domain_names)  # raises an error for methods that need images
    if estimated:
        hint = "The estimate holds a domain out: choose a method for fewer domains (erm), or pass --no-estimate."
        check_domains(spec.algorithm, len(dataset.domains) - 1, hint)
        check_shared_classes([domain.y for domain in dataset.domains], ", or pass --no-estimate")


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Create the folder of a model, and lock it for this process."""
    make_folder(out)
    with hold_lock(out / ".lock", UserError(f"Another process is making the model {out}. Wait for it, or stop it.")):
        remove_temporaries(out)
        yield


def check_own_files(out: Path, patterns: Sequence[str]) -> None:
    """Raise an error for a folder with other files than an interrupted command or an export left; it may not exist."""
    if not out.exists():
        return
    make_folder(out)  # raises an error for a file, and for a folder that is read-only
    own = {path for pattern in patterns for path in out.glob(pattern)}
    foreign = sorted(path.name for path in out.iterdir() if path not in own)
    if foreign:
        raise UserError(
            f"Expected a new or an empty folder at {out}. Found {', '.join(foreign[:3])}. Choose another --out."
        )


def _check_same(out: Path, spec: ResolvedSpec, estimated: bool, terms: Terms) -> None:
    """Never overwrite another model, which may be in use."""
    if not (out / INFO).exists():
        return
    made = read_info(out)
    same_data = made.data_fingerprint == spec.data
    if (made.run, made.estimate is not None, made.terms) != (spec.name, estimated, terms):
        raise UserError(
            f"The folder {out} holds a model of other {'settings' if same_data else 'data'}. Choose another --out, or "
            f"delete its {INFO}: its runs are kept."
        )


def _train_run(run: PreparedRun, folder: Path, dataset: DomainDataset, device: str, bar: Progress) -> OpenedRun:
    """Train or read a run; the bar counts its steps in both cases."""
    before = bar.done
    opened = train_and_open(run, folder, dataset, device=device, progress=bar)
    if opened.record.status == "diverged":
        raise UserError(
            f"The run {opened.folder} diverged at step {opened.record.diverged_at}: its loss was not finite. "
            "Lower the learning rate: --set lr=…"
        )
    bar.skip(before + run.spec.steps - bar.done)
    return opened


def _note_improving(runs: Sequence[OpenedRun]) -> list[str]:
    count = sum(run.record.still_improving for run in runs)
    return [f"Still improving at the last step ({count} of {len(runs)} runs): raise --steps."] if count else []


def _make_model(
    run: OpenedRun, dataset: DomainDataset, estimate: Estimate | None, terms: Terms, notes: Sequence[str]
) -> Model:
    """Make the model of a run on all domains, with its estimate."""
    record, (accuracy, value) = run.record, measure_in_domain(run)
    network = build_network(run, run.algorithm(*select_weights(record)), estimate)
    info = describe(
        run,
        dataset,
        spec=record.spec,
        run=run.folder.name,
        min_confidence=estimate.trust.by_class if estimate else (terms.min_confidence,) * len(dataset.classes),
        estimate=estimate,
        in_domain_accuracy=accuracy,
        notes=(*dataset.notes, *notes),
        terms=terms,
        weights_matched=network.backbone.weights_matched if record.spec.frozen else record.weights_matched,
        in_domain_value=value if estimate else None,
    )
    return Model(info, network.eval())


def build_network(run: OpenedRun, algorithm: Algorithm, estimate: Estimate | None = None) -> Network:
    """Build the complete network: it includes a frozen backbone, so that it accepts the samples of the dataset.

    Args:
        run: a run.
        algorithm: its method, with the weights of the model.
        estimate: calibrates the confidence and the novelty; None: T = 1.
    """
    familiar, spec = measure_familiar(run, algorithm), run.record.spec
    if estimate:  # novel: even for a sample of a new domain
        code, features = estimate.trust.limits
        familiar = replace(familiar, limit=familiar.limit * code, size=familiar.size * features)
    temperature, standard = estimate.temperature if estimate else 1.0, run.prepared.standard
    backbone = build_front(spec).to(run.device) if spec.frozen else None
    featurizer = merge_adapters(complete_featurizer(spec, algorithm.featurizer))
    return Network(featurizer, algorithm.classifier, temperature, familiar, standard, backbone)


def describe(opened: OpenedRun, dataset: DomainDataset, **fields: Any) -> ModelInfo:
    """Fill a `ModelInfo`: what a dataset and a run tell, and the given fields.

    Args:
        opened: the run that the model is from, or one of them.
        dataset: the domains that the model was trained on.
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
        date=datetime.fromtimestamp(opened.files.record.stat().st_mtime, UTC).date().isoformat(),
        counts=tuple(tuple(row.tolist()) for row in rows),
        groups=tuple(len(np.unique(domain.groups)) for domain in dataset.domains if domain.groups is not None),
        columns=dataset.columns,
        **fields,
    )


def _dtype(dataset: DomainDataset) -> Dtype:
    """Return the type of the samples before preprocessing."""
    names = {d.inputs.x.dtype.name for d in dataset.domains if isinstance(d.inputs, ArrayInputs)}
    return next((dtype for dtype in get_args(Dtype) if dtype in names), "uint8")
