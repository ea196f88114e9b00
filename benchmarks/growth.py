"""How the CPU time of a step grows with domains and classes, relative to ERM's step of the same size."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Adam
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.runs import count_cpu
from benchmarks.steps import SWA, Step, choose_step, make_batches, uses_channels_last
from benchmarks.turns import Turns, by_turns
from fgmix.algorithms import Algorithm, Batches, create, get
from fgmix.mixing.flatness import differentiate_gaps
from fgmix.mixing.prior import Discriminator
from fgmix.mixing.scores import Layer, LinearGradients
from fgmix.networks import build_classifier, build_featurizer

FEATURES, PER_DOMAIN = 128, 32
STEPS = 10  # on features in a round: a single step of two milliseconds is too short for the clock
RUN = " run"  # suffix of a method's name: ten steps of which FGMix mixes in four and measures in one, as in a run
PASSES = "passes"  # forward and backward pass of ERM alone, without an update: the floor of a step
MOST_IN_BATCH = 7  # classes in a batch, as with class-aware batches


@dataclass(frozen=True)
class Setup:
    """One network, its data, and the method whose step is timed; an image side of 0 is for features."""

    method: str
    n_domains: int = 3
    n_classes: int = 7
    head: str = "linear"
    backbone: str = "mlp"
    image_size: int = 0
    sketch: int | None = None

    @property
    def against(self) -> str:
        """Whose step it is compared with: on images, those of IGA and of ERM with DomainBed's."""
        return "DomainBed" if self.method in ("iga", "erm", PASSES) and self.image_size else "erm"

    @property
    def steps(self) -> int:
        """How many steps a round has."""
        return 1 if self.image_size and not self.method.endswith(RUN) else STEPS

    @property
    def size(self) -> str:
        """The setup without the method, as a table prints it."""
        head = "" if self.head == "linear" else f", {self.head} head"
        sketch = "" if self.sketch is None else f", q = {self.sketch}"
        return f"{self.backbone}, k = {self.n_domains}, C = {self.n_classes}{head}{sketch}"


@dataclass(frozen=True)
class Growth:
    """Seconds of the steps of a round, of a method and of what it is compared with."""

    setup: Setup
    turns: Turns

    def as_line(self) -> str:
        """Return the row of the table: milliseconds of both, their ratio with quartiles."""
        ours, theirs = (
            1000 * statistics.median(times) / self.setup.steps for times in (self.turns.ours, self.turns.theirs)
        )
        low, high = sorted(1 / quartile for quartile in self.turns.quartiles)
        return (
            f"{self.setup.method:12} {self.setup.size:36} {ours:7.2f}  {self.setup.against:9} {theirs:7.2f} "
            f"{1 / self.turns.ratio:6.2f}  {low:5.2f}–{high:5.2f}"
        )


ROWS = {
    "domains": [
        Setup(name, n_domains=k) for name in ("coral", "mmd", "mldg", "iga", "trm", "causirl_mmd") for k in (2, 12)
    ],
    "classes": [Setup("ridg", n_classes=C) for C in (7, 65, 345)],
    "mixing": [
        Setup(method, **size)
        for size in (
            {"n_classes": 7},
            {"n_classes": 65},
            {"n_classes": 65, "sketch": 8},
            {"n_classes": 345},
            {"n_classes": 345, "sketch": 16},
            {"head": "mlp"},
            {"head": "mlp", "sketch": 16},
            {"backbone": "small_cnn", "image_size": 28},
        )
        for method in ("fgmix", "fgmix run")
    ],
    "small": [Setup(method, backbone="small_cnn", image_size=28) for method in ("erm", PASSES)],
    "compiled": [],
    "average": [Setup("erm + swa")],
    "gradients": [Setup("iga", backbone="small_cnn", image_size=28), Setup("iga", backbone="resnet18", image_size=64)],
}


def measure_growth(setups: Sequence[Setup], *, rounds: int = 9) -> Iterator[Growth]:
    """Time the steps of each method and those that it is compared with alternately."""
    for setup in setups:
        ours = _choose_step(setup)
        same = build(replace(setup, method="iga" if setup.method == "iga" and setup.image_size else "erm"))
        theirs = same.step if setup.against == "erm" else _choose_domainbed_step(setup, same)
        yield Growth(setup, _take_turns(ours, theirs, setup, rounds))


def _choose_step(setup: Setup) -> Step:
    """Return the step to time; that of a run, called ten times, is one of each kind in turn."""
    if setup.method == PASSES:
        return _make_passes(build(replace(setup, method="erm")))
    if not setup.method.endswith(RUN):
        return choose_step(setup.method, build(replace(setup, method=setup.method.removesuffix(SWA))))
    setup = replace(setup, method=setup.method.removesuffix(RUN))
    idle, mixing = build(setup, tau=1.0), build(setup)
    order = cycle(6 * [(idle, False)] + 3 * [(mixing, False)] + [(mixing, True)])

    def step(batches: Batches) -> None:
        algorithm, algorithm.measures = next(order)
        algorithm.step(batches)

    return step


def _take_turns(ours: Step, theirs: Step, setup: Setup, rounds: int) -> Turns:
    batches = draw_batches(setup)

    def way(step: Step) -> Callable[[int], None]:
        def work(_: int) -> None:
            for _ in range(setup.steps):
                step(batches)

        for _ in range(STEPS // setup.steps):
            work(0)  # a warm-up: the first step makes the state of the optimiser
        return work

    return by_turns(way(ours), way(theirs), rounds, clock=time.process_time)


def build(setup: Setup, **settings: float) -> Algorithm:
    """Build the method on a network with random weights, with every part active unless settings say otherwise."""
    torch.manual_seed(0)
    shape = (3, setup.image_size, setup.image_size) if setup.image_size else (FEATURES,)
    images = bool(setup.image_size) and uses_channels_last(setup.backbone)
    featurizer = build_featurizer(setup.backbone, shape, freeze_bn=True, channels_last=images)
    classifier = build_classifier(setup.head, featurizer.out_features, setup.n_classes)
    parts = {"featurizer": featurizer, "classifier": classifier, "n_domains": setup.n_domains}
    sketch = {} if setup.sketch is None or setup.method == "erm" else {"sketch": setup.sketch}
    return create(setup.method, **parts, **{**get(setup.method).at_work, **sketch, **settings}).train()


def draw_batches(setup: Setup) -> Batches:
    """Draw a batch of noise for each domain; its classes occur in every domain, so that FGMix mixes."""
    classes = min(setup.n_classes, MOST_IN_BATCH)
    if setup.image_size:
        layout = torch.channels_last if uses_channels_last(setup.backbone) else torch.contiguous_format
        return make_batches(setup.image_size, PER_DOMAIN, setup.n_domains, classes, layout)
    g, y = torch.Generator().manual_seed(0), torch.arange(PER_DOMAIN) % classes
    return [(torch.randn(PER_DOMAIN, FEATURES, generator=g), y) for _ in range(setup.n_domains)]


def _make_passes(algorithm: Algorithm) -> Step:
    parameters = [*algorithm.featurizer.parameters(), *algorithm.classifier.parameters()]

    def passes(batches: Batches) -> None:
        torch.autograd.grad(algorithm.objective(batches)["loss"], parameters)

    return passes


def _choose_domainbed_step(setup: Setup, algorithm: Algorithm) -> Step:
    return domainbed_iga(algorithm) if setup.method == "iga" else domainbed_erm(algorithm)


def domainbed_erm(algorithm: Algorithm) -> Step:
    """Return DomainBed's update of ERM on the networks of `algorithm`."""
    parameters = [*algorithm.featurizer.parameters(), *algorithm.classifier.parameters()]
    optimizer = Adam(parameters, lr=algorithm.config.lr, weight_decay=algorithm.config.weight_decay)

    def step(batches: Batches) -> float:
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        loss = cross_entropy(algorithm.predict(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def domainbed_iga(algorithm: Algorithm) -> Step:
    """Return DomainBed's update of IGA on the networks of `algorithm`: one forward pass, a backward pass per domain."""
    parameters = [*algorithm.featurizer.parameters(), *algorithm.classifier.parameters()]
    optimizer = Adam(parameters, lr=algorithm.config.lr, weight_decay=algorithm.config.weight_decay)
    penalty_weight = algorithm.config.lam  # type: ignore[attr-defined]

    def step(batches: Batches) -> float:
        logits = algorithm.predict(torch.cat([x for x, _ in batches])).split([len(y) for _, y in batches])
        risks = [cross_entropy(o, y) for o, (_, y) in zip(logits, batches)]
        gradients = [torch.autograd.grad(risk, parameters, create_graph=True) for risk in risks]
        risk: Tensor = sum(risks) / len(risks)  # type: ignore[assignment]
        mean = torch.autograd.grad(risk, parameters, retain_graph=True)
        penalty = sum((g - m).pow(2).sum() for gradient in gradients for g, m in zip(gradient, mean))
        optimizer.zero_grad()
        (risk + penalty_weight * penalty).backward()
        optimizer.step()
        return risk.item() + penalty.item()  # type: ignore[union-attr]

    return step


@dataclass(frozen=True)
class Floor:
    """Median milliseconds of what a step of FGMix that mixes cannot avoid."""

    products: float  # of A_ω's first layer with the gradients of the samples in the tuples, and for its own gradient
    directions: float  # the random numbers of the perturbed classifiers
    adam: float  # on the first layer


HEADS = {  # outputs and inputs of the layers of the heads whose floor is measured
    **{f"C = {C}": ((C, 256),) for C in (7, 65, 345)},
    "C = 7, mlp head": ((128, 256), (64, 128), (7, 64)),
}


def measure_floor(head: Sequence[tuple[int, int]], *, samples: int = 61, rounds: int = 20) -> Floor:
    """Time these parts of a step on features, for a head of layers with so many outputs and inputs; the products as
    FGMix computes them."""
    blocks = [torch.nn.Parameter(torch.randn(128, size)) for h, d in head for size in (h * d, h)]
    layers = LinearGradients(tuple(Layer(torch.randn(samples, h), torch.randn(samples, d), bias=True) for h, d in head))
    numbers = head[0][0] * (samples + 1) + sum(h * (d + 1) for h, d in head[1:])  # of a direction
    optimizer = Adam(blocks, fused=True)

    @torch.no_grad()
    def multiply() -> None:
        _, pull = layers.project(blocks)
        optimizer.zero_grad()
        for block, gradient in zip(blocks, pull(torch.randn(samples, 128))):
            block.grad = gradient

    return Floor(*_time_all((multiply, lambda: torch.randn(101, numbers), optimizer.step), rounds))


def measure_operations(rounds: int = 60) -> tuple[float, float]:
    """Time the operations of a step of FGMix that mixes and of ERM with 7 classes, called again in their order without
    the code that calls them. In milliseconds, medians."""
    ours, erms = _time_all([record_operations(Setup(method)) for method in ("fgmix", "erm")], rounds)
    return ours, erms


def measure_compiled(rounds: int = 200) -> Iterator[tuple[str, float, float, float]]:
    """Time two parts of a step of FGMix with 7 classes, as they are and by `torch.compile`. Yields the part, both in
    milliseconds, and the CPU seconds of its compilation."""
    n, r, C, S = 32, 61, 7, 101
    directions = torch.randn(n, C), torch.randn(n, r), torch.randn(r + 1, S, C), torch.rand(S), torch.randint(C, (n,))
    discriminator, codes = Discriminator(256), (torch.randn(n, 256), torch.randn(n, 256))

    def differentiate(prior: Tensor, mixed: Tensor) -> tuple[Tensor, ...]:
        *losses, in_codes, pull = discriminator.losses(prior, mixed)
        return *losses, in_codes, *pull(torch.ones(()))

    parts: dict[str, tuple[Any, Any]] = {
        "flatness": (differentiate_gaps, directions),
        "discriminator": (differentiate, codes),
    }
    for name, (part, inputs) in parts.items():
        compiled = torch.compile(part, dynamic=part is differentiate_gaps)  # the number of samples r varies
        started = count_cpu()
        compiled(*inputs)
        seconds = count_cpu() - started
        before, after = _time_all((partial(part, *inputs), partial(compiled, *inputs)), rounds)
        yield name, before, after, seconds


def _time_all(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the median milliseconds of each, timed in turns after a warm-up."""
    times: list[list[float]] = [[] for _ in works]
    for number in range(-2, rounds):
        for work, measured in zip(works, times):
            started = time.process_time()
            work()
            if number >= 0:
                measured.append(1000 * (time.process_time() - started))
    return [statistics.median(measured) for measured in times]


class _Recorder(TorchDispatchMode):
    """Records the calls of torch's operations."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "aten":
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def record_operations(setup: Setup) -> Callable[[], None]:
    """Return a function that repeats the operations of a step, without metrics, on the same tensors."""
    algorithm, batches = build(setup), draw_batches(setup)
    algorithm.step(batches)
    algorithm.measures = False
    algorithm.step(batches)
    with _Recorder() as recorder:
        algorithm.step(batches)

    @torch.no_grad()
    def repeat() -> None:
        for func, args, kwargs in recorder.calls:
            func(*args, **kwargs)

    return repeat
