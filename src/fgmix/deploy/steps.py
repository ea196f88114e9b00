"""Default number of steps of `fit` and of the estimator: more data, more steps.

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

from msgspec import structs

from fgmix.data import DomainDataset
from fgmix.records.options import options_of
from fgmix.records.schema import RunSpec
from fgmix.training.resolve import resolve

PASSES = 20  # epochs of the largest domain, counted with its holdout part
MOST = 10  # times the default
EVALUATIONS = 20  # of a run that is longer than the default


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
