"""Test `fgmix monitor` on domains that a model has never seen: estimated accuracy, and whether far ones are noticed.

    python benchmarks/studies/monitor_unseen.py FEATURES.npz OUT

Each domain of a file with X, y and domain is left out of everything once: a model is fitted to the others (ERM, 300
steps), with its own held-out domains, and monitors all samples of the one left out, without their labels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fgmix import fit
from fgmix.data import load
from fgmix.deploy.labelled import predict_labelled
from fgmix.deploy.monitor import Report, monitor


def monitor_unseen(data: Path, out: Path, steps: int = 300) -> dict[str, tuple[float, Report]]:
    """By domain, the accuracy on it of a model of the others, and what `monitor` reports without its labels."""
    dataset = load(str(data))
    found = {}
    out.mkdir(parents=True, exist_ok=True)
    for unseen in dataset.domain_names:
        parts = {"new": [], "known": []}
        for domain in dataset.domains:
            parts["new" if domain.name == unseen else "known"].append(domain)
        for part, domains in parts.items():
            np.savez(
                out / f"{unseen}-{part}.npz",
                X=np.concatenate([domain.inputs.x for domain in domains]),
                y=np.concatenate([np.array(dataset.classes)[domain.y] for domain in domains]),
                domain=np.repeat([domain.name for domain in domains], list(map(len, domains))),
            )
        new = out / f"{unseen}-new.npz"
        how = {"algorithm": "erm", "steps": steps, "device": "cpu", "progress": False}
        model = fit(out / f"{unseen}-known.npz", out / unseen, **how)
        (scored,) = predict_labelled(model, load(str(new)))
        found[unseen] = float(scored.correct.mean()), monitor(model, [new], progress=False)
    return found


if __name__ == "__main__":
    for domain, (accuracy, report) in monitor_unseen(Path(sys.argv[1]), Path(sys.argv[2])).items():
        stated = f"{100 * np.mean(report.errors):.1f} on average, {100 * max(report.errors):.1f} at most"
        print(f"{domain}: accuracy {accuracy:.1%}, estimated {report.accuracy:.1%} (stated error {stated}), ", end="")
        print("further away than every held-out domain" if report.is_far else "not further than held-out domains")
