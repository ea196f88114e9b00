"""A deployed model: its folder (weights and `model.json`) and its predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from msgspec import structs
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fgmix.algorithms import part_of
from fgmix.data.arrays import as_floats, check_finite, check_numbers, check_scale, is_scaled, require_unmasked
from fgmix.data.dataset import ArrayInputs, Indices, Inputs
from fgmix.data.standardisation import Standardisation
from fgmix.deploy.adapt import adapt_network
from fgmix.deploy.classifiers import Fitted, build_classifier
from fgmix.deploy.network import Ensemble, Network
from fgmix.deploy.novelty import Familiar
from fgmix.deploy.sensitivity import find_thresholds
from fgmix.deploy.trust import fill_thresholds
from fgmix.errors import UserError, bad_value
from fgmix.networks.preprocessing import Normalisation
from fgmix.records.digests import damage_error, digest_of
from fgmix.records.files import check_path, make_folder, read_bytes, write_bytes
from fgmix.records.model import ModelInfo, explain_broken, read_info, write_info
from fgmix.records.schema import ResolvedSpec
from fgmix.training.devices import pick_device
from fgmix.training.open_run import Predictor
from fgmix.training.prepare import build_front, new_algorithm

WEIGHTS = "weights.safetensors"
ADAPTED = "adapted"  # prefix of the tensors of the second network
PART = 256  # samples per forward pass of an adaptation


@dataclass(frozen=True)
class Predictions:
    """Predictions of a model for n samples.

    Args:
        classes: names, in the order of `probabilities`.
        probabilities: calibrated, (n, C).
        novelty: (n,), above 1 where a sample is unlike the training data.
        min_confidence: of a trusted prediction, by class; None: no prediction of the class is trusted.
        thresholds: by class, the probability from which on a sample is flagged, for a wanted sensitivity.
        batch: number of samples whose statistics the model was adapted to; 0 if it was not.
    """

    classes: tuple[str, ...]
    probabilities: npt.NDArray[np.float32]
    novelty: npt.NDArray[np.float32]
    min_confidence: tuple[float | None, ...]
    thresholds: Mapping[str, float] = field(default_factory=dict)
    batch: int = 0

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def labels(self) -> list[str]:
        """The most probable class of each sample."""
        return [self.classes[i] for i in self.probabilities.argmax(axis=1)]

    @property
    def confidence(self) -> npt.NDArray[np.float32]:
        """The probability of the most probable class."""
        highest: npt.NDArray[np.float32] = self.probabilities.max(axis=1)
        return highest

    @property
    def flags(self) -> dict[str, npt.NDArray[np.bool_]]:
        """By class with a threshold, which samples may be of it."""
        return {name: self.probabilities[:, self.classes.index(name)] >= t for name, t in self.thresholds.items()}

    @property
    def trusted(self) -> npt.NDArray[np.bool_]:
        """Which predictions are trusted: confident enough for their class, on a sample that is not novel."""
        least = fill_thresholds(self.min_confidence)[self.probabilities.argmax(axis=1)]
        trusted: npt.NDArray[np.bool_] = (self.confidence >= least) & (self.novelty <= 1)
        return trusted


@dataclass(frozen=True)
class Model:
    """A trained model.

    Args:
        info: the content of its `model.json`.
        network: in evaluation mode.
        thresholds: of classes that are flagged, see `want_sensitivity`.
        adapted: what `adapt` starts from, without its backbone; None for the network itself.
        batch: number of samples that it is adapted to; 0 if it is not.
    """

    info: ModelInfo
    network: Network | Ensemble
    thresholds: Mapping[str, float] = field(default_factory=dict)
    adapted: Network | None = None
    batch: int = 0

    def want_sensitivity(self, wanted: Mapping[str, float]) -> Model:
        """Return the model with classes to be flagged: by name, the sensitivity wanted, such as {"ill": 0.95}."""
        return replace(self, thresholds=find_thresholds(self.info, wanted))

    def predict(self, x: npt.ArrayLike, *, batch_size: int = 256, adapt: bool = False) -> Predictions:
        """Predict arrays: features (n, f), signals (n, c, t) or images (n, c, h, w), prepared as for training.

        Args:
            x: the samples: uint8 or uint16 if training had it, which is scaled to [0, 1]; else numbers, not scaled.
            batch_size: samples per forward pass.
            adapt: standardise the samples by their own mean and variance: they should be a batch of one new domain
                (docs/fit/predict.md).
        """
        x = self.convert_samples(_to_array(x))
        check_finite(np.where(np.isnan(x), 0, x) if self.info.columns else x)
        inputs = Doubles(x) if self.info.dtype == "float64" else ArrayInputs(x)
        model = self.adapt([inputs]) if adapt else self
        return model.predict_inputs(inputs, batch_size=batch_size)

    def adapt(self, batch: Iterable[Inputs]) -> Model:
        """Return the model with the statistics of a batch of a new domain, given in parts: labels are not needed."""
        if not isinstance(self.network, Network):
            raise UserError("Expected a model of one network to adapt. Found an ensemble. Drop --adapt.")
        if self.thresholds:
            raise UserError("Thresholds are of predictions without adaptation. Drop --sensitivity, or --adapt.")
        choice = self.info.choice
        if choice and self.adapted is None and any(trial.by_domain for trial in choice.trials):
            raise UserError("Adaptation did not help on held-out domains (see the card). Drop --adapt.")
        device, rows = next(self.network.buffers()).device, 0

        def read() -> Iterator[Tensor]:
            nonlocal rows
            for inputs in batch:
                rows += len(inputs)
                for start in range(0, len(inputs), PART):
                    yield inputs.clean(np.arange(start, min(start + PART, len(inputs)))).to(device)

        network = adapt_network(self.adapted or self.network, read(), self.network.backbone)
        about = self.info.adaptation
        unmeasured = (self.info.terms.min_confidence,) * len(self.info.classes)
        least = about.estimate.trust.by_class if about else unmeasured
        return Model(structs.replace(self.info, min_confidence=least), network, batch=rows)

    @property
    def normalisation(self) -> Normalisation:
        """How images are resized and normalised."""
        spec = self.info.spec
        return Normalisation(spec.mean, spec.std, spec.interpolation or "bilinear")

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise an error for an array of a shape that the model cannot use."""
        if self.info.kind == "images":
            raise UserError("This model takes image files. Found an array. Save it as an image, or export the model.")
        if len(shape) < 2 or shape[1:] != self.info.input_shape:
            raise UserError(
                f"Expected samples of shape {self.info.input_shape}. Found an array of shape {shape}. "
                "Prepare them as the training data were."
            )

    def convert_samples(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert arrays to the type of the training data; UserError for another shape or another type."""
        self.check_shape(x.shape)
        check_numbers(x)
        check_scale(x)
        dtype = self.info.dtype
        if x.dtype.name != dtype and (dtype in ("uint8", "uint16") or (x.ndim == 4 and is_scaled(x))):
            raise UserError(f"Expected {dtype}, as in training. Found {x.dtype}. Pass the same type of values.")
        if dtype == "float32":
            return as_floats(x)  # features of bytes too, else they would be scaled, as they were not in training
        return x.astype(dtype, copy=False)

    def predict_inputs(self, inputs: Inputs, *, batch_size: int = 256) -> Predictions:
        """Predict all samples of `inputs`, without augmentation."""
        if type(batch_size) is not int or batch_size < 1:
            raise bad_value("batch_size", "a positive integer", batch_size)
        device = next(self.network.buffers()).device
        probabilities, novelties = [torch.zeros(0, len(self.info.classes))], [torch.zeros(0)]
        with torch.inference_mode():
            for start in range(0, len(inputs), batch_size):
                indices = np.arange(start, min(start + batch_size, len(inputs)))
                p, novelty = self.network(inputs.clean(indices).to(device))
                probabilities.append(p.float().cpu())
                novelties.append(novelty.float().cpu())
        p, novelty = torch.cat(probabilities).numpy(), torch.cat(novelties).numpy()
        return Predictions(self.info.classes, p, novelty, self.info.min_confidence, self.thresholds, self.batch)

    def save(self, folder: str | Path) -> None:
        """Write the model into a new or an empty folder, from which `load_model` reads it."""
        folder = make_folder(check_path("folder", folder), "folder")
        if any(folder.iterdir()):
            raise UserError(f"Expected a new or an empty folder at {folder}. Found something there. Choose another.")
        self.write(folder)

    def write(self, folder: Path) -> Model:
        """Write weights.safetensors and, last, model.json, whose presence means complete; replaces existing files.

        Returns the model with the digest of its weights.
        """
        tensors = dict(self.network.state_dict())
        if self.adapted:
            tensors |= {f"{ADAPTED}.{name}": value for name, value in self.adapted.state_dict().items()}
        data = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
        write_bytes(folder / WEIGHTS, data)
        written = replace(self, info=structs.replace(self.info, weights=digest_of(data)))
        write_info(folder, written.info)
        return written


@dataclass(frozen=True)
class Doubles(ArrayInputs):
    """Samples in double precision, which the network itself standardises."""

    def clean(self, indices: Indices) -> Tensor:
        return torch.from_numpy(self.x[indices])


def load_model(folder: str | Path, device: str = "cpu") -> Model:
    """Load a model that `fgmix fit` or `fgmix soup` made.

    Args:
        folder: its folder.
        device: where to put it: auto, cpu, cuda, …
    """
    folder = check_path("folder", folder)
    info = read_info(folder)
    data = read_bytes(folder / WEIGHTS)
    if digest_of(data) != info.weights:
        raise explain_broken(folder, damage_error(str(folder / WEIGHTS)))
    try:
        tensors = load(data)
        second = part_of(tensors, ADAPTED)
        network = _build_network(
            info, {key: value for key, value in tensors.items() if not key.startswith(f"{ADAPTED}.")}
        )
        adapted = _build_one(info, info.adaptation.spec, second, bare=True) if info.adaptation else None
    except UserError:
        raise
    except (RuntimeError, OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
        raise explain_broken(folder, error) from error
    place = pick_device(device)
    return Model(info, network.to(place), adapted=adapted.to(place) if adapted else None)


def _build_network(info: ModelInfo, tensors: dict[str, Tensor]) -> Network | Ensemble:
    """Build the network of a model with its weights."""
    if info.composition is None or info.composition.members == 1:
        return _build_one(info, info.spec, tensors)
    parts = [part_of(tensors, f"members.{i}") for i in range(info.composition.members)]
    return Ensemble([_build_one(info, info.spec, part) for part in parts]).eval()


def _build_one(info: ModelInfo, spec: ResolvedSpec, tensors: dict[str, Tensor], *, bare: bool = False) -> Network:
    """Build a network with its weights, `bare` without its backbone."""
    with torch.random.fork_rng(devices=[]):  # initial weights are random, then replaced: the caller's generator stays
        predictor = _build_predictor(info, spec, part_of(tensors, "classifier"))
        backbone = build_front(spec, blank=True) if spec.frozen and not bare else None
    center, means, whitening = (tensors[name].numpy() for name in ("center", "means", "whitening"))
    usual, reach, limit, size = (float(tensors[name]) for name in ("usual", "reach", "limit", "size"))
    familiar = Familiar(center, means, whitening, usual, reach, limit, size)
    standard = None
    if "standardise.mean" in tensors:
        mean, scale, tail = (tensors[f"standardise.{name}"].numpy() for name in ("mean", "scale", "tail"))
        standard = Standardisation(mean, scale, float(tail), imputes=bool(info.columns))
    temperature = float(tensors["temperature"])
    network = Network(predictor.featurizer, predictor.classifier, temperature, familiar, standard, backbone)
    network.load_state_dict(tensors)
    return network.eval()


def _build_predictor(info: ModelInfo, spec: ResolvedSpec, tensors: dict[str, Tensor]) -> Predictor:
    """Build featurizer and classifier: of a network without its weights, or a fitted classifier from its tensors."""
    if "columns" in tensors:
        return Fitted(build_classifier(tensors))
    # The whole network, also of a run that trained after a cut, with its adapters merged.
    spec = structs.replace(spec, views=0, lora=0)
    return new_algorithm(spec, info.classes, info.domains, blank=True)


def _to_array(x: npt.ArrayLike) -> npt.NDArray[Any]:
    require_unmasked("x", x)
    try:
        return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x)
    except (ValueError, TypeError) as error:  # rows of different lengths; a tensor of a type that numpy lacks
        raise UserError(f"Expected samples of one shape. Found others ({error}). Pass an array.") from error
