"""Find the finished runs for a soup, and check that they can be combined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from fgmix.deploy.composition import Kind
from fgmix.deploy.info import INFO
from fgmix.errors import UserError
from fgmix.records.files import checked_path
from fgmix.records.schema import RECORD, RunRecord, read_record
from fgmix.records.schema import Model as Weights

# Fields of the runs' specs that must agree: data, network, initial weights.
_DATA = (
    "test_domains",
    "trial_seed",
    "holdout_fraction",
    "data",
    "standardize",
    "tail",
    "mean",
    "std",
    "interpolation",
    "views",
)
_NETWORK = ("backbone", "head", "input_shape", "frozen")
_START = ("pretrained", "weights_digest", "seed", "warmup_head", "freeze")


def find_runs(places: Sequence[str | Path], **wanted: object) -> list[RunRecord]:
    """The finished runs in these folders or directly below them, without diverged runs and models.

    Args:
        places: folders of runs, or folders that contain them.
        wanted: required values of fields of their specs.
    """
    found: dict[Path, RunRecord] = {}
    for place in [checked_path("runs", place) for place in places]:
        folders = [place] if (place / RECORD).is_file() else sorted(file.parent for file in place.glob(f"*/{RECORD}"))
        if not folders:
            raise UserError(
                f"Expected finished runs at {place}. Found none. Name run folders, or the folder of a sweep."
            )
        for folder in folders:
            if not (folder / INFO).exists():  # a folder with a model is a soup, not a run
                found[folder.resolve()] = read_record(folder)
    done = [record for record in found.values() if record.status == "done"]
    records = [r for r in done if all(getattr(r.spec, name) == value for name, value in wanted.items())]
    if len(records) < 2:
        of = "".join(f" with {name} {value}" for name, value in wanted.items())
        raise UserError(
            f"Expected at least two finished runs{of} that did not diverge. Found {len(records)}. Name more runs."
        )
    return records


def common_weights(records: Sequence[RunRecord], weights: Weights | None) -> Weights:
    """The given weights; for None, the average that all runs have, or else the raw weights."""
    if weights is not None:
        for record in records:
            record.candidates(weights)  # raises an error if the run lacks them
        return weights
    common: list[Weights] = [model for model in get_args(Weights) if all(model in r.models for r in records)]
    return common[-1]


def check_alike(records: Sequence[RunRecord], kind: Kind) -> None:
    """Raise an error for runs that cannot be combined, or whose combination could not be evaluated fairly."""
    _agree(records, _DATA, "Use runs on the same data and split: samples that one is trained on must not judge another")
    _agree(records, _NETWORK, "Use runs with one backbone and head")
    _agree(records, ("metric",), "Use runs that are selected by one metric")
    if kind != "ensemble":
        advice = "Train them from the same initial weights (one --seed; in sweeps --with seed=0), or use --how ensemble"
        _agree(records, _START, advice)
    if len({record.classes for record in records}) > 1:
        raise UserError("Expected runs with the same classes. Found different ones. Use runs on one dataset.")


def _agree(records: Sequence[RunRecord], fields: Sequence[str], advice: str) -> None:
    first = records[0]
    for field in fields:
        for other in records[1:]:
            values = [getattr(record.spec, field) for record in (first, other)]
            if values[0] != values[1]:
                raise UserError(
                    f"Expected runs with the same {field}. Found {values[0]} in {first.spec.name} and {values[1]} in "
                    f"{other.spec.name}. {advice}."
                )
