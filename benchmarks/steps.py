"""Time of a training step of every method, relative to ERM in the same process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fgmix.algorithms import Algorithm, Batches, create, get, names
from fgmix.errors import bad_value
from fgmix.networks import build_featurizer
from fgmix.records.files import make_folder, write_json
from fgmix.records.status import COST_FILE
from fgmix.sweeps.presets import ALGORITHMS
from fgmix.testing.toys import build_toy_head, make_toy_task
from fgmix.training.averaging import RunningMean

AVERAGED = ("erm + swa", "selfreg + swa", "coral + swa", "fgmix + swa")  # methods that the paper times with SWA
PAPER = (*ALGORITHMS, *AVERAGED)  # rows of the paper's table
SWA = " + swa"  # suffix of a method's name: its step and the update of the running mean

Step = Callable[[Batches], object]


@dataclass(frozen=True)
class StepCost:
    """Time of a step relative to ERM: median and quartiles of the rounds; median milliseconds of the step."""

    name: str
    ratio: float
    low: float
    high: float
    milliseconds: float


def measure_steps(
    algorithms: Sequence[str] | None = None,
    *,
    backbone: str = "resnet18",
    image_size: int = 64,
    batch_size: int = 32,
    n_domains: int = 3,
    n_classes: int = 7,
    rounds: int = 15,
    cpu_time: bool = False,
) -> Iterator[StepCost]:
    """Time one step of each method and one of ERM alternately, `rounds` times; the ratio is the median over rounds.

    A method's cost is yielded as soon as it is measured: all of them take minutes.

    Args:
        algorithms: names; by default all registered ones, their `forms` and `AVERAGED`. "metamixup (exact)" is the form
            `exact` of metamixup; a name that ends in " + swa" averages its weights.
        backbone: the network.
        image_size: side of the images, which are noise: the time does not depend on their content.
        batch_size: samples per domain.
        n_domains: number of source domains.
        n_classes: number of classes.
        rounds: number of rounds.
        cpu_time: measure CPU time of this process, which other processes hardly change, instead of wall-clock time;
            with one thread they are equal on an idle machine.
    """
    clock = time.process_time if cpu_time else time.perf_counter
    check_rounds(rounds)
    chosen = list(algorithms or [*names(), *_list_forms(), *AVERAGED])
    layout = torch.channels_last if uses_channels_last(backbone) else torch.contiguous_format
    batches = make_batches(image_size, batch_size, n_domains, n_classes, layout)
    erm = build_algorithm("erm", backbone, image_size, n_domains, n_classes).step
    for name in chosen:
        method = choose_step(name, build_algorithm(name.removesuffix(SWA), backbone, image_size, n_domains, n_classes))
        for warm_up in (erm, method, method):
            warm_up(batches)
        pairs = [(_seconds(erm, batches, clock), _seconds(method, batches, clock)) for _ in range(rounds)]
        yield _summarise(name, [*pairs, (_seconds(erm, batches, clock), 0.0)])


def write_costs(costs: Sequence[StepCost], bench: Mapping[str, Any], out: Path) -> None:
    """Write the times of methods, ERM among them, to a folder for `fgmix report`; replaces earlier times."""
    erm = next(each.milliseconds for each in costs if each.name == "erm")
    # A ratio is of alternating steps; milliseconds of different methods were measured minutes apart.
    milliseconds = [(each.name, erm * each.ratio) for each in costs]
    content = {
        "bench": dict(bench),
        "labels": {name: get(name).label for name, _ in milliseconds if name in names()},
        "milliseconds": [(name, time) for name, time in milliseconds if not name.endswith(SWA)],
        "averaged_milliseconds": [(name.removesuffix(SWA), time) for name, time in milliseconds if name.endswith(SWA)],
    }
    write_json(make_folder(out) / COST_FILE, content)


def _summarise(name: str, times: list[tuple[float, float]]) -> StepCost:
    """Compute the cost from alternating seconds of ERM and the method, ERM first and last."""
    # Relative to the mean of ERM's steps before and after: a temporary slowdown of the machine affects all three.
    ratios = [2 * method / (before + after) for (before, method), (after, _) in pairwise(times)]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    return StepCost(name, ratio, low, high, 1000 * statistics.median(method for _, method in times[:-1]))


def build_algorithm(name: str, backbone: str, image_size: int, n_domains: int, n_classes: int) -> Algorithm:
    """Build the named method, or a form of it, on a network with random weights and every part active."""
    name, form = _list_forms().get(name, (name, {}))
    torch.manual_seed(0)
    shape = (3, image_size, image_size)
    featurizer = build_featurizer(backbone, shape, freeze_bn=True, channels_last=uses_channels_last(backbone))
    classifier = build_toy_head(get(name).head or "linear", featurizer.out_features, n_classes)
    task = make_toy_task(n_domains, featurizer.out_features, n_classes)
    parts = {"featurizer": featurizer, "classifier": classifier, "n_domains": n_domains, "task": task}
    return create(name, **parts, **get(name).at_work, **form).train()


def _list_forms() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return method and settings by the name in the table, such as "metamixup (exact)"."""
    return {f"{name} ({form})": (name, settings) for name in names() for form, settings in get(name).forms.items()}


def choose_step(name: str, algorithm: Algorithm) -> Step:
    """Return the step of the named method: the algorithm's, and the update of the average if there is one."""
    if not name.endswith(SWA):
        return algorithm.step
    mean = RunningMean(algorithm, start=1)

    def averaged(batches: Batches) -> None:
        algorithm.step(batches)
        mean.update(algorithm.updates)

    return averaged


def uses_channels_last(backbone: str) -> bool:
    """Tell whether images are channels-last, as by default in runs."""
    return backbone not in ("small_cnn", "mnist_cnn")


def make_batches(
    image_size: int, batch_size: int, n_domains: int, n_classes: int, layout: torch.memory_format
) -> Batches:
    """Draw a batch of noise for each domain, the same every time."""
    g = torch.Generator().manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randn(batch_size, 3, image_size, image_size, generator=g)
        return x.contiguous(memory_format=layout), torch.arange(batch_size) % n_classes

    return [batch() for _ in range(n_domains)]


def check_rounds(rounds: int) -> None:
    """Raise an error for too few rounds to have quartiles."""
    if rounds < 3:
        raise bad_value("rounds", "at least 3, which quartiles need", rounds)


def _seconds(step: Step, batches: Batches, clock: Callable[[], float]) -> float:
    started = clock()
    step(batches)
    return clock() - started
