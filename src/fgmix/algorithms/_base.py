"""What an algorithm is: a featurizer g, a classifier h, and one optimisation step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from fgmix.algorithms._config import BaseConfig, Searched
from fgmix.algorithms._optimizer import (
    Rated,
    build_optimizer,
    compute_factor,
    group_parameters,
    rate_network,
    rate_others,
    set_rates,
)
from fgmix.errors import UserError, bad_value
from fgmix.networks.clip import TextTower
from fgmix.networks.preprocessing import Normalisation
from fgmix.records.declarations import find_reference
from fgmix.records.schema import Head

Batches = list[tuple[Tensor, Tensor]]
Predict = Callable[[Tensor], Tensor]  # x → logits
Targets = Literal["classes", "soft", "weighted"]  # each includes those before it; see `Algorithm.targets`

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # the parts of the state of a parameter in Adam and AdamW


@dataclass(frozen=True)
class Task:
    """The task of a run. A method that declares `needs_task` gets it through `Algorithm.set_task`."""

    classes: tuple[str, ...]  # names in the order of the labels; in words for a head of text embeddings
    domains: tuple[str, ...]  # names of the source domains, in the order of the batches
    normalisation: Normalisation | None = None  # of the images that the network sees; None for arrays
    build_text: Callable[[], TextTower] | None = None  # builds the text tower of the backbone; None if it has none

    def require_text(self) -> TextTower:
        """Build the text tower of the backbone."""
        if self.build_text is None:
            raise UserError(
                "Expected a backbone with a text tower, such as open_clip:ViT-B-16.openai. Found one without. Name it "
                "with --backbone."
            )
        return self.build_text()


class Algorithm(nn.Module):
    """A domain-generalization method.

    Most methods define only `objective`; `update` then computes its gradient and takes an optimiser step. A method with
    several updates per step defines `update`. Random numbers come from torch's global generator, which the
    training loop seeds before every step from (seed, step): a step is a pure function of the state and the step number.

    The state is everything in `state_dict()`: parameters, buffers, `updates`, and every optimiser that is an attribute.
    A plain Python attribute that changes during training is a bug.

    Args:
        featurizer: g_θ, maps inputs to latent codes z (n, d).
        classifier: h_φ, maps codes to logits (n, C).
        n_domains: k, the number of source domains, and of the batches passed to `step`.
        config: an instance of the class's own `Config`.

    >>> from fgmix.algorithms import create
    >>> erm = create("erm", featurizer=nn.Flatten(), classifier=nn.Linear(4, 2), n_domains=1, lr=0.1)
    >>> sorted(erm.step([(torch.randn(8, 2, 2), torch.zeros(8, dtype=torch.long))]))
    ['loss']
    """

    # What the rest of the package needs to know about a method, declared only in its file.
    label: ClassVar[str] = ""  # name in tables; the registered name unless declared
    year: ClassVar[int | None] = None  # of the paper: that of the reference in the docstring, unless declared
    paper: ClassVar[str | None] = None  # its link, arXiv or DOI, likewise
    family: ClassVar[str | None] = None  # one of `records.declarations.FAMILIES`
    cost: ClassVar[float | None] = None  # operations of a step relative to ERM, by `benchmarks/operations.py`
    keeps: ClassVar[str | None] = None  # further networks that it keeps in memory, in a few words
    domainbed_name: ClassVar[str | None] = None  # DomainBed's name of the method; None if DomainBed lacks it
    min_domains: ClassVar[int] = 1
    needs_stages: ClassVar[bool] = False  # True: needs the stages of a convolutional network (networks.stages)
    paired_batches: ClassVar[bool] = False  # True: batches are sampled in pairs of the same class and domain
    needs_task: ClassVar[bool] = False  # True: gets names of classes and domains, preprocessing and texts by `set_task`
    head: ClassVar[Head | None] = None  # the head that it trains; None for that of the run
    trains: ClassVar[bool] = True  # False: a run has one step, which changes no weight, and one evaluation
    needs_indices: ClassVar[bool] = False  # True: each batch (x, y) has `indices`, those of its samples in their domain
    needs_norms: ClassVar[bool] = False  # True: needs normalisation layers with a scale and a shift
    adapts_at_test: ClassVar[bool] = False  # True: predicts batches of `config.test_batch_size`, see `start_test`
    delayed: ClassVar[Mapping[str, str]] = {}  # parts that start later, by the setting that gives the step
    # settings with which every part is active from the first step: 0 for those of `delayed`, unless declared
    at_work: ClassVar[Mapping[str, Any]] = {}
    restarts: ClassVar[tuple[str, ...]] = ()  # settings that give the step of a reset; see `restart_optimizer`
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # settings of costlier variants by name, timed and tested too
    # True: the loss is a mean over samples, each computed from that sample alone; see `backward`.
    per_sample: ClassVar[bool] = False
    # What y may be. "classes": integers (b,). "soft": also soft labels, floats (b, C); y enters cross-entropies alone.
    # "weighted": also such rows times the weights of the samples, which enter means of cross-entropies alone.
    targets: ClassVar[Targets] = "classes"
    recomputable: ClassVar[bool] = True  # False: weights differ between forward and backward pass; see `recompute`
    wrappable: ClassVar[bool] = True  # whether SAM and SAGM may replace `Algorithm.update`; see `__init_subclass__`
    Config: ClassVar[type[BaseConfig]] = BaseConfig
    config: Any  # an instance of `Config`, which each method defines: for mypy a method need not name its own

    def __init_subclass__(cls, **options: Any) -> None:
        """Reset `wrappable`, `per_sample` and `targets` for a class with an update of its own that lacks them.

        A class with an `update` or `step` declares `wrappable = True` if its `update` ends in
        `super().update(batches)`, which a wrapper replaces; otherwise the wrapper would have no effect. A class with an
        objective of its own declares `per_sample = True` if that is so, and the `targets` that it accepts.
        """
        super().__init_subclass__(**options)
        own = set(vars(cls))
        for fact, value in find_reference(cls.__doc__).items():
            if fact not in own:
                setattr(cls, fact, value)
        if "delayed" in own and "at_work" not in own:
            cls.at_work = dict.fromkeys(cls.delayed, 0)
        if {"update", "step"} & own and "wrappable" not in own:
            cls.wrappable = False
        if {"objective", "update", "step"} & own:
            cls.per_sample = "per_sample" in own and cls.per_sample
            cls.targets = cls.targets if "targets" in own else "classes"

    def __init__(self, featurizer: nn.Module, classifier: nn.Module, n_domains: int, config: BaseConfig) -> None:
        check_parts(featurizer, classifier, n_domains)
        if not isinstance(config, BaseConfig):
            raise bad_value("config", f"a {type(self).Config.__qualname__}", config)
        super().__init__()
        self.featurizer = featurizer
        self.classifier = classifier
        self.n_domains = n_domains
        self.config = config
        self.updates = 0  # steps done; saved with the optimisers
        self.measures = True  # whether a step returns all metrics, or may leave out costly ones; set by the loop
        self.optimizer: Optimizer = self.build_model_optimizer()

    def step(self, batches: Batches) -> dict[str, Tensor]:
        """Take one optimisation step on `batches[i]` = (x, y) of source domain i; return detached scalars."""
        self._check_batches(batches)
        if self.updates in [getattr(self.config, setting) for setting in self.restarts]:
            self.restart_optimizer()
        if self.config.schedule != "constant" or self.config.lr_warmup:
            set_rates(self.optimizers().values(), self.lr_factor)
        with _uncached_autocast():
            metrics = self.update(batches)
        check_metrics(metrics)
        self.updates += 1
        return {name: value.detach() for name, value in metrics.items()}

    def update(self, batches: Batches) -> dict[str, Tensor]:
        """Take one step of the optimiser on the "loss" of `objective`."""
        self.optimizer.zero_grad(set_to_none=True)
        terms = self.backward(batches)
        self.optimizer.step()
        return terms

    def backward(self, batches: Batches) -> dict[str, Tensor]:
        """Add the gradients of the objective to those of the parameters, and return its terms.

        The gradients of micro-batches are added up, weighed by their shares of the samples.
        """
        if self.config.accumulate == 1:
            terms = self.objective(batches)
            check_metrics(terms, trained=True)
            terms["loss"].backward()
            return terms
        total: dict[str, Tensor] = {}
        for part, share in split_batches(batches, self.config.accumulate):
            terms = self.objective(part)
            check_metrics(terms, trained=True)
            (share * terms["loss"]).backward()
            for name, value in terms.items():
                total[name] = total.get(name, 0) + share * value.detach()
        return total

    def objective(self, batches: Batches) -> dict[str, Tensor]:  # noqa: ARG002 (for methods)
        """Return the loss to minimise under "loss", and its terms."""
        raise UserError(f"Expected a method `objective` or `update` in {type(self).__qualname__}. Found none. Add one.")

    def predict(self, x: Tensor) -> Tensor:
        """Compute logits (n, C) = h(g(x)). Evaluation, averaging and export assume that g and h make a prediction."""
        logits: Tensor = self.classifier(self.featurizer(x))
        return logits

    def start_test(self) -> Predict:
        """Return the function that predicts the batches of one domain, in evaluation and in inference mode: `predict`.

        A method that declares `adapts_at_test` returns a function that may depend on the batch and on those before it.
        Evaluation calls this method anew for every part of every domain; it must not change the algorithm.
        """
        return self.predict

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(x)

    # Used by a run before its first step

    def set_task(self, task: Task) -> None:
        """Keep the task of the run, after `__init__`; a method that `needs_task` builds what depends on it here."""
        self.task = task

    @classmethod
    def check_batch(cls, config: BaseConfig, batch_size: int, shape: tuple[int, ...]) -> None:
        """Raise an error for batches that the method cannot use: `batch_size` samples per domain, each of `shape`."""

    @classmethod
    def domains_per_class(cls, config: BaseConfig, n_domains: int) -> int:  # noqa: ARG003 (for methods that pair domains)
        """Return in how many of the source domains of a batch a class must occur for the method to act; 0 if none."""
        return 0

    @classmethod
    def wrap_sampler(cls, sampler: Any, labels: tuple[Any, ...]) -> Any:  # noqa: ARG003 (for methods that sample)
        """Return what draws the batches: an object with `draw(step)` → indices (b,) for each source domain.

        It depends on the step alone, or a run could not be resumed exactly. `sampler` draws as the run's options say,
        with `seed` from `pools`, the indices of the training parts. `labels` are those of all samples, by domain.
        """
        return sampler

    @classmethod
    def first_base_step(cls, config: BaseConfig) -> int:  # noqa: ARG003 (for methods that pre-train other parts)
        """Return how many steps pass before g and h begin to train."""
        return 0

    @classmethod
    def idle_parts(cls, config: BaseConfig) -> list[str]:
        """Return a note, printed at the start of a run, for every part that `config.steps` steps are too few for."""
        return [
            f"{cls.label}: {part} takes effect after {before} steps (`{setting}`), "
            f"and this run has {config.steps}. Lower `{setting}` or train longer."
            for setting, part in cls.delayed.items()
            if (before := math.ceil(cls.steps_before(setting, config))) >= config.steps
        ]

    @classmethod
    def steps_before(cls, setting: str, config: BaseConfig) -> float:
        """Return how many steps pass before a part of `delayed` is active: by default the value of its setting."""
        number: float = getattr(config, setting)
        return number

    @classmethod
    def review(cls, config: BaseConfig, metrics: Mapping[str, float]) -> list[str]:  # noqa: ARG003
        """Return notes on a finished run, from the means of its metrics over all steps."""
        return []

    @classmethod
    def trunk_steps(cls, config: BaseConfig) -> int:  # noqa: ARG003 (for methods that begin as ERM)
        """Return how many of the first steps train g and h exactly as ERM does and change nothing else but the prior
        of FGMix: the runs of a sweep share them (`fgmix.training.trunk`)."""
        return 0

    @classmethod
    def domainbed_space(cls, dataset: str, kind: str) -> Mapping[str, Searched]:  # noqa: ARG003 (most are the same)
        """Return DomainBed's search space where it differs from `Config` and the shared table: settings, "batch_size"
        or "dropout" whose name or distribution is special to this method or depends on the dataset's name or kind."""
        return {}

    # Helpers for methods

    def encode(self, batches: Batches, *, alone: bool = False) -> tuple[Tensor, ...]:
        """Return codes of every domain, k tensors (b_e, d), from one forward pass over all of them.

        Args:
            batches: of the source domains.
            alone: whether DomainBed encodes each domain alone. The codes are the same unless batch-norm layers train,
                which then normalise by the statistics of one domain: only there it is done here, too.
        """
        if alone and self.batch_norm_trains:
            return tuple(self.featurizer(x) for x, _ in batches)
        z: Tensor = self.featurizer(torch.cat([x for x, _ in batches]))
        return tuple(torch.split(z, [len(y) for _, y in batches]))

    @property
    def batch_norm_trains(self) -> bool:
        """Whether a batch-norm layer of g normalises by the statistics of the batch."""
        return any(m.training for m in self.featurizer.modules() if isinstance(m, BATCH_NORMS))

    def build_model_optimizer(
        self,
        featurizers: Sequence[nn.Module] | None = None,
        heads: Sequence[nn.Module] | None = None,
        *,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
    ) -> Optimizer:
        """Build the optimiser for g and h, or for the networks that a method trains in their place.

        `lr` overrides the config's, and scales that of the head. `betas` are the method's own, of Adam and AdamW.
        """
        config, lr = self.config, self.config.lr if lr is None else lr
        featurizers = (self.featurizer,) if featurizers is None else featurizers
        heads = (self.classifier,) if heads is None else heads
        head_lr = lr if config.head_lr is None else config.head_lr * (lr / config.lr)
        of_featurizers = [each for g in featurizers for each in rate_network(g, config, lr)]
        of_heads = [p for h in heads for p in h.parameters()]
        rated = [*of_featurizers, *rate_others(of_heads, config, head_lr, config.weight_decay)]
        return build_optimizer(rated, config, betas)

    def build_optimizer(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float | None = None,
        weight_decay: float | None = None,
        betas: tuple[float, float] | None = None,
    ) -> Optimizer:
        """Build the optimiser for other parameters than those of g and h, such as a discriminator's."""
        return build_optimizer(self._rate(parameters, lr, weight_decay), self.config, betas)

    def add_parameters(
        self, parameters: Iterable[nn.Parameter], *, lr: float | None = None, weight_decay: float | None = None
    ) -> None:
        """Train further parameters with the optimiser of g and h; they are clipped on their own."""
        network = len(self.optimizer.param_groups)
        for group in group_parameters(self._rate(parameters, lr, weight_decay), self.config, network):
            self.optimizer.add_param_group(group)

    def _rate(self, parameters: Iterable[nn.Parameter], lr: float | None, decay: float | None) -> Iterator[Rated]:
        config = self.config
        rate, decay = config.lr if lr is None else lr, config.weight_decay if decay is None else decay
        return rate_others(parameters, config, rate, decay)

    @property
    def lr_factor(self) -> float:
        """What the schedule multiplies learning rates by in this step."""
        return compute_factor(self.config, self.updates)

    def restart_optimizer(self) -> None:
        """Reset the optimiser where a penalty sets in and the magnitude of the gradients changes."""
        self.optimizer = self.build_model_optimizer(lr=getattr(self.config, "lr_after", self.config.lr))

    @property
    def code_size(self) -> int:
        """Return d, the width of the latent codes."""
        declared = getattr(self.featurizer, "out_features", None)
        if isinstance(declared, int):
            return declared
        return next(self._linear_layers()).in_features

    @property
    def n_classes(self) -> int:
        """Return C, the number of classes."""
        n = count_classes(self.classifier)
        return list(self._linear_layers())[-1].out_features if n is None else n

    def _linear_layers(self) -> Iterator[nn.Linear]:
        layers = [m for m in self.classifier.modules() if isinstance(m, nn.Linear)]
        if not layers:
            raise UserError(
                "The classifier should hold a torch.nn.Linear layer, from which sizes are read. Found none."
            )
        return iter(layers)

    def _check_batches(self, batches: object) -> None:
        """Raise an error unless there is one batch (x, y) for each domain; before the first step, labels are read."""
        if not isinstance(batches, list | tuple) or len(batches) != self.n_domains:
            found = len(batches) if isinstance(batches, list | tuple) else f"a {type(batches).__name__}"
            raise UserError(
                f"Expected a list of one batch (x, y) for each of the {self.n_domains} source domains. Found {found}."
            )
        for domain, batch in enumerate(batches):
            is_pair = isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(t, Tensor) for t in batch)
            x, y = batch if is_pair else (torch.tensor(0), torch.tensor(0))
            soft = self.targets != "classes" and y.ndim == 2 and y.is_floating_point()
            if x.ndim < 1 or not (soft or (y.ndim == 1 and y.dtype == torch.int64)) or not len(x) == len(y) > 0:
                raise UserError(
                    f"Expected a batch (x, y) of tensors, samples and their classes. Found another one of source "
                    f"domain {domain}. Pass as many labels as samples, at least one, as integers of torch.int64."
                )
        labels = [y for _, y in batches if not (y.is_meta or y.ndim == 2)]
        if self.updates or not labels:  # once, because it reads numbers: on a GPU the host waits for them
            return
        low, high = min(int(y.min()) for y in labels), max(int(y.max()) for y in labels)
        n = count_classes(self.classifier) or high + 1
        if low < 0 or high >= n:
            raise UserError(f"Expected labels within 0…{n - 1}, the classes of the classifier. Found {low} to {high}.")

    # State beyond parameters and buffers

    def optimizers(self) -> dict[str, Optimizer]:
        """Return every optimiser of the method, by attribute name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Optimizer)}

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "updates": self.updates,
            "optimizers": {name: o.state_dict() for name, o in self.optimizers().items()},
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if type(state["updates"]) is not int:
            raise ValueError("the number of updates is not an integer")
        self.updates = state["updates"]
        for name, optimizer in self.optimizers().items():
            optimizer.load_state_dict(state["optimizers"][name])
            check_moments(optimizer)


def count_classes(classifier: nn.Module) -> int | None:
    """Return the number of logits: as the classifier declares it, or its last Linear layer; None if neither exists."""
    layers = [m for m in classifier.modules() if isinstance(m, nn.Linear)]
    return getattr(classifier, "out_features", layers[-1].out_features if layers else None)


def check_moments(optimizer: Optimizer) -> None:
    """Raise a ValueError unless the states of all parameters have the same parts, each a number or of its shape.

    `load_state_dict` accepts any state: a file that was edited would fail in the next step.
    """
    names = {frozenset(state) for state in optimizer.state.values() if state}
    if len(names) > 1 or (isinstance(optimizer, Adam | AdamW) and names - {frozenset(_MOMENTS)}):
        raise ValueError("parameters have different parts of the optimiser's state")
    for parameter, state in optimizer.state.items():
        for value in state.values():
            if value is not None and (not isinstance(value, Tensor) or value.shape not in ((), parameter.shape)):
                raise ValueError("the optimiser's state does not fit a parameter")


def check_parts(featurizer: nn.Module, classifier: nn.Module, n_domains: int) -> None:
    """Raise an error for parts that no method can use."""
    for part, module in (("featurizer", featurizer), ("classifier", classifier)):
        if not isinstance(module, nn.Module):
            raise bad_value(part, "a torch.nn.Module", module)
    if not any(p.requires_grad for module in (featurizer, classifier) for p in module.parameters()):
        raise UserError("Expected a featurizer or a classifier with parameters to train. Found none.")
    if type(n_domains) is not int or n_domains < 1:
        raise bad_value("n_domains", "a positive integer", n_domains)


def check_metrics(metrics: object, *, trained: bool = False) -> None:
    """Raise an error unless it is a dictionary of scalar tensors with "loss"; no number is read (synchronisation).

    With `trained`, the loss must also have a gradient.
    """
    if not isinstance(metrics, Mapping) or "loss" not in metrics:
        found = ", ".join(map(str, metrics)) if isinstance(metrics, Mapping) else f"a {type(metrics).__name__}"
        raise UserError(f'Expected a dictionary with "loss" from the method. Found {found or "an empty one"}.')
    for name, value in metrics.items():
        if not isinstance(value, Tensor) or value.ndim:
            found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
            raise UserError(f"Expected a scalar tensor as {name!r} from the method. Found {found}.")
    if trained and not metrics["loss"].requires_grad:
        raise UserError('Expected a "loss" with a gradient from the method. Found none: it is detached or constant.')


@contextmanager
def _uncached_autocast() -> Iterator[None]:
    """Switch off autocast's cache of half-precision weights within the block.

    Torch uses the cache even if an optimiser has changed the weights since: a method with two updates per step would
    use stale copies.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def part_of(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return the tensors of one part, under its own names: {"prior.mean": μ} → {"mean": μ}."""
    return {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}


def batch_of(batches: Batches) -> tuple[Tensor, Tensor]:
    """Return all domains as one batch: x (k·b, …), y (k·b,)."""
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def split_batches(batches: Batches, n: int) -> list[tuple[Batches, float]]:
    """Split the batch of every domain into n nearly equal parts, or fewer if it has fewer samples.

    Returns one list of batches for each part, and its share of all samples.

    >>> [(len(part), share) for part, share in split_batches([(torch.zeros(4, 2), torch.zeros(4))] * 3, 2)]
    [(3, 0.5), (3, 0.5)]
    """
    if n == 1:
        return [(batches, 1.0)]
    samples = sum(len(y) for _, y in batches)
    parts = [list(zip(x.tensor_split(n), y.tensor_split(n))) for x, y in batches]
    micro = ([(x, y) for x, y in part if len(y)] for part in zip(*parts))
    return [(part, sum(len(y) for _, y in part) / samples) for part in micro if part]


def domains_of(batches: Batches) -> Tensor:
    """Return the number of the domain that each sample of `batch_of(batches)` comes from, (k·b,)."""
    return torch.cat([torch.full((len(y),), e, device=y.device) for e, (_, y) in enumerate(batches)])


def descend(optimizer: Optimizer | Sequence[Optimizer], loss: Tensor, module: nn.Module | None = None) -> None:
    """Take one step of every optimiser on the loss; no gradients of other modules are computed if `module` is given."""
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
    for each in optimizers:
        each.zero_grad(set_to_none=True)
    loss.backward(inputs=None if module is None else list(module.parameters()))
    for each in optimizers:
        each.step()


def descend_along(optimizer: Optimizer, parameters: Iterable[nn.Parameter], direction: Iterable[Tensor]) -> None:
    """Take one step of the optimiser with `direction` as the gradient."""
    for p, gradient in zip(parameters, direction, strict=True):
        p.grad = gradient
    optimizer.step()
