"""`DomainGeneralizer`: the training of `fgmix.fit` as a scikit-learn classifier of arrays.

`fit` is one run on all domains, in a temporary folder, and keeps the weights that validation selects.
`leave_one_domain_out` is one run per domain, which it holds out: an estimate for an unseen domain.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from msgspec import structs
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.validation import check_is_fitted, validate_data

from fgmix.algorithms import get
from fgmix.data import ArrayInputs
from fgmix.data.arrays import check_scale, check_weights, require_unmasked
from fgmix.data.standardisation import Standardisation
from fgmix.deploy.estimate import check_shared_classes, estimate
from fgmix.deploy.estimator_inputs import (
    OTHER,
    Samples,
    check_other,
    explain_texts,
    name_scaled_type,
    number_samples,
    prepare_samples,
    require_values,
)
from fgmix.deploy.hold_out import HeldOut, hold_out, select_weights
from fgmix.deploy.network import check_alone
from fgmix.deploy.steps import scale_steps
from fgmix.errors import UserError, bad_value, unknown
from fgmix.records.evaluations import METRIC_NAMES
from fgmix.records.model import Estimate
from fgmix.records.options import check_value
from fgmix.records.schema import RunSpec
from fgmix.results.other_metrics import worst_domain
from fgmix.terminal import print_notes
from fgmix.training.devices import pick_device
from fgmix.training.open_run import OpenedRun, train_and_open
from fgmix.training.prepare import prepare
from fgmix.training.resolve import list_notes

Array = npt.NDArray[Any]
ARRAYS = {"dtype": "numeric", "allow_nd": True}  # scikit-learn checks for finite numbers; images have four axes
BATCH = 256  # samples per forward pass of a prediction
NESTED = "settings__"


@dataclass(frozen=True)
class UnseenDomains:
    """Metrics on each domain, of a model trained on the others; `print` shows a table."""

    accuracy: dict[Hashable, float]  # by domain id
    estimate: Estimate  # the same with calibration and novelty

    @property
    def mean(self) -> float:
        """Mean over the domains, of accuracy or of the estimator's metric."""
        return self.estimate.value

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % prediction interval for its value on one more domain; None with fewer than three domains."""
        return self.estimate.interval

    def __str__(self) -> str:
        width = max(len("held out"), *(len(d.domain) for d in self.estimate.domains))
        head = f"{'held out':{width}}    samples  majority  accuracy  balanced  macro F1  AUROC  in-domain"
        rows = []
        for d in self.estimate.domains:
            m = d.metrics
            shares = "  ".join(f"{v:8.1%}" for v in (m.majority, m.accuracy, m.balanced_accuracy, m.macro_f1))
            auroc = "    –" if m.auroc is None else f"{m.auroc:5.3f}"
            rows.append(f"{d.domain:{width}}  {m.samples:9d}  {shares}  {auroc}  {d.in_domain_accuracy:9.1%}")
        if self.interval is None:
            expected = "too few domains for an interval"
        else:
            expected = f"95 % prediction interval for one more domain: {self.interval[0]:.1%} to {self.interval[1]:.1%}"
        worst = worst_domain(self.estimate.metrics, self.estimate.metric)
        name = METRIC_NAMES[self.estimate.metric]
        return "\n".join([head, *rows, f"mean {name} {self.mean:.1%}, worst {worst}; {expected}"])


class DomainGeneralizer(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classifier of features (n, f), signals (n, c, t) or images (n, c, h, w) of several domains, for an unseen one.

    Args:
        algorithm: a registered method (`fgmix list algorithms`).
        settings: its settings, such as {"lr": 1e-3, "gamma": 10}; None for its defaults.
        backbone: "mlp", "identity" (a linear model), "signal_cnn", "small_cnn" or any timm model; None for mlp on
            features, signal_cnn on signals and small_cnn on images.
        steps: number of training steps; None for 1000 on features, 500 on signals, 300 on images, and more on large
            datasets.
        batch_size: samples per domain and step; None for 32.
        averaging: "swa" predicts with the running mean of the weights, "swad" with their overfit-aware mean, "none"
            with the raw weights.
        holdout_fraction: share of each domain that is held out from training and selects the weights.
        standardize: scale features, or the channels of signals, to mean 0 and variance 1 over the training samples,
            with outliers of features beyond 5 standard deviations damped. Images are not standardized unless their
            values are far from [0, 1] (uint8 and uint16 are scaled to it).
        class_weight: "balanced" samples all classes of a domain equally often in training; a dictionary such as
            {"ill": 5} samples a class more often; None samples uniformly.
        metric: "accuracy", "balanced_accuracy" or "macro_f1": selects the weights, and is what `mean` and `interval` of
            `leave_one_domain_out` report. `score` is accuracy, as in scikit-learn.
        random_state: an int gives the same model every time; a RandomState or None, a new one at every fit.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        verbose: show a progress bar.

    Attributes:
        classes_: labels, in the order of `predict_proba`.
        domains_: domain ids, in the algorithm's order.
        n_features_in_: f (number of channels, for signals and images).
        feature_names_in_: column names, if X had any.
        scaler_: mean and scale of the standardization as a StandardScaler; None without.
        algorithm_: the trained `Algorithm`, in evaluation mode.
        record_: the `RunRecord` of the training, with the resolved options in `record_.spec`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> y, scanner = np.arange(120) % 2, np.arange(120) // 40
        >>> X = rng.normal(size=(120, 4)) + 5 * y[:, None] + scanner[:, None]
        >>> model = DomainGeneralizer("erm", steps=50).fit(X, y, domains=scanner)
        >>> model.predict(X[:4]).tolist()
        [0, 1, 0, 1]
        >>> model.leave_one_domain_out(X, y, scanner).mean > 0.9
        True
    """

    def __init__(
        self,
        algorithm: str = "fgmix",
        *,
        settings: Mapping[str, Any] | None = None,
        backbone: str | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        averaging: str = "swa",
        holdout_fraction: float = 0.2,
        standardize: bool = True,
        class_weight: str | Mapping[Hashable, float] | None = None,
        metric: str = "accuracy",
        random_state: int | np.random.RandomState | None = 0,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.algorithm = algorithm
        self.settings = settings
        self.backbone = backbone
        self.steps = steps
        self.batch_size = batch_size
        self.averaging = averaging
        self.holdout_fraction = holdout_fraction
        self.standardize = standardize
        self.class_weight = class_weight
        self.metric = metric
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # Parameters of `fit` that metadata routing may pass, in addition to the named ones.
    __metadata_request__fit = dict.fromkeys(OTHER)

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, domains: Sequence[Hashable] | None = None, **other: Any) -> Self:
        """Train on all domains.

        Args:
            X: features (n, f), signals (n, c, t) or images (n, c, h, w).
            y: n labels.
            domains: n domain ids of any hashable type. None: all samples are one domain, and a method that needs
                several is replaced by ERM, with a warning.
            other: `sample_weight`, n numbers of at least 0: how often training samples each row, relative to the
                others of its domain; `group`, n ids such as patients, none of which the split of a domain divides;
                `sample_domain`, skada's name of `domains`.
        """
        require_values(X, y)
        with explain_texts():
            x, labels = validate_data(self, X, y, **ARRAYS)
        domains = check_other(other, domains)
        weights = self._weigh_samples(labels, other.get("sample_weight"))
        data = number_samples(x, labels, domains, weights, other.get("group"))
        spec = self._make_spec() if domains is not None else _use_one_domain(self._make_spec())
        with self._train(spec, data) as run:
            self.algorithm_ = run.algorithm(*select_weights(run.record))
            self.record_ = structs.replace(run.record, folder=None)  # the folder is gone when this returns
            self._standard = run.prepared.standard
        self.classes_, self.domains_ = data.classes, data.domains
        self.scaler_ = None if self._standard is None else _make_scaler(self._standard)
        self._input_shape, self._scaled_type = x.shape[1:], name_scaled_type(x)
        return self

    def predict(self, X: npt.ArrayLike) -> Array:
        """Predict the most probable label of each sample."""
        likeliest = self._compute_logits(X).argmax(1).numpy()
        labels: Array = self.classes_[likeliest]
        return labels

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Compute softmax probabilities (n, C) of the labels `classes_`, not calibrated."""
        p: npt.NDArray[np.float32] = torch.softmax(self._compute_logits(X), 1).numpy()
        return p

    def leave_one_domain_out(
        self, X: npt.ArrayLike, y: npt.ArrayLike, domains: Sequence[Hashable] | None = None, **other: Any
    ) -> UnseenDomains:
        """Estimate the accuracy on a new domain: each domain is predicted by a model trained on the others.

        Scaling, training and the selection of weights do not use the domain held out. The estimator itself does not
        change, fitted or not.

        Args:
            X: features (n, f), signals (n, c, t) or images (n, c, h, w).
            y: n labels.
            domains: n domain ids.
            other: as in `fit`. Weights are used in training only: every sample counts once in the estimate.
        """
        require_values(X, y)
        with explain_texts():
            x, labels = check_X_y(X, y, **ARRAYS)
        domains = check_other(other, domains)
        weights = self._weigh_samples(labels, other.get("sample_weight"))
        data = number_samples(x, labels, domains, weights, other.get("group"))
        spec = self._make_spec()
        _check_enough(spec, data)
        held_out: list[HeldOut] = []
        for name in data.names:
            with self._train(structs.replace(spec, test_domains=(name,)), data) as run:
                held_out.append(hold_out(run))
        unseen = estimate(held_out, metric=spec.metric)
        accuracies = [domain.accuracy for domain in unseen.domains]
        return UnseenDomains(dict(zip(data.domains, accuracies, strict=True)), unseen)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name; with `deep` also the given settings of the method, as settings__lr."""
        params: dict[str, Any] = super().get_params(deep)
        settings = self.settings if deep and isinstance(self.settings, Mapping) else {}
        return {**params, **{f"{NESTED}{name}": value for name, value in settings.items()}}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; settings__lr sets one setting of the method and keeps the others."""
        nested = {name.removeprefix(NESTED): value for name, value in params.items() if name.startswith(NESTED)}
        super().set_params(**{name: value for name, value in params.items() if not name.startswith(NESTED)})
        if nested:
            self.settings = {**(self.settings or {}), **nested}
        return self

    def _weigh_samples(self, labels: Array, sample_weight: npt.ArrayLike | None) -> npt.ArrayLike | None:
        """Return the weights of the samples, times those of their classes if `class_weight` is a dictionary."""
        if not isinstance(self.class_weight, str | Mapping | None):
            raise bad_value("class_weight", '"balanced", a dictionary of weights by class, or None', self.class_weight)
        if not isinstance(self.class_weight, Mapping):
            return sample_weight
        known = set(labels.tolist())
        for label, weight in self.class_weight.items():
            if label not in known:
                raise unknown("class in `class_weight`", str(label), [str(each) for each in known])
            check_value("class_weight", float, weight, ge=0)
        by_class = np.array([self.class_weight.get(label, 1.0) for label in labels.tolist()], dtype=np.float64)
        return by_class if sample_weight is None else by_class * check_weights(sample_weight, len(labels))

    def _make_spec(self) -> RunSpec:
        """Make the spec of the run that the parameters describe."""
        if not isinstance(self.settings, Mapping | None):
            raise bad_value("settings", "a dictionary or None", self.settings)
        if not isinstance(self.algorithm, str):
            raise bad_value("algorithm", "the name of a method", self.algorithm)
        check_alone(self.algorithm)
        if not isinstance(self.standardize, bool | np.bool_):
            raise bad_value("standardize", "True or False", self.standardize)
        seed = _choose_seed(self.random_state)
        return RunSpec(
            dataset="arrays",
            algorithm=self.algorithm,
            test_domains=(),
            settings={name: _to_python(value) for name, value in (self.settings or {}).items()},
            backbone=self.backbone,
            steps=_to_python(self.steps),
            batch_size=_to_python(self.batch_size),
            averaging=self.averaging,  # type: ignore[arg-type]  # checked by the spec
            holdout_fraction=_to_python(self.holdout_fraction),
            standardize=None if self.standardize else False,  # None: by the kind of data
            class_weight=self.class_weight if isinstance(self.class_weight, str) else "none",  # type: ignore[arg-type]
            metric=self.metric,  # type: ignore[arg-type]
            seed=seed,
            trial_seed=seed,
        )

    @contextmanager
    def _train(self, spec: RunSpec, data: Samples) -> Iterator[OpenedRun]:
        """Train a run and open it; its folder is deleted at the end of the block."""
        dataset = data.dataset()
        spec = scale_steps(spec, dataset)
        # Training seeds torch's generators: the caller's state is restored.
        gpus = range(torch.cuda.device_count())
        with TemporaryDirectory(prefix="fgmix-") as folder, torch.random.fork_rng(gpus):
            prepared = prepare(spec, dataset, device=self.device, progress=self.verbose)
            if self.verbose:
                print_notes(*list_notes(spec, prepared.spec))
            yield train_and_open(prepared, Path(folder), dataset, device=self.device, progress=self.verbose)

    def _compute_logits(self, X: npt.ArrayLike) -> torch.Tensor:
        """Compute h(g(x)) of all samples (n, C), on the CPU."""
        check_is_fitted(self)
        require_unmasked("X", X)
        x: Array = validate_data(self, X, reset=False, **ARRAYS)
        if x.shape[1:] != self._input_shape:
            raise UserError(f"Expected samples of shape {self._input_shape}. Found {x.shape[1:]}.")
        check_scale(x)
        if name_scaled_type(x) != self._scaled_type:  # uint8 and uint16 are scaled to [0, 1], other types are not
            expected = self._scaled_type or "floats"
            raise UserError(f"Expected images of {expected}, as in training. Found {x.dtype}. Convert them.")
        inputs = ArrayInputs(prepare_samples(x), self._standard)
        device = pick_device(self.device)
        algorithm = self.algorithm_.to(device)
        batches = np.array_split(np.arange(len(x)), math.ceil(len(x) / BATCH))
        with torch.inference_mode():
            return torch.cat([algorithm.predict(inputs.clean(batch).to(device)).float().cpu() for batch in batches])

    def __getstate__(self) -> dict[str, Any]:
        """Return the content of a pickle, with the network on the CPU, so that it loads on a machine without a GPU."""
        state = {**super().__getstate__()}
        if "algorithm_" in state:
            state["algorithm_"] = copy.deepcopy(state["algorithm_"]).cpu()
        return state


def _make_scaler(standard: Standardisation) -> StandardScaler:
    """Return mean and scale of the standardisation as a StandardScaler, which does not damp outliers."""
    scaler = StandardScaler()
    scaler.mean_ = standard.mean.ravel().astype(np.float64)
    scaler.scale_ = standard.scale.ravel().astype(np.float64)
    scaler.var_ = scaler.scale_**2
    scaler.n_features_in_ = len(scaler.mean_)
    return scaler


def _to_python(value: Any) -> Any:
    """Return a Python number for a numpy scalar, as parameter grids contain."""
    return value.item() if isinstance(value, np.generic) else value


def _choose_seed(random_state: int | np.random.RandomState | None) -> int:
    """Return an integer itself; a generator, or numpy's global one for None, gives the next seed."""
    if not isinstance(random_state, int | np.integer):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if random_state < 0:
        raise bad_value("random_state", "zero or a positive integer, a RandomState or None", random_state)
    return int(random_state)


def _use_one_domain(spec: RunSpec) -> RunSpec:
    """Return the spec, with ERM instead of a method that needs several domains."""
    if get(spec.algorithm).min_domains < 2:
        return spec
    warnings.warn(
        f"{spec.algorithm} learns from differences between domains and none were given: training ERM instead. Call "
        "fit(X, y, domains=…).",
        UserWarning,
        stacklevel=3,
    )
    known = get("erm").Config.names()
    return structs.replace(spec, algorithm="erm", settings={k: v for k, v in spec.settings.items() if k in known})


def _check_enough(spec: RunSpec, data: Samples) -> None:
    """Require enough domains after holding one out, and shared classes."""
    needed = get(spec.algorithm).min_domains + 1
    if len(data.domains) < needed:
        other = ", or choose a method that works on fewer, such as erm" if needed > 2 else ""
        raise UserError(
            f"Holding a domain out leaves {spec.algorithm} too few: expected at least {needed} domains. "
            f"Found {len(data.domains)}. Pass an id for each sample as `domains`, or add domains{other}."
        )
    check_shared_classes([data.y[data.ids == number] for number in range(len(data.domains))])
