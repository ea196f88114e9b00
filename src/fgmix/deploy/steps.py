"""The default number of steps of `fit` and of the estimator, and what `fit` prints before it starts.

More data, more steps:

    steps = max(default, min(PASSES · n / b, MOST · default)),    rounded up to hundreds

for n samples in the largest domain and batches of b samples per domain: about `PASSES` epochs of the largest domain,
and more of the others. The default is that of the kind of data (docs/protocol.md). `fgmix train`, sweeps, presets and
DomainBed's protocols use the default.

An average of the weights from step 100 on lags behind while they improve, which is most of a long run: there, the
average starts at step steps/2 − default. Up to twice the default it starts at step 100, because a long average is
better on unseen domains than a late one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import structs

from fgmix.data import DomainDataset
from fgmix.progress import format_duration
from fgmix.records.metrics import is_unbalanced
from fgmix.records.options import options_of
from fgmix.records.schema import ResolvedSpec, RunSpec
from fgmix.records.store import RunFolder
from fgmix.results.other_metrics import percent
from fgmix.sweeps.calibrate import calibrate, estimate_cost
from fgmix.terminal import print_notes
from fgmix.training.devices import pick_device
from fgmix.training.resolve import resolve

PASSES = 20  # epochs of the largest domain, counted with its holdout part
MOST = 10  # times the default
EVALUATIONS = 20  # of a run that is longer than the default
LARGE = 20  # samples of a domain whose shares of the classes count
DIFFERENT = 0.4  # between the shares of a class in two domains
BUDGET = 5.0  # seconds that the calibration may take before it starts its last step


def scale_steps(spec: RunSpec, dataset: DomainDataset) -> RunSpec:
    """Scale steps, evaluations and start of the average of a spec with the amount of data.

    A spec with `steps`, or with another protocol than clean, is returned unchanged; other values that the user sets
    are kept. The result does not depend on the domain held out: the estimate is for the settings of the model.

    Args:
        spec: as the user gives it.
        dataset: the training data.

    Example:
        >>> import numpy as np
        >>> from fgmix.data import from_arrays
        >>> y, domain = np.arange(24_000) % 2, np.arange(24_000) % 3
        >>> data = from_arrays(np.zeros((24_000, 1)), y, domain)
        >>> scale_steps(RunSpec(dataset="arrays", algorithm="erm"), data).steps
        5000
    """
    if spec.steps is not None or spec.protocol != "clean":
        return spec
    default = resolve(structs.replace(spec, test_domains=()), dataset)
    needed = min(PASSES * max(map(len, dataset.domains)) / default.batch_size, MOST * default.steps)
    if needed <= default.steps:
        return spec
    steps = 100 * math.ceil(needed / 100)
    return structs.replace(
        spec,
        steps=steps,
        eval_every=spec.eval_every or max(default.eval_every, steps // EVALUATIONS),
        averaging_start=_choose_averaging_start(spec, steps // 2 - default.steps),
    )


def _choose_averaging_start(spec: RunSpec, least: int) -> int:
    usual: int = options_of(RunSpec)["averaging_start"].default
    return max(usual, least) if spec.averaging_start == usual else spec.averaging_start


def note_steps(said: RunSpec, scaled: RunSpec) -> list[str]:
    """Write a note for the user if the number of steps was scaled with the amount of data."""
    if said.steps == scaled.steps:
        return []
    return [f"{scaled.steps:,} steps, scaled with the amount of data; --steps sets another number."]


def announce(
    specs: Sequence[ResolvedSpec], dataset: DomainDataset, folder: Path, device: str, notes: Sequence[str]
) -> None:
    """Print the runs that are left and the time they need, on standard error.

    Args:
        specs: the runs; the last one trains on all domains.
        dataset: their dataset.
        folder: of the runs; finished ones are not counted.
        device: as in `fit`.
        notes: printed before.
    """
    print_notes(*notes, *advise(specs[-1], dataset, device))
    places = [(spec, RunFolder(folder / spec.name)) for spec in specs]
    if left := [spec for spec, run in places if not run.is_done]:
        begun = sum(run.checkpoint.exists() and not run.is_done for _, run in places)
        resumed = f"; {begun} of them resumed from a checkpoint, which takes less" if begun else ""
        print(f"fit: {_describe_cost(left, len(specs), dataset, device)}{resumed}", file=sys.stderr)


def _describe_cost(left: Sequence[ResolvedSpec], runs: int, dataset: DomainDataset, device: str) -> str:
    """Name the runs that are left and the time of all of their steps, calibrated on a few steps of the last run."""
    calibration = calibrate(left[-1], dataset, device=device, budget=BUDGET)
    seconds = sum(estimate_cost(spec, dataset, calibration).seconds for spec in left)
    count = f"{runs} run{'s' if runs > 1 else ''}" if len(left) == runs else f"{len(left)} of {runs} runs"
    return f"{count} of {left[-1].steps:,} steps, about {format_duration(seconds)} on {pick_device(device)}"


def advise(spec: ResolvedSpec, dataset: DomainDataset, device: str) -> list[str]:
    """Suggest a faster way to train, or a metric for unbalanced classes."""
    advice = []
    on_cpu = dataset.kind == "images" and pick_device(device).type == "cpu"
    if on_cpu and not spec.frozen and (spec.pretrained or spec.weights):  # which `--frozen` needs
        advice.append(
            "No GPU is used: --frozen trains only a small network on features of the backbone, which takes minutes."
        )
    return advice + (_advise_metric(dataset) if spec.metric == "accuracy" else [])


def _advise_metric(dataset: DomainDataset) -> list[str]:
    """Suggest a metric if the classes are unbalanced, or if domains have other shares of them."""
    counts = np.array([np.bincount(domain.y, minlength=len(dataset.classes)) for domain in dataset.domains])
    if is_unbalanced(total := counts.sum(0)):
        found = f"The classes are unbalanced (from {total[total > 0].min()} to {total.max()} samples)"
        return [f"{found}: consider --metric balanced_accuracy, and --class-weight balanced."]
    is_large = counts.sum(1) >= LARGE
    if is_large.sum() < 2:
        return []
    names = [name for name, large in zip(dataset.domain_names, is_large) if large]
    shares = counts[is_large] / counts[is_large].sum(1, keepdims=True)
    c = int(np.ptp(shares, axis=0).argmax())
    low, high = int(shares[:, c].argmin()), int(shares[:, c].argmax())
    if shares[high, c] - shares[low, c] <= DIFFERENT:
        return []
    ends = " and ".join(f"{percent(shares[i, c])} in {names[i]}" for i in (low, high))
    return [
        f"The share of {dataset.classes[c]!r} is {ends}, so accuracy rewards a guess of the most frequent class: "
        "consider --metric balanced_accuracy."
    ]
