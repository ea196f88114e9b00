"""Compare training the last stage on cached activations with training the whole network: accuracy and CPU time.

    python benchmarks/studies/freeze_views.py PACS [STEPS] [DOMAIN]

ERM with EfficientNet-Lite0 at 224 px in bfloat16, one thread: the whole network; all but the last stage frozen, with
every image augmented anew; the same with `--views 8`. Activations that are not in the cache are computed first, and
timed apart.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from fgmix.cli import keep_freed_memory
from fgmix.records.schema import RunSpec
from fgmix.training.loop import take_step, train_prepared
from fgmix.training.prepare import PreparedRun, build_algorithm, build_source, prepare

WAYS: dict[str, dict[str, Any]] = {
    "whole network": {},
    "`--freeze blocks.5`": {"freeze": "blocks.5"},
    "`--freeze blocks.5 --views 8`": {"freeze": "blocks.5", "views": 8},
}
COMMON: dict[str, Any] = {
    "algorithm": "erm",
    "settings": {"lr": 1e-4},
    "backbone": "tf_efficientnet_lite0.package",
    "image_size": 224,
    "averaging": "none",
    "keep": "none",
}
TIMES = "bf16", "fp32"  # the first one is trained
TIMED = 5  # steps, after one for warm-up


def measure(folder: str, steps: int, domain: str, options: dict[str, Any]) -> tuple[float, float, list[float]]:
    """Train in one way; return the accuracy (%), the CPU seconds of the preparation, and those of a step in `TIMES`."""
    about = {"test_domains": (domain,), "steps": steps, "eval_every": steps}

    def start(precision: str) -> PreparedRun:
        return prepare(RunSpec(dataset=folder, precision=precision, **about, **COMMON, **options), device="cpu")

    begun = time.process_time()
    run = start(TIMES[0])
    prepared = time.process_time() - begun
    with tempfile.TemporaryDirectory() as out:
        record = train_prepared(run, Path(out), device="cpu")
    return 100 * record.test_accuracy(), prepared, [time_step(start(precision)) for precision in TIMES]


def time_step(run: PreparedRun) -> float:
    """Measure the CPU seconds of a step, its batch included."""
    algorithm, source = build_algorithm(run).train(), build_source(run)
    take_step(algorithm, run.spec, 0, source.at(0))
    begun = time.process_time()
    for step in range(1, TIMED + 1):
        take_step(algorithm, run.spec, step, source.at(step))
    return (time.process_time() - begun) / TIMED


if __name__ == "__main__":
    keep_freed_memory()  # as the commands do
    torch.set_num_threads(1)
    folder, steps, domain = (sys.argv[1:] + ["100", "sketch"][len(sys.argv) - 2 :])[:3]
    print("| ERM | accuracy (%) | preparation | step, bf16 | step, fp32 |\n| --- | ---: | ---: | ---: | ---: |")
    for name, options in WAYS.items():
        accuracy, before, times = measure(folder, int(steps), domain, options)
        print(
            f"| {name} | {accuracy:.1f} | {before:.0f} s | {' | '.join(f'{each:.2f} s' for each in times)} |",
            flush=True,
        )
