"""FGMix's policy step against a literal implementation: times in one process, peak memory in separate processes.

A policy step is everything that updates ω, λ and d, given the codes of a batch: tuples, per-sample gradients, scores,
weights, L_flat over 100 directions, both losses, both Adam updates.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.memory import read_peak
from fgmix.mixing import draw_tuples
from fgmix.mixing.fgmix import FGMix
from tests.reference.literal import LiteralPolicy

PER_DOMAIN = 32
DIRECTIONS = 100
CLASSES_IN_BATCH = 7  # as with the class-aware sampler: with 345 classes, domains would share none in a batch


@dataclass(frozen=True)
class Size:
    """d, C and k of a policy step: code size, number of classes, number of domains."""

    code_size: int
    n_classes: int
    n_domains: int


SIZES = (Size(2048, 7, 3), Size(2048, 65, 3), Size(2048, 345, 5))


@dataclass(frozen=True)
class PolicyCost:
    """Median milliseconds and peak memory in megabytes of a policy step."""

    size: Size
    fast: float
    literal: float
    fast_memory: float
    literal_memory: float

    @property
    def speed_up(self) -> float:
        return self.literal / self.fast

    @property
    def memory_share(self) -> float:
        return self.fast_memory / self.literal_memory


def measure_policy(sizes: Sequence[Size] = SIZES, *, rounds: int = 5, memory: bool = True) -> list[PolicyCost]:
    """Time and memory of FGMix's policy step and of the literal one.

    The two are timed alternately, `rounds` times after a warm-up, in this process. The literal step with 345 classes
    needs 10 GB; leave that size out on a machine with less.

    Args:
        sizes: which sizes.
        rounds: number of rounds.
        memory: also measure the peak memory, in a process for each size and kind; else it is 0.
    """
    costs = []
    for size in sizes:
        steps = {kind: policy_step(kind, size) for kind in ("fast", "literal")}
        times: dict[str, list[float]] = {kind: [] for kind in steps}
        for step in steps.values():
            step()
        for _ in range(rounds):
            for kind, step in steps.items():
                times[kind].append(_seconds(step))
        fast, literal = (1000 * statistics.median(times[kind]) for kind in ("fast", "literal"))
        del steps, step  # free the memory before the next size
        peaks = [peak_memory(kind, size) if memory else 0.0 for kind in ("fast", "literal")]
        costs.append(PolicyCost(size, fast, literal, *peaks))
    return costs


def policy_step(kind: str, size: Size) -> Callable[[], None]:
    """A function that runs one policy step, "fast" or "literal", on the codes of one batch."""
    torch.manual_seed(0)
    z, y, domains = _batch(size)
    classifier = nn.Linear(size.code_size, size.n_classes)
    if kind == "fast":
        fgmix = FGMix(size.code_size, classifier, directions=DIRECTIONS, lr=1e-3)

        def fast() -> None:
            fgmix(z, y, domains, classifier)

        return fast

    P = sum(p.numel() for p in classifier.parameters())
    policy = LiteralPolicy(P, size.code_size)

    def literal() -> None:
        index, labels = draw_tuples(y, domains, 32)
        z_prior = z.mean(0) + z.std(0, correction=0) * torch.randn(32, size.code_size)
        policy.step(classifier, z[index], labels, DIRECTIONS, z_prior)

    return literal


def peak_memory(kind: str, size: Size) -> float:
    """Megabytes that two policy steps add to the peak memory of a new process, with policy and optimiser state.

    The process first imports everything and runs a very small step, which are not counted.
    """
    code = f"from benchmarks.policy import Size, print_peak; print_peak({kind!r}, {size!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(result.stdout)


def print_peak(kind: str, size: Size) -> None:
    """Run in the process of `peak_memory`."""
    policy_step(kind, Size(8, 2, 2))()
    before = read_peak()
    step = policy_step(kind, size)
    step()
    step()  # the peak is in the second: the first creates the optimiser's state
    print(read_peak() - before)


def _batch(size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Codes (non-negative, as after a ReLU), classes, domain ids."""
    n = size.n_domains * PER_DOMAIN
    z = torch.randn(n, size.code_size).relu()
    y = torch.arange(n) % min(size.n_classes, CLASSES_IN_BATCH)
    return z, y, torch.arange(size.n_domains).repeat_interleave(PER_DOMAIN)


def _seconds(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
