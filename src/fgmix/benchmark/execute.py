"""One run of a sweep, wherever it is executed: the same function under every launcher."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from fgmix.data import DomainDataset
from fgmix.errors import UserError
from fgmix.files import make_folder, write_json
from fgmix.run_folder import RunBusy
from fgmix.spec import RunSpec
from fgmix.training import fit, load_dataset, name_run


@dataclass(frozen=True)
class Outcome:
    """How a run ended: "done" (diverged ones included), "failed" with the error, or "busy" in another process."""

    name: str
    status: Literal["done", "failed", "busy"]
    error: str = ""


def execute(name: str, spec: dict[str, Any], out: str, device: str = "auto") -> Outcome:
    """Run (or go on with, or read) one planned run; an error is recorded in its folder, not raised.

    Args:
        name: the folder's name, as planned.
        spec: the run's spec as plain values.
        out: the sweep's folder.
        device: see `fit`.
    """
    run = RunSpec.from_dict(spec)
    error_file = Path(out) / name / "error.json"
    try:
        data = _dataset(_key(run))
        if name_run(run, data) != name:
            raise UserError(f"Expected the data that {name} was planned for. Found others. Plan the sweep again.")
        fit(run, out, dataset=data, device=device, progress=False)
    except RunBusy:
        return Outcome(name, "busy")
    except Exception as error:
        make_folder(error_file.parent)
        write_json(error_file, {"error": str(error), "kind": type(error).__name__, "traceback": traceback.format_exc()})
        return Outcome(name, "failed", f"{type(error).__name__}: {error}")
    error_file.unlink(missing_ok=True)
    return Outcome(name, "done")


_Key = tuple[str, str | None, int | None, int, bool]


def _key(run: RunSpec) -> _Key:
    return run.dataset, run.data_root, run.image_size, run.trial_seed, run.skip_unreadable


@lru_cache(maxsize=4)
def _dataset(key: _Key) -> DomainDataset:
    """A worker keeps the datasets it has loaded: hundreds of runs share them."""
    dataset, data_root, image_size, trial_seed, skip_unreadable = key
    probe = RunSpec(
        dataset=dataset,
        algorithm="erm",
        test_domains=("?",),
        data_root=data_root,
        image_size=image_size,
        trial_seed=trial_seed,
        skip_unreadable=skip_unreadable,
    )
    return load_dataset(probe, progress=False)
