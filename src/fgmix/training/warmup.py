"""Linear probing before fine-tuning: train the classifier on the codes of the initial network.

The first gradients of a new classifier would distort pre-trained features. Kumar et al., "Fine-Tuning can Distort
Pretrained Features and Underperform Out-of-Distribution", 2022, https://arxiv.org/abs/2202.10054.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from msgspec import structs
from torch.nn.functional import cross_entropy

from fgmix.algorithms import Algorithm
from fgmix.progress import Progress
from fgmix.seeding import seed_hash, seed_torch
from fgmix.training.devices import autocast
from fgmix.training.prepare import PreparedRun, build_source

LR = 1e-3  # Adam's default: the classifier starts from random weights, whatever the network's learning rate


def warm_up(algorithm: Algorithm, run: PreparedRun, *, progress: bool = True) -> Algorithm:
    """Train the classifier alone for `warmup_head` steps of ERM, with a separate Adam; returns the algorithm.

    They are part of the initialisation: a resumed run repeats them, with the same result.

    Args:
        algorithm: with its initial weights, on its device.
        run: what to train on; batches are sampled with another seed than the run's.
        progress: show a progress bar.
    """
    steps, h = run.spec.warmup_head, algorithm.classifier
    if not steps:
        return algorithm
    device = next(algorithm.parameters()).device
    source = build_source(replace(run, spec=structs.replace(run.spec, seed=seed_hash("warm-up", run.spec.seed))))
    optimizer = torch.optim.Adam(h.parameters(), lr=LR)
    algorithm.featurizer.eval()  # codes as in evaluation: no dropout, and batch-norm statistics do not change
    h.train()
    with Progress("warm-up of the classifier", steps, show=progress) as bar:
        for step, batches in enumerate(source.ahead(0, steps, device=device)):
            seed_torch("warm-up", run.spec.seed, step)
            x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
            with torch.no_grad(), autocast(run.spec.precision, device):
                z = algorithm.featurizer(x)
            loss = cross_entropy(h(z.float()), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            bar.advance()
    optimizer.zero_grad(set_to_none=True)
    return algorithm
