"""Compare scores of novelty on the domains that `fgmix fit` held out.

    python benchmarks/studies/novelty_scores.py MODEL DATA

Each score is judged by two questions, as AUROC, mean over the held-out domains (0.5 is chance): are wrong predictions
more novel than correct ones, and is content-free input (noise, plain images) more novel than samples of the domain?
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from fgmix.algorithms import Algorithm
from fgmix.deploy.hold_out import compute_noise_features, make_noise, select_weights
from fgmix.deploy.novelty import fit_familiar, squared_distances
from fgmix.records.metrics import auroc
from fgmix.records.store import read_record
from fgmix.training.open_run import OpenedRun, Sample, open_run
from fgmix.training.prepare import load_dataset

Floats = NDArray[np.float64]
SAMPLES, NOISE = 1000, 300  # of each domain


def held_out_runs(model: Path, data: str) -> Iterator[OpenedRun]:
    """The runs of a model's estimate, opened."""
    folders = sorted(record.parent for record in (model / "runs").glob("*/record.json"))
    dataset = load_dataset(msgspec.structs.replace(read_record(folders[0]).spec, dataset=str(data)), progress=False)
    for folder in folders:
        run = open_run(folder, dataset=dataset, progress=False)
        if run.test_domains:
            yield run


def outputs(algorithm: Algorithm, x: torch.Tensor) -> tuple[Floats, Floats]:
    """Codes and logits."""
    with torch.no_grad():
        z = torch.cat([algorithm.featurizer(part) for part in x.split(256)])
        return z.double().numpy(), algorithm.classifier(z).double().numpy()


def inputs(sample: Sample) -> torch.Tensor:
    return torch.cat(list(sample.inputs()))


def unit(z: Floats) -> Floats:
    return z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)


def scores(seen: Floats, y: NDArray[np.int64], new: Floats, z: Floats, o: Floats) -> dict[str, Floats]:
    """Novelty of codes z with logits o, by each score.

    Args:
        seen: codes that the network was trained on.
        y: their classes.
        new: codes of other samples of the same domains.
        z: codes to judge.
        o: their logits.
    """
    center, spread = seen.mean(0), seen.std(0) + 1e-6 * seen.std()
    means = np.stack([seen[y == c].mean(0) for c in np.unique(y)])
    around = np.cov((seen - means[np.searchsorted(np.unique(y), y)]).T) + 1e-6 * seen.var() * np.eye(seen.shape[1])
    white = np.linalg.inv(np.linalg.cholesky(around)).T
    familiar = fit_familiar(seen, y, new)

    def nearest(codes: Floats, to: Floats) -> Floats:
        return squared_distances(codes, to).min(1)

    return {
        "1 - confidence": 1 - softmax(o, axis=1).max(1),
        "energy": -logsumexp(o, axis=1),
        "standardised codes, class mean": nearest((z - center) / spread, (means - center) / spread),
        "standardised codes, nearest neighbour": nearest((z - center) / spread, (seen - center) / spread),
        "directions, nearest neighbour": nearest(unit(z), unit(seen)),
        "Mahalanobis distance of codes": nearest(z @ white, means @ white),
        "Mahalanobis distance of directions": replace(familiar, usual=0.0, reach=np.inf).novelty(z),
        "the same, with the factor for lengths (ours)": familiar.novelty(z),
    }


def judge(run: OpenedRun, features_of_noise: torch.Tensor | None) -> dict[str, tuple[float, float]]:
    """AUROC of each score against wrong predictions and against noise, on the domain that a run held out."""
    algorithm = run.algorithm(*select_weights(run.record))
    seen, new = (run.sample(run.sources, part, limit=SAMPLES) for part in ("train", "holdout"))
    sample = run.sample(run.test_domains, "train", limit=2 * SAMPLES)
    noise = make_noise(run.prepared, NOISE, features_of_noise)
    z, o = outputs(algorithm, torch.cat([inputs(sample), noise]))
    n = len(sample)
    wrong, is_noise = o[:n].argmax(1) != sample.y.numpy(), np.arange(len(z)) >= n
    codes = [outputs(algorithm, inputs(each))[0] for each in (seen, new)]
    found = scores(codes[0], seen.y.numpy(), codes[1], z, o)
    return {name: (auroc(v[:n], wrong) or np.nan, auroc(v, is_noise) or np.nan) for name, v in found.items()}


def main(model: str, data: str) -> dict[str, list[float]]:
    runs = list(held_out_runs(Path(model), data))
    spec = runs[0].record.spec
    features_of_noise = compute_noise_features(spec, NOISE, torch.device("cpu")) if spec.frozen else None
    judged = [judge(run, features_of_noise) for run in runs]
    means = {name: np.nanmean([found[name] for found in judged], axis=0).tolist() for name in judged[0]}
    print("| score | wrong predictions | noise |\n| --- | ---: | ---: |")
    for name, (wrong, noise) in means.items():
        print(f"| {name} | {wrong:.2f} | {noise:.2f} |")
    return means


if __name__ == "__main__":
    main(*sys.argv[1:])
