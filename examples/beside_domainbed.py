"""Results of DomainBed beside ours in one table: its folders are read as they are, and ours can be written as such.

    python examples/beside_domainbed.py DOMAINBED_SWEEP OUR_SWEEP     # as fgmix report OUR_SWEEP --from-domainbed …

Without folders, it makes up a small sweep in DomainBed's format and trains one of ours.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import fgmix
from fgmix.data import from_arrays
from fgmix.results.domainbed import to_domainbed
from fgmix.results.read import read_runs
from fgmix.results.report import tabulate

DOMAINS = ("env0", "env1", "env2")  # DomainBed numbers the domains of a dataset that fgmix does not know


def make_theirs(folder: Path) -> Path:
    """What `python -m domainbed.scripts.sweep launch` leaves: a folder per run with `results.jsonl` and `done`."""
    rng = np.random.default_rng(0)
    for test in range(len(DOMAINS)):
        run = folder / f"run{test}"
        run.mkdir(parents=True)
        args = {"dataset": "arrays", "algorithm": "ERM", "test_envs": [test], "trial_seed": 0, "hparams_seed": 0}
        lines = []
        for step in (0, 300, 600):
            line = {"args": args, "hparams": {"lr": 1e-3}, "step": step}
            for i in range(len(DOMAINS)):
                line |= {f"env{i}_{part}_acc": 0.5 + step / 2000 + 0.02 * rng.normal() for part in ("in", "out")}
            lines.append(json.dumps(line) + "\n")
        (run / "results.jsonl").write_text("".join(lines))
        (run / "done").write_text("done")
    return folder


def make_ours(folder: Path) -> Path:
    """ERM and CORAL on arrays, each domain held out in turn."""
    rng = np.random.default_rng(0)
    y, domain = np.arange(300) % 3, np.arange(300) // 100
    X = rng.normal(size=(3, 8))[y] + rng.normal(size=(3, 8))[domain] + rng.normal(size=(300, 8))
    data = from_arrays(X, y, np.array(DOMAINS)[domain])
    for algorithm in ("erm", "coral"):
        for test in DOMAINS:
            spec = fgmix.RunSpec(dataset="arrays", algorithm=algorithm, test_domains=test, steps=20, averaging="none")
            fgmix.train(spec, folder, dataset=data, progress=False)
    return folder


if len(sys.argv) == 3:
    theirs, ours = map(Path, sys.argv[1:])
else:
    made = Path(tempfile.mkdtemp())
    theirs, ours = make_theirs(made / "theirs"), make_ours(made / "ours")
results = read_runs(ours, from_domainbed=[theirs])  # each row is marked with its folder
table = tabulate(results).to_text()
print(table)
# The other direction: folders that DomainBed's own collect_results reads.
written = to_domainbed(read_runs(ours).records, Path(tempfile.mkdtemp()) / "as_domainbed")
