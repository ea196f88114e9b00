"""Records made by hand, for tests of everything that works on records alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from copying import replace
from fgmix.records.evaluations import Evaluation, Model
from fgmix.records.schema import ResolvedSpec, RunRecord

DECIDED: dict[str, Any] = {  # what tables do not look at
    "backbone": "mlp",
    "pretrained": False,
    "freeze_bn": False,
    "channels_last": False,
    "batch_size": 32,
    "eval_every": 10,
    "data": "f",
    "input_shape": (4,),
}

LABELS = {"erm": "ERM", "mixup": "Mixup", "coral": "CORAL", "l2a_ot": "L2A-OT", "fgmix": "FGMix", "fgmix_a": "FGMix-A"}

Parts = dict[str, tuple[float | None, float]]  # domain → accuracy on (train, holdout); None: not evaluated


def run(
    test: str,
    found: dict[int, Parts],
    *,
    swa: dict[int, Parts] | None = None,
    draw: int = 0,
    trial: int = 0,
    algorithm: str = "erm",
    dataset: str = "toy",
    status: str = "done",
    **spec: Any,
) -> RunRecord:
    """A run that holds out `test` ("a", or "a b" for a pair), with what it measured at each step."""
    held_out = tuple(test.split())
    domains = sorted({name for parts in found.values() for name in parts} | set(held_out))
    models: dict[Model, dict[int, Parts]] = {"raw": found, **({"swa": swa} if swa else {})}
    evaluations = [
        Evaluation(step, {model: _scores(at[step]) for model, at in models.items()}, {}, {}) for step in found
    ]
    fields = {"dataset_name": dataset, "steps": 20, "trial_seed": trial, "hparams_seed": draw, **spec}
    return RunRecord(
        spec=ResolvedSpec(dataset=dataset, algorithm=algorithm, test_domains=held_out, **{**DECIDED, **fields}),
        status=status,  # type: ignore[arg-type]
        fgmix_version="0",
        domains=tuple(domains),
        evaluations=tuple(evaluations),
        label=LABELS.get(algorithm, ""),
    )


def _scores(parts: Parts) -> dict[str, dict[str, float]]:
    return {
        name: {"holdout": holdout, **({} if train is None else {"train": train})}
        for name, (train, holdout) in parts.items()
    }


def finished(test: str, accuracy: float, *, domains: str = "a b c", validation: float = 0.5, **keys: Any) -> RunRecord:
    """A run with one evaluation: `accuracy` on the test domain, `validation` on the holdout of every other."""
    parts: Parts = {name: (accuracy, accuracy) if name == test else (None, validation) for name in domains.split()}
    return run(test, {20: parts}, **keys)


def sweep(
    accuracies: dict[str, list[list[float]]], *, domains: str = "a b c", dataset: str = "toy", **keys: Any
) -> list[RunRecord]:
    """One draw of each algorithm: accuracies[algorithm][trial][domain]."""
    return [
        finished(test, accuracy, domains=domains, algorithm=algorithm, trial=trial, dataset=dataset, **keys)
        for algorithm, trials in accuracies.items()
        for trial, row in enumerate(trials)
        for test, accuracy in zip(domains.split(), row)
    ]


def random_sweep(
    datasets: int, algorithms: int, trials: int, draws: int, domains: int = 4, pairs: bool = False
) -> list[RunRecord]:
    """Many random runs, five evaluations of both models each; they share a few sets of evaluations, to be made fast."""
    rng = np.random.default_rng(0)
    names = [f"d{i}" for i in range(domains)]

    def measured() -> dict[int, Parts]:
        return {step: dict(zip(names, map(tuple, rng.random((domains, 2)).tolist()))) for step in range(5)}

    tests = [*names, *(" ".join(two) for two in combinations(names, 2))] if pairs else names
    pool = [run("d0", measured(), swa=measured()).evaluations for _ in range(97)]
    return [
        replace(finished(test, 0.5, domains=" ".join(names), **keys), evaluations=pool[i % len(pool)])
        for i, (test, keys) in enumerate(
            (test, {"draw": draw, "trial": trial, "algorithm": "erm" if a == 0 else f"m{a}", "dataset": f"set{d}"})
            for d, a, trial, draw, test in product(
                range(datasets), range(algorithms), range(trials), range(draws), tests
            )
        )
    ]


GRID = {"lam": (1.0, 3.0), "alpha": (0.1, 0.3)}


def grid_records(accuracy: Callable[[float, float], float], **keys: Any) -> list[RunRecord]:
    """Runs of FGMix over `GRID`: two domains, two trials, the second 2 points better."""
    records = []
    for lam in (1.0, 3.0):
        for alpha in (0.1, 0.3):
            for test, trial in (("a", 0), ("b", 0), ("a", 1), ("b", 1)):
                name = f"{lam} {alpha} {test} {trial}"
                record = finished(
                    test,
                    accuracy(lam, alpha) + 0.02 * trial,
                    domains="a b",
                    trial=trial,
                    algorithm="fgmix",
                    settings={"lam": lam, "alpha": alpha},
                    **keys,
                )
                records.append(replace(record, folder=Path("out", name)))
    return records
