"""How long `fit` and the estimator train where nothing is said: the more data, the more steps.

    steps = max(default, min(PASSES · n / (k · b), MOST · default)),    rounded up to hundreds

for n samples in k domains and batches of b samples per domain: every sample is seen about `PASSES` times. The default
is that of the kind of data (docs/protocol.md). `fgmix train`, sweeps, presets and DomainBed's protocols keep it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fgmix.data import DomainDataset
from fgmix.runs.resolve import resolve
from fgmix.runs.spec import RunSpec

PASSES = 16  # over all samples, the held-out fifth included
MOST = 10  # times the default
EVALUATIONS = 20  # of a run that is longer than the default


def with_steps(spec: RunSpec, dataset: DomainDataset) -> RunSpec:
    """The spec with its number of steps decided by the amount of data, unless the user or a protocol says it.

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
        4000
    """
    if spec.steps is not None or spec.protocol != "clean":
        return spec
    default = resolve(replace(spec, test_domains=()), dataset)
    n, k = sum(map(len, dataset.domains)), len(dataset.domains)
    needed = min(PASSES * n / (k * default.batch_size), MOST * default.steps)
    if needed <= default.steps:
        return spec
    steps = 100 * math.ceil(needed / 100)
    return replace(spec, steps=steps, eval_every=spec.eval_every or max(default.eval_every, steps // EVALUATIONS))


def note_of(said: RunSpec, scaled: RunSpec) -> list[str]:
    """What a user should know about a number of steps that the amount of data has decided."""
    if said.steps == scaled.steps:
        return []
    return [f"{scaled.steps:,} steps, scaled with the amount of data; --steps sets another number."]
