"""A whole run against a twin of DomainBed's training script, in CPU seconds of one process.

The twin has what that script does for ERM on small images: every domain is split 80 to 20, batches are drawn with
replacement by a loader for each source domain, and an evaluation passes both parts of all domains through the network,
64 images at a time, with the count fetched for every batch. A line of results is written after each evaluation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset, TensorDataset

import fgmix
from benchmarks.turns import Turns, by_turns
from fgmix.data import DomainDataset, load
from fgmix.networks import build_featurizer
from fgmix.records.schema import RunSpec
from fgmix.training.devices import torch_threads

BATCH, EVALUATED, HOLDOUT = 32, 64, 0.2
Samples = Dataset[tuple[Tensor, ...]]


def measure_run(*, steps: int = 300, every: int = 10, rounds: int = 3) -> Turns:
    """Time a run of ERM with the small CNN on `digits`, evaluated after its first step and every `every` steps.

    Ours evaluates the raw and the averaged model, and keeps weights and checkpoints as by default.
    """
    data = load("digits")
    spec = RunSpec(
        dataset="digits",
        algorithm="erm",
        test_domains=(data.domain_names[0],),
        backbone="small_cnn",
        batch_size=BATCH,
        steps=steps,
        eval_every=every,
        protocol="domainbed-2020",
    )

    def ours(_: int) -> None:
        with TemporaryDirectory() as out:
            fgmix.train(spec, out, dataset=data, progress=False)

    def theirs(_: int) -> None:
        with TemporaryDirectory() as out:
            train(data, steps, every, Path(out))

    with torch_threads(1):
        return by_turns(ours, theirs, rounds, time.process_time)


def train(data: DomainDataset, steps: int, every: int, out: Path) -> None:
    """Train ERM on all domains but the first, as DomainBed's script does."""
    torch.manual_seed(0)
    ins, outs = zip(*(split(as_samples(data, d), seed=d) for d in range(len(data.domains))))
    minibatches = zip(*(draw(part, steps) for part in ins[1:]))
    names = [f"env{d}_{part}_acc" for part in ("in", "out") for d in range(len(data.domains))]
    evaluated = [DataLoader(part, batch_size=EVALUATED) for part in (*ins, *outs)]
    featurizer = build_featurizer("small_cnn", data.input_shape)
    network = nn.Sequential(featurizer.net, nn.Linear(featurizer.out_features, len(data.classes)))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    values: dict[str, list[float]] = {"loss": [], "step_time": []}
    for step in range(steps):
        started = time.time()
        batches = next(minibatches)
        loss = cross_entropy(network(torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values["step_time"].append(time.time() - started)
        values["loss"].append(loss.item())
        if step % every == 0 or step == steps - 1:
            results = {"step": step, **{name: float(np.mean(each)) for name, each in values.items()}}
            results |= {name: measure_accuracy(network, loader) for name, loader in zip(names, evaluated)}
            with open(out / "results.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(results, sort_keys=True) + "\n")
            values = {name: [] for name in values}


def as_samples(data: DomainDataset, d: int) -> Samples:
    """Return the images and labels of a domain in memory."""
    domain = data.domains[d]
    return TensorDataset(domain.inputs.clean(np.arange(len(domain))), torch.from_numpy(domain.y))


def split(samples: Samples, seed: int) -> tuple[Samples, Samples]:
    """Split the samples of a domain at random."""
    order = np.random.RandomState(seed).permutation(len(samples))  # type: ignore[arg-type]  # it has a length
    n = int(HOLDOUT * len(order))
    return Subset(samples, order[n:].tolist()), Subset(samples, order[:n].tolist())


def draw(samples: Samples, steps: int) -> Iterator[list[Tensor]]:
    """Draw a batch with replacement for every step."""
    sampler = RandomSampler(samples, replacement=True, num_samples=steps * BATCH)  # type: ignore[arg-type]
    yield from DataLoader(samples, batch_size=BATCH, sampler=sampler)


def measure_accuracy(network: nn.Module, loader: DataLoader[tuple[Tensor, ...]]) -> float:
    """Compute the accuracy, with every sample of weight 1."""
    correct, total = 0.0, 0.0
    network.eval()
    with torch.no_grad():
        for x, y in loader:
            weights = torch.ones(len(x))
            correct += (network(x).argmax(1).eq(y).float() * weights).sum().item()
            total += weights.sum().item()
    network.train()
    return correct / total
