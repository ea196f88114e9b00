"""`fgmix fit`: from a dataset to a model in use, with an honest estimate of what it does on a domain never seen.

1. Every domain is held out in turn: a run trains on the others, selects its weights without looking at it, and predicts
   all of it. Those predictions are the estimate, and calibrate the confidence.
2. A run on all domains, with the same settings, makes the model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fgmix
from fgmix.algorithms import check_domains
from fgmix.data import ArrayInputs, DomainDataset
from fgmix.deploy.card import model_card
from fgmix.deploy.estimate import LEVELS, Estimate, estimate, familiar_to, hold_out, selected
from fgmix.deploy.model import (
    INFO,
    MIN_CONFIDENCE,
    WEIGHTS,
    Dtype,
    Model,
    ModelInfo,
    Network,
    load_model,
    read_info,
)
from fgmix.errors import UserError, bad_value
from fgmix.files import checked_path, exclusive, make_folder, remove_temporaries, write_bytes
from fgmix.runs.loop import train
from fgmix.runs.opening import OpenedRun, open_run
from fgmix.runs.prepared import PreparedRun, prepare
from fgmix.runs.record import RunRecord
from fgmix.runs.spec import RunSpec

CARD = "card.md"
RUNS = "runs"
OWN = (INFO, CARD, RUNS, WEIGHTS, ".lock", ".*.tmp*", "*.onnx", "*.pt2")  # patterns of a model's own files


def fit(
    data: str | Path | DomainDataset,
    out: str | Path,
    *,
    algorithm: str = "fgmix",
    estimated: bool = True,
    min_confidence: float = MIN_CONFIDENCE,
    device: str = "auto",
    progress: bool = True,
    **options: Any,
) -> Model:
    """Train a model on all domains; interrupted, it resumes when called again. Behind `fgmix fit`.

    Args:
        data: a folder `domain/class/image`, an .npz file, a registered name, or a dataset in memory.
        out: the model's folder. Its runs are kept in it and may be deleted once the model is there.
        algorithm: a registered method.
        estimated: hold every domain out once for the estimate; without it, nothing is known about unseen domains and
            the confidence is not calibrated.
        min_confidence: below it a prediction is not trusted.
        device: as in `fgmix.train`.
        progress: show progress bars.
        options: options of a run, such as steps, backbone or settings (`fgmix.RunSpec`).

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
    out = checked_path("out", out)
    if not isinstance(min_confidence, int | float) or not 0 <= min_confidence <= 1:
        raise bad_value("min_confidence", "between 0 and 1", min_confidence)
    name = data.name if isinstance(data, DomainDataset) else data
    spec = RunSpec.from_dict({**options, "dataset": name, "algorithm": algorithm})
    final = prepare(spec, data if isinstance(data, DomainDataset) else None, progress=progress)
    dataset = final.dataset
    _check_data(final, estimated)
    make_folder(out)
    _check_foreign(out)
    with exclusive(out / ".lock", UserError(f"Another process is making the model {out}. Wait for it, or stop it.")):
        remove_temporaries(out)
        _check_same(out, final, estimated, min_confidence)
        if (out / INFO).exists():  # done before; its runs may be deleted by now
            model = load_model(out, device)
            _write_card(out, model.info)
            return model
        held_out = dataset.domain_names if estimated else ()
        runs = [_run(spec, (name,), out, dataset, device, progress) for name in held_out]
        run = _run(spec, (), out, dataset, device, progress)
        levels = sorted({*LEVELS, min_confidence})
        model = _model(run, estimate([hold_out(r) for r in runs], levels) if runs else None, min_confidence)
        model.save(out)
        _write_card(out, model.info)
    return load_model(out, device)


def _write_card(out: Path, info: ModelInfo) -> None:
    write_bytes(out / CARD, model_card(info).encode())


def _check_data(run: PreparedRun, estimated: bool) -> None:
    """There must be something to tell apart, and holding a domain out must leave enough."""
    algorithm, dataset = run.spec.algorithm, run.dataset
    if len(dataset.classes) < 2:
        raise UserError(f"Expected at least two classes to tell apart. Found {len(dataset.classes)}.")
    if estimated:
        hint = "The estimate holds a domain out: choose a method for fewer domains (erm), or pass --no-estimate."
        check_domains(algorithm, len(dataset.domains) - 1, hint)


def _check_foreign(out: Path) -> None:
    """Never write among what is not a model's: the rest of a kill is, and what was exported is."""
    own = [path for name in OWN for path in out.glob(name)]
    foreign = sorted(path.name for path in out.iterdir() if path not in own)
    if foreign and not (out / INFO).exists():
        raise UserError(
            f"Expected an empty folder or a model at {out}. Found {', '.join(foreign[:3])}. Choose another."
        )


def _check_same(out: Path, run: PreparedRun, estimated: bool, min_confidence: float) -> None:
    """Never write over another model: it may be in use, and exported."""
    if not (out / INFO).exists():
        return
    made = read_info(out)
    same_data = made.data_fingerprint == run.dataset.fingerprint
    if (made.run, made.estimate is not None, made.min_confidence) != (run.spec.name, estimated, min_confidence):
        raise UserError(
            f"The folder {out} holds a model of other {'settings' if same_data else 'data'}. Choose another --out, or "
            f"delete its {INFO}: its runs are kept."
        )


def _run(
    spec: RunSpec, test_domains: tuple[str, ...], out: Path, dataset: DomainDataset, device: str, progress: bool
) -> OpenedRun:
    record = train(
        replace(spec, test_domains=test_domains), out / RUNS, dataset=dataset, device=device, progress=progress
    )
    _check_finished(record)
    if record.folder is None:
        raise AssertionError("a run that `fit` returns has a folder")
    return open_run(record.folder, dataset=dataset, device=device)


def _check_finished(record: RunRecord) -> None:
    if record.status == "diverged":
        raise UserError(
            f"The run {record.folder} diverged at step {record.diverged_at}: its loss was not finite. "
            "Lower the learning rate: --set lr=…"
        )


def _model(run: OpenedRun, found: Estimate | None, min_confidence: float) -> Model:
    record, dataset = run.record, run.prepared.dataset
    algorithm = run.algorithm(*selected(record))
    familiar = familiar_to(run, algorithm)
    temperature, standard = found.temperature if found else 1.0, run.prepared.standard
    network = Network(algorithm.featurizer, algorithm.classifier, temperature, familiar, standard).eval()
    _, model = selected(record)
    info = ModelInfo(
        spec=record.spec,
        run=run.folder.name,
        dataset=dataset.name,
        data_fingerprint=dataset.fingerprint,
        kind=dataset.kind,
        input_shape=dataset.input_shape,
        dtype=_dtype(dataset),
        classes=dataset.classes,
        domains=dataset.domain_names,
        min_confidence=min_confidence,
        estimate=found,
        in_domain_accuracy=record.selected(model).validation(run.sources, model),
        notes=dataset.notes,
        fgmix_version=fgmix.__version__,
    )
    return Model(info, network)


def _dtype(dataset: DomainDataset) -> Dtype:
    """What the samples were before they were prepared."""
    plain = [d.inputs for d in dataset.domains if isinstance(d.inputs, ArrayInputs) and d.inputs.x.dtype != np.uint8]
    return "float32" if plain else "uint8"
