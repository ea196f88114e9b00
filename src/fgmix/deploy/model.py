"""A model in use: a folder with weights and what is known about them, and what it predicts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from fgmix.algorithms._base import part_of
from fgmix.data._dataset import ArrayInputs, Inputs, Kind
from fgmix.data.arrays import as_floats, check_finite, check_numbers
from fgmix.data.standardisation import Standardisation
from fgmix.deploy.composition import Composition
from fgmix.deploy.estimate import Estimate
from fgmix.deploy.terms import Terms
from fgmix.deploy.trust import SHORTEST, Familiar
from fgmix.errors import UserError, bad_value
from fgmix.files import checked_path, make_folder, read_bytes, read_json, write_bytes, write_json
from fgmix.networks.preprocessing import Normalisation
from fgmix.runs.devices import pick_device
from fgmix.runs.prepared import frozen_backbone, new_algorithm
from fgmix.runs.spec import ResolvedSpec
from fgmix.seals import Damaged, damaged, digest_of

Dtype = Literal["uint8", "float32"]

SCHEMA = 3
MIN_CONFIDENCE: float | None = None  # without held-out domains nothing is trusted: what confidence is worth is unknown
NEVER = 2.0  # a confidence that no prediction has
INFO, WEIGHTS = "model.json", "weights.safetensors"


class Standardise(nn.Module):
    """Features as the user gives them → as the network was trained on them: `Standardisation` as a layer."""

    mean: Tensor
    scale: Tensor

    def __init__(self, standard: Standardisation) -> None:
        super().__init__()
        for name in ("mean", "scale"):
            self.register_buffer(name, torch.tensor(getattr(standard, name)))  # a copy of what ensembles share

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


class Network(nn.Module):
    """Inputs as evaluation sees them → calibrated probabilities (n, C) and novelty (n,).

        z = g(x),    p = softmax(h(z) / T)
        novelty = min_c ‖W (z/‖z‖ − center) − m_c‖² · max(1, q/‖z‖, ‖z‖/r)² / limit

    Args:
        featurizer: g.
        classifier: h.
        temperature: T.
        familiar: center, m_c, W, q, r and the limit; see `trust`.
        standard: what features are standardised by before g; None for images, and where they are taken as they are.
        backbone: frozen network whose features of images g takes; None where g takes the inputs.
    """

    temperature: Tensor
    center: Tensor
    means: Tensor
    whitening: Tensor
    usual: Tensor
    reach: Tensor
    limit: Tensor

    def __init__(
        self,
        featurizer: nn.Module,
        classifier: nn.Module,
        temperature: float,
        familiar: Familiar,
        standard: Standardisation | None = None,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone or nn.Identity()
        self.standardise = nn.Identity() if standard is None else Standardise(standard)
        self.featurizer = featurizer
        self.classifier = classifier
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float32))
        for name in ("center", "means", "whitening", "usual", "reach", "limit"):
            self.register_buffer(name, torch.as_tensor(getattr(familiar, name), dtype=torch.float32))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, novelty = self.logits_and_novelty(x)
        return torch.softmax(logits / self.temperature, dim=1), novelty

    def logits_and_novelty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """h(g(x)) (n, C) and novelty (n,)."""
        z = self.featurizer(self.standardise(self.backbone(x)))
        length = torch.linalg.vector_norm(z, dim=1).clamp(min=SHORTEST)
        white = (z / length[:, None] - self.center) @ self.whitening.T
        nearest = (self.means.square().sum(1) - 2 * white @ self.means.T).argmin(1)
        # Of differences: where classes lie far apart, the squares above leave no digit of single precision for them.
        novelty = (white - self.means[nearest]).square().sum(1) / self.limit
        return self.classifier(z), novelty * torch.maximum(self.usual / length, length / self.reach).clamp(min=1) ** 2


class Ensemble(nn.Module):
    """Several networks as one: probabilities of the mean of their logits, and the mean of their novelties.

    Args:
        members: the networks.
    """

    def __init__(self, members: Sequence[Network]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, novelties = zip(*(member.logits_and_novelty(x) for member in self.members))  # type: ignore[operator]
        return torch.softmax(torch.stack(logits).mean(0), dim=1), torch.stack(novelties).mean(0)


@dataclass(frozen=True)
class ModelInfo:
    """What is known about a model; `model.json`.

    Args:
        spec: the resolved spec of the run that made it.
        run: that run's name, a digest of its content.
        dataset: name of its data.
        data_fingerprint: digest of its data.
        kind: images, small_images or features.
        input_shape: what its network sees.
        dtype: of the samples that it was trained on; uint8 is scaled to [0, 1], other numbers are taken as they are.
        classes: names, in the order of probabilities.
        domains: names of the domains that it was trained on.
        min_confidence: below it a prediction is not trusted; None: none is.
        estimate: what to expect of an unseen domain; None if it was not asked for.
        in_domain_accuracy: on held-out samples of its own domains.
        notes: what was left out of its data, or is missing in them.
        fgmix_version: the version that made it.
        composition: the runs that it is made of; None for a model of one run.
        uses_novelty: whether a novel sample is not trusted, however confident the prediction.
        date: on which it was trained, such as 2026-01-31.
        terms: what its maker says of trust and use.
        counts: samples by domain (row) and class (column).
        weights_matched: how the initial weights were matched with the backbone's, "by name" or "by order"; None
            without a file.
    """

    spec: ResolvedSpec
    run: str
    dataset: str
    data_fingerprint: str
    kind: Kind
    input_shape: tuple[int, ...]
    dtype: Dtype
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    min_confidence: float | None
    estimate: Estimate | None
    in_domain_accuracy: float
    notes: tuple[str, ...]
    fgmix_version: str
    composition: Composition | None = None
    uses_novelty: bool = True
    date: str = ""
    terms: Terms = Terms()  # noqa: RUF009 (frozen)
    counts: tuple[tuple[int, ...], ...] = ()
    weights_matched: str | None = None

    @property
    def threshold(self) -> float:
        """The least confidence of a trusted prediction, as a number that every prediction can be compared with."""
        return NEVER if self.min_confidence is None else self.min_confidence

    def as_dict(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("spec", "estimate", "composition"):
            plain[name] = plain[name].as_dict() if plain[name] else None
        return {**plain, "terms": vars(self.terms), "schema": SCHEMA}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ModelInfo:
        values = {name: value for name, value in content.items() if name not in ("schema", "weights")}
        for name in ("input_shape", "classes", "domains", "notes"):
            values[name] = tuple(values[name])
        values["terms"] = Terms(**values["terms"])
        values["counts"] = tuple(tuple(row) for row in values["counts"])
        if values["min_confidence"] is not None:
            values["min_confidence"] = float(values["min_confidence"])
        values["spec"] = ResolvedSpec.from_dict(values["spec"])
        values["estimate"] = Estimate.from_dict(values["estimate"]) if values["estimate"] else None
        made_of = values.get("composition")
        values["composition"] = Composition.from_dict(made_of) if made_of else None
        return cls(**values)


@dataclass(frozen=True)
class Predictions:
    """What a model says about n samples.

    Args:
        classes: names, in the order of `probabilities`.
        probabilities: calibrated, (n, C).
        novelty: (n,), above 1 where a sample looks unlike all that training has seen.
        threshold: the model's.
        uses_novelty: whether the model's novelty says anything.
    """

    classes: tuple[str, ...]
    probabilities: npt.NDArray[np.float32]
    novelty: npt.NDArray[np.float32]
    threshold: float
    uses_novelty: bool

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def labels(self) -> list[str]:
        """The likeliest class of each."""
        return [self.classes[i] for i in self.probabilities.argmax(axis=1)]

    @property
    def confidence(self) -> npt.NDArray[np.float32]:
        """The likeliest class's probability."""
        found: npt.NDArray[np.float32] = self.probabilities.max(axis=1)
        return found

    @property
    def trusted(self) -> npt.NDArray[np.bool_]:
        """Confident, and familiar where novelty says anything."""
        return (self.confidence >= self.threshold) & ((self.novelty <= 1) | (not self.uses_novelty))


@dataclass(frozen=True)
class Model:
    """A model and what is known about it.

    Args:
        info: what is known.
        network: in evaluation mode.
    """

    info: ModelInfo
    network: Network | Ensemble

    def predict(self, x: npt.ArrayLike, *, batch_size: int = 256) -> Predictions:
        """Predict arrays: features (n, f) or images (n, c, h, w), prepared as the training data were.

        Args:
            x: the samples; uint8 if and only if training had uint8, which is scaled to [0, 1].
            batch_size: samples per forward pass.
        """
        x = self.as_trained(_array(x))
        check_finite(x)
        return self.predict_inputs(ArrayInputs(x), batch_size=batch_size)

    @property
    def normalisation(self) -> Normalisation:
        """What images are normalised by, and how they are resized."""
        spec = self.info.spec
        return Normalisation(spec.mean, spec.std, spec.interpolation)  # type: ignore[arg-type]  # as resolved

    def as_trained(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Arrays with the type that training had, if they can be taken for such at all."""
        if self.info.kind == "images":
            raise UserError("This model takes image files. Found an array. Save it as an image, or export the model.")
        if x.ndim < 2 or x.shape[1:] != self.info.input_shape:
            raise UserError(
                f"Expected samples of shape {self.info.input_shape}. Found an array of shape {x.shape}. "
                "Prepare them as the training data were."
            )
        check_numbers(x)
        if self.info.dtype == "float32":
            return as_floats(x)  # bytes too, else they would be scaled, as they were not in training
        if x.dtype != np.uint8:
            raise UserError(f"Expected uint8, as in training. Found {x.dtype}. Pass the same bytes 0…255 as uint8.")
        return x

    def predict_inputs(self, inputs: Inputs, *, batch_size: int = 256) -> Predictions:
        """Predict all samples of `inputs`, cleanly."""
        if type(batch_size) is not int or batch_size < 1:
            raise bad_value("batch_size", "a positive integer", batch_size)
        device = next(self.network.buffers()).device
        found: list[tuple[Tensor, Tensor]] = []
        with torch.inference_mode():
            for indices in _batches(len(inputs), batch_size):
                p, novelty = self.network(inputs.clean(indices).to(device))
                found.append((p.float().cpu(), novelty.float().cpu()))
        probabilities = torch.cat([p for p, _ in found]) if found else torch.zeros(0, len(self.info.classes))
        novelties = torch.cat([novelty for _, novelty in found]) if found else torch.zeros(0)
        found_by = (probabilities.numpy(), novelties.numpy())
        return Predictions(self.info.classes, *found_by, self.info.threshold, self.info.uses_novelty)

    def save(self, folder: str | Path) -> None:
        """Write weights.safetensors and, last, model.json: its presence means whole."""
        folder = make_folder(checked_path("folder", folder))
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.network.state_dict().items()}
        data = save(tensors)
        write_bytes(folder / WEIGHTS, data)
        write_json(folder / INFO, {**self.info.as_dict(), "weights": digest_of(data)})


def load_model(folder: str | Path, device: str = "cpu") -> Model:
    """A model that `fgmix fit` or `fgmix soup` made.

    Args:
        folder: its folder.
        device: where to put it: auto, cpu, cuda, …
    """
    folder = checked_path("folder", folder)
    info = read_info(folder)
    data = read_bytes(folder / WEIGHTS)
    if digest_of(data) != read_json(folder / INFO).get("weights"):
        raise _broken(folder, damaged(str(folder / WEIGHTS)))
    try:
        network = _network(info, load(data))
    except UserError:
        raise
    except (RuntimeError, OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
        raise _broken(folder, error) from error
    return Model(info, network.to(pick_device(device)))


def _network(info: ModelInfo, tensors: dict[str, Tensor]) -> Network | Ensemble:
    """The network of a model with its weights."""
    if info.composition is None or info.composition.members == 1:
        return _single_network(info, tensors)
    parts = [part_of(tensors, f"members.{i}") for i in range(info.composition.members)]
    return Ensemble([_single_network(info, part) for part in parts]).eval()


def _single_network(info: ModelInfo, tensors: dict[str, Tensor]) -> Network:
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and thrown away: the caller's draws go on
        algorithm = new_algorithm(info.spec, len(info.classes), len(info.domains), blank=True)
        backbone = frozen_backbone(info.spec, blank=True) if info.spec.frozen else None
    center, means, whitening = (tensors[name].numpy() for name in ("center", "means", "whitening"))
    usual, reach, limit = (float(tensors[name]) for name in ("usual", "reach", "limit"))
    familiar = Familiar(center, means, whitening, usual, reach, limit)
    standard = None
    if "standardise.mean" in tensors:
        standard = Standardisation(tensors["standardise.mean"].numpy(), tensors["standardise.scale"].numpy())
    temperature = float(tensors["temperature"])
    network = Network(algorithm.featurizer, algorithm.classifier, temperature, familiar, standard, backbone)
    network.load_state_dict(tensors)
    return network.eval()


def read_info(folder: Path) -> ModelInfo:
    """What is known about the model in a folder."""
    if not os.path.isfile(folder / INFO):
        raise UserError(f"Expected a model's folder at {folder}. It holds no {INFO}. Make one with `fgmix fit`.")
    try:
        content = read_json(folder / INFO)
    except Damaged as error:
        raise _broken(folder, error) from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise UserError(f"Expected a model of schema {SCHEMA} at {folder}. Found {schema}. Make it again.")
    try:
        return ModelInfo.from_dict(content)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise _broken(folder, error) from error


def _broken(folder: Path, error: Exception) -> UserError:
    reason = str(error).partition("\n")[0].rstrip(".")  # torch goes on for a page
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return Damaged(
        f"Expected a whole model at {folder}. Found one that is not ({kind}{reason}). "
        f"Delete its {INFO} and run `fgmix fit` again: its runs are kept."
    )


def _array(x: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        return np.asarray(x)
    except ValueError as error:  # rows of different lengths
        raise UserError(f"Expected samples of one shape. Found others ({error}). Pass an array.") from error


def _batches(n: int, size: int) -> Iterator[npt.NDArray[np.int64]]:
    return (np.arange(start, min(start + size, n)) for start in range(0, n, size))
