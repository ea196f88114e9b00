"""How much faster runs of ERM on features could be if they were trained as stacked matrices in one process.

The stacked training is written by hand for the network of `mlp`. Its runs draw the batches of single runs, share one
update of Adam, average their weights and are evaluated as often; they write no checkpoint, weights or record. It is
therefore an upper bound of what `fgmix sweep` could gain.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import fgmix
from benchmarks.runs import make_features
from benchmarks.turns import Turns, by_turns
from fgmix.data import DomainDataset
from fgmix.records.schema import RunSpec
from fgmix.training.devices import torch_threads
from fgmix.training.prepare import PreparedRun, build_algorithm, build_source, prepare


def measure_stacked(*, features: int = 128, runs: int = 16, steps: int = 100, rounds: int = 3) -> Turns:
    """Time the same runs stacked (ours) and one by one by `fgmix.train` (theirs)."""
    data = make_features(features)
    test = (data.domain_names[-1],)
    specs = [RunSpec(dataset="arrays", algorithm="erm", test_domains=test, steps=steps, seed=s) for s in range(runs)]

    def train_each(_: int) -> None:
        with TemporaryDirectory() as out:
            for spec in specs:
                fgmix.train(spec, Path(out), dataset=data, progress=False)

    def train_stacked(_: int) -> None:
        train_together([prepare(spec, data, device="cpu", progress=False) for spec in specs], data)

    with torch_threads(1):
        train_stacked(0), train_each(0)
        return by_turns(train_stacked, train_each, rounds, time.process_time)


def train_together(runs: list[PreparedRun], data: DomainDataset) -> None:
    """Train the MLPs of runs as stacked matrices; evaluate the raw and the averaged models."""
    spec, sources = runs[0].spec, [build_source(run) for run in runs]
    algorithms = [build_algorithm(run) for run in runs]
    weights = [torch.stack(each).detach().requires_grad_() for each in zip(*(a.parameters() for a in algorithms))]
    means = [weight.detach().clone() for weight in weights]
    config = algorithms[0].config
    optimizer = torch.optim.Adam(weights, lr=config.lr, weight_decay=config.weight_decay, fused=True)
    for step in range(1, spec.steps + 1):
        batches = [source.at(step - 1) for source in sources]
        x = torch.stack([torch.cat([x for x, _ in each]) for each in batches])  # (runs, k·b, f)
        y = torch.stack([torch.cat([y for _, y in each]) for each in batches])
        loss = cross_entropy(predict(x, weights).flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        added = max(1, step - spec.averaging_start)
        torch._foreach_lerp_(means, [weight.detach() for weight in weights], 1 / added)
        if step % spec.eval_every == 0:
            evaluate(data, weights, means)


@torch.inference_mode()
def evaluate(data: DomainDataset, *models: list[Tensor]) -> None:
    """Compute the accuracies of models of all runs on all domains."""
    for domain in data.domains:
        x, y = domain.inputs.clean(np.arange(len(domain))), torch.from_numpy(domain.y)
        for weights in models:
            logits = predict(x.expand(len(weights[0]), *x.shape), weights)
            (logits.argmax(-1) == y).float().mean(1).tolist()


def predict(x: Tensor, weights: list[Tensor]) -> Tensor:
    """Compute the logits (runs, n, C) of stacked MLPs."""
    *hidden, (w, b) = zip(weights[::2], weights[1::2])
    for w_i, b_i in hidden:
        x = torch.baddbmm(b_i[:, None], x, w_i.mT).relu()
    return torch.baddbmm(b[:, None], x, w.mT)
