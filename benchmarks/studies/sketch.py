"""Accuracy of FGMix with hashed gradients (`sketch`) against the gradients themselves: docs/algorithms/fgmix.md.

`python -m benchmarks.studies.sketch [FEATURES.npz:Q …]`, at the top of the repository; without files, synthetic data.
"""

from __future__ import annotations

import statistics
import sys
import tempfile

import numpy as np

import fgmix
from fgmix.data import DomainDataset, from_arrays, load
from fgmix.records.schema import RunSpec

SEEDS, STEPS = 3, 300


def main(files: list[str]) -> None:
    """Print the mean accuracy on test domains, and the difference that each sketch makes."""
    cases = [("synthetic, 65 classes", make_classes(65), (8, 16))]
    for file in files:
        path, _, q = file.rpartition(":")
        cases.append((path, load(path), (int(q),)))
    for name, data, sketches in cases:
        plain = measure(data, None)
        print(f"{name}: {statistics.mean(plain):.2f} %", flush=True)
        for q in sketches:
            change = [hashed - own for hashed, own in zip(measure(data, q), plain)]
            spread = statistics.pstdev(change)
            print(f"  sketch={q}: {statistics.mean(change):+.2f}, standard deviation {spread:.2f}", flush=True)


def measure(data: DomainDataset, sketch: int | None) -> list[float]:
    """Train on every held-out domain with every seed; return the accuracies on the test domain in percent."""
    settings = {} if sketch is None else {"sketch": sketch}
    accuracies = []
    for seed in range(SEEDS):
        for domain in data.domain_names:
            spec = RunSpec(
                dataset="arrays",
                algorithm="fgmix",
                test_domains=(domain,),
                steps=STEPS,
                seed=seed,
                trial_seed=seed,
                settings=settings,
                averaging="none",
                keep="none",
            )
            with tempfile.TemporaryDirectory() as out:
                record = fgmix.train(spec, out, dataset=data, progress=False)
            parts = record.evaluations[-1].accuracy["raw"][domain]
            accuracies.append(100 * (0.8 * parts["train"] + 0.2 * parts["holdout"]))
    return accuracies


def make_classes(n_classes: int, n: int = 6000, d: int = 64) -> DomainDataset:
    """Draw Gaussian classes in four domains, each slightly rotated and shifted."""
    rng = np.random.default_rng(1)
    y, domain = rng.integers(n_classes, size=n), rng.integers(4, size=n)
    means, shifts = rng.normal(size=(n_classes, d)), 0.5 * rng.normal(size=(4, d))
    turns = [np.linalg.qr(np.eye(d) + 0.06 * rng.normal(size=(d, d)))[0] for _ in range(4)]
    samples = [(means[c] + 1.2 * rng.normal(size=d)) @ turns[e] + shifts[e] for c, e in zip(y, domain)]
    return from_arrays(np.stack(samples).astype(np.float32), y, domain)


if __name__ == "__main__":
    main(sys.argv[1:])
