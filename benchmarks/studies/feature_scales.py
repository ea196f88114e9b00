"""Compare rules for the scale of features on domains held out: the table of docs/fit/standardise.md.

    OMP_NUM_THREADS=1 python benchmarks/studies/feature_scales.py --seeds 5

ERM, 300 steps; accuracy in percent, mean of the last three evaluations, test domains and seeds. A rule is as it is, or
standardised and then left alone, clipped or damped beyond some standard deviations.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from fgmix import RunSpec, train
from fgmix.data import DomainDataset, from_arrays
from fgmix.data.standardisation import Standardisation, fit_standardisation

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))  # whose digits are used here too
FEATURES = ROOT.parent / "shared" / "data" / "pacs_resnet50_features.npz"
STEPS, LAST = 300, 3
Made = tuple[DomainDataset, list[tuple[str, ...]]]  # data, and the test domains of each run


class Clipped(Standardisation):
    """Cut off beyond the tail in place of damping."""

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        return np.clip(Standardisation(self.mean, self.scale, np.inf)(x), -self.tail, self.tail)


@dataclass(frozen=True)
class Rule:
    """How features are scaled: not at all (no tail), or standardised with damped or clipped tails."""

    tail: float | None
    kind: type[Standardisation] = Standardisation

    def fit(self, parts: Any, _: float) -> Standardisation:
        found = fit_standardisation(parts)
        return self.kind(found.mean, found.scale, self.tail or np.inf)


RULES = {
    "as it is": Rule(None),
    "standardised": Rule(np.inf),
    "clipped at 5": Rule(5.0, Clipped),
    "damped beyond 3": Rule(3.0),
    "damped beyond 5": Rule(5.0),
}


def rotated(angle: int, seed: int) -> Made:
    """Digits at 0, 20 and 40 degrees, tested at another angle."""
    from rotated_digits import TESTS, digits

    data = digits(seed)
    others = {f"{each}°" for each in TESTS} - {f"{angle}°"}
    kept = tuple(domain for domain in data.domains if domain.name not in others)
    return from_parts(data, kept), [(f"{angle}°",)]


def from_parts(data: DomainDataset, domains: tuple[Any, ...]) -> DomainDataset:
    """Some domains of a dataset as one of its own."""
    x, y = (np.concatenate(found) for found in zip(*((d.inputs.x, d.y) for d in domains)))
    return from_arrays(x, y, np.repeat([d.name for d in domains], [len(d.y) for d in domains]), name=data.name)


def noisy(seed: int) -> Made:
    """Digits in seven looks, tested on the noisy one."""
    from unseen_interval import seven_domains

    del seed  # it splits the domains
    return from_arrays(*seven_domains(), name="seven"), [("noisy",)]


def table(load: Callable[..., Any], column: int | None, seed: int) -> Made:
    """Random thirds of a table, or thirds by one of its columns."""
    x, y = load(return_X_y=True)
    by = np.random.default_rng(seed).permutation(len(y)) if column is None else x[:, column]
    third = np.searchsorted(np.quantile(by, [1 / 3, 2 / 3]), by)
    return from_arrays(x.astype(np.float32), y, third, name=load.__name__), [("0",), ("1",), ("2",)]


def pacs(seed: int) -> Made:
    """ResNet-50 features of PACS."""
    del seed
    with np.load(FEATURES) as file:
        names = file["domains"]
        return from_arrays(file["X"], file["y"], names[file["domain"]], name="pacs"), [(str(name),) for name in names]


def units(seed: int, n: int = 4000) -> Made:
    """20 columns in units from 1e-6 to 1e6."""
    x, y = datasets.make_classification(
        n, 20, n_informative=12, n_redundant=0, n_classes=4, class_sep=1.5, random_state=seed
    )
    rng = np.random.default_rng(seed)
    domain = rng.integers(4, size=n)
    x = (x / x.std(0) + 0.5 * rng.normal(size=(4, 20))[domain]) * 10.0 ** np.linspace(-6, 6, 20)
    return from_arrays(x.astype(np.float32), y, domain, name="units"), [("0",)]


def categories(seed: int, n: int = 4000, k: int = 150) -> Made:
    """One of k categories, most of them rare, one-hot, and four numbers."""
    rng = np.random.default_rng(seed)
    domain = rng.integers(4, size=n)
    frequency = np.arange(1, k + 1) ** -1.2 * rng.lognormal(size=(4, k))
    frequency /= frequency.sum(1, keepdims=True)
    category = np.array([rng.choice(k, p=frequency[d]) for d in domain])
    p = rng.dirichlet([0.3] * 3, k)
    y = np.array([rng.choice(3, p=p[c]) for c in category])
    numbers = rng.normal(size=(n, 4)) + 0.7 * np.eye(3, 4)[y] + 0.3 * rng.normal(size=(4, 4))[domain]
    x = np.hstack([np.eye(k)[category], numbers]).astype(np.float32)
    return from_arrays(x, y, domain, name="categories"), [("0",)]


def contrast(seed: int) -> Made:
    """Digits at contrasts 0.5, 1 and 2, tested at 6."""
    x, y = datasets.load_digits(return_X_y=True)
    domain = np.random.default_rng(seed).integers(4, size=len(y))
    x = x / 16 * np.array([0.5, 1, 2, 6])[domain][:, None]
    return from_arrays(x.astype(np.float32), y, domain, name="contrast"), [("3",)]


DATA: dict[str, Callable[[int], Made]] = {
    **{f"digits at 0°, 20° and 40°, tested at {angle}°": partial(rotated, angle) for angle in (10, 50, 60, 70)},
    "digits in seven looks, tested on the noisy one": noisy,
    "PACS, features of ResNet-50": pacs,
    "wine, random thirds": partial(table, datasets.load_wine, None),
    "wine, thirds by malic acid": partial(table, datasets.load_wine, 1),
    "breast cancer, random thirds": partial(table, datasets.load_breast_cancer, None),
    "breast cancer, thirds by mean texture": partial(table, datasets.load_breast_cancer, 1),
    "150 categories, most of them rare, one-hot": categories,
    "20 columns in units from 1e-6 to 1e6": units,
    "digits at contrasts 0.5, 1 and 2, tested at 6": contrast,
}


def accuracy(rule: Rule, data: DomainDataset, tests: tuple[str, ...], seed: int, steps: int = STEPS) -> float:
    """In percent on the test domains."""
    spec = RunSpec(
        dataset=data.name,
        algorithm="erm",
        test_domains=tests,
        trial_seed=seed,
        seed=seed,
        steps=steps,
        eval_every=max(1, steps // 5),
        keep="none",
        averaging="none",
        standardize=rule.tail is not None,
    )
    with TemporaryDirectory() as out, patch("fgmix.training.prepare.fit_standardisation", rule.fit):
        record = train(spec, out, dataset=data, device="cpu", progress=False)
    found = [e.accuracy["raw"][test]["train"] for e in record.evaluations[-LAST:] for test in tests]
    return 100 * float(np.mean(found))


def main(seeds: int, steps: int = STEPS, names: tuple[str, ...] = tuple(DATA)) -> dict[str, list[float]]:
    """Print a row for each dataset and return the means."""
    print(f"| data | {' | '.join(RULES)} |\n| --- |{' ---: |' * len(RULES)}", flush=True)
    rows: dict[str, list[float]] = {}
    for name in names:
        found = np.array(
            [
                [np.mean([accuracy(rule, data, test, seed, steps) for test in tests]) for rule in RULES.values()]
                for seed in range(seeds)
                for data, tests in [DATA[name](seed)]
            ]
        )
        rows[name] = found.mean(0).tolist()
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in rows[name])} |", flush=True)
    return rows


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    main(parser.parse_args().seeds)
