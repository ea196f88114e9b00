"""How long `fit` and the estimator train where nothing is said: the more data, the more steps.

    steps = max(default, min(PASSES · n / b, MOST · default)),    rounded up to hundreds

for n samples in the largest domain and batches of b samples per domain: its samples are seen about `PASSES` times, and
those of other domains more often. The default is that of the kind of data (docs/protocol.md). `fgmix train`, sweeps,
presets and DomainBed's protocols keep it.

A mean of the weights that begins at step 100 lags behind for as long as they improve, which is most of a run on much
data: there it begins at step steps/2 − default. Up to twice the default it begins where it always does, because on
unseen domains a wide average is better than a late one.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fgmix.data import DomainDataset
from fgmix.runs.resolve import resolve
from fgmix.runs.spec import RunSpec

PASSES = 20  # over the largest domain, its held-out fifth included
MOST = 10  # times the default
EVALUATIONS = 20  # of a run that is longer than the default


def with_steps(spec: RunSpec, dataset: DomainDataset) -> RunSpec:
    """The spec with its number of steps decided by the amount of data, unless the user or a protocol says it, and with
    the first step of the average, unless the user says another one than the default.

    The same for every domain held out: what is estimated is what is then trained.

    Args:
        spec: what the user says.
        dataset: what will be trained on.

    Example:
        >>> import numpy as np
        >>> from fgmix.data import from_arrays
        >>> y, domain = np.arange(24_000) % 2, np.arange(24_000) % 3
        >>> data = from_arrays(np.zeros((24_000, 1)), y, domain)
        >>> with_steps(RunSpec(dataset="arrays", algorithm="erm"), data).steps
        5000
    """
    if spec.steps is not None or spec.protocol != "clean":
        return spec
    default = resolve(replace(spec, test_domains=()), dataset)
    needed = min(PASSES * max(map(len, dataset.domains)) / default.batch_size, MOST * default.steps)
    if needed <= default.steps:
        return spec
    steps = 100 * math.ceil(needed / 100)
    return replace(
        spec,
        steps=steps,
        eval_every=spec.eval_every or max(default.eval_every, steps // EVALUATIONS),
        averaging_start=_averaging_start(spec, steps // 2 - default.steps),
    )


def _averaging_start(spec: RunSpec, least: int) -> int:
    usual = RunSpec.averaging_start
    return max(usual, least) if spec.averaging_start == usual else spec.averaging_start


def note_of(said: RunSpec, scaled: RunSpec) -> list[str]:
    """What a user should know about a number of steps that the amount of data has decided."""
    if said.steps == scaled.steps:
        return []
    return [f"{scaled.steps:,} steps, scaled with the amount of data; --steps sets another number."]
