"""The content of `model.json`: how a model was trained, and what to expect of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from fgmix.data.dataset import Kind
from fgmix.deploy.composition import Composition
from fgmix.deploy.estimate import Estimate
from fgmix.deploy.terms import Terms
from fgmix.errors import UserError, bad_value
from fgmix.records.digests import Damaged
from fgmix.records.files import may_exist, read_json
from fgmix.records.schema import ResolvedSpec, to_plain, to_spec

Dtype = Literal["uint8", "float32"]

SCHEMA = 6
INFO = "model.json"


@dataclass(frozen=True)
class ModelInfo:
    """The content of `model.json`.

    Args:
        spec: the resolved spec of the run that made it.
        run: that run's name, which contains a digest of the spec.
        dataset: name of the training data.
        data_fingerprint: digest of the training data.
        kind: images, small_images or features.
        input_shape: shape of the network's inputs.
        dtype: of the training samples; uint8 is scaled to [0, 1], other numbers are not.
        classes: names, in the order of probabilities.
        domains: names of the domains that it was trained on.
        min_confidence: by class; a prediction below it is not trusted. None: no prediction of the class is trusted.
        estimate: for an unseen domain; None if it was not measured.
        in_domain_accuracy: on held-out samples of its own domains.
        notes: on the data, such as files left out, and on the training.
        fgmix_version: the version that made it.
        composition: the runs that it is made of; None for a model of one run.
        date: on which it was trained, such as 2026-01-31.
        terms: options about trust and use.
        counts: samples by domain (row) and class (column).
        weights_matched: how tensors of a weights file were matched with the backbone's, "by name" or "by order"; None
            without a file.
        in_domain_value: the metric of its estimate on held-out samples of its own domains; None without an estimate.
    """

    spec: ResolvedSpec
    run: str
    dataset: str
    data_fingerprint: str
    kind: Kind
    input_shape: tuple[int, ...]
    dtype: Dtype
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    min_confidence: tuple[float | None, ...]
    estimate: Estimate | None
    in_domain_accuracy: float
    notes: tuple[str, ...]
    fgmix_version: str
    composition: Composition | None = None
    date: str = ""
    terms: Terms = Terms()  # noqa: RUF009 (frozen)
    counts: tuple[tuple[int, ...], ...] = ()
    weights_matched: str | None = None
    in_domain_value: float | None = None

    def as_dict(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain |= {"spec": to_plain(self.spec), "estimate": msgspec.to_builtins(self.estimate)}
        plain["composition"] = self.composition.as_dict() if self.composition else None
        return {**plain, "terms": vars(self.terms), "schema": SCHEMA}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ModelInfo:
        values = {name: value for name, value in content.items() if name not in ("schema", "weights")}
        for name in ("input_shape", "classes", "domains", "notes"):
            values[name] = tuple(values[name])
        if not values["input_shape"] or not all(type(n) is int and n > 0 for n in values["input_shape"]):
            raise bad_value("input_shape", "positive integers", values["input_shape"])
        values["terms"] = Terms(**values["terms"])
        values["counts"] = tuple(tuple(row) for row in values["counts"])
        least = values["min_confidence"]
        if len(least) != len(values["classes"]):
            raise bad_value("min_confidence", "a confidence or none for every class", least)
        values["min_confidence"] = tuple(None if each is None else float(each) for each in least)
        values["spec"] = to_spec(values["spec"], ResolvedSpec)
        values["estimate"] = msgspec.convert(values["estimate"], Estimate | None)
        made_of = values.get("composition")
        values["composition"] = Composition.from_dict(made_of) if made_of else None
        return cls(**values)


def read_info(folder: Path) -> ModelInfo:
    """Read the `model.json` of a model's folder."""
    if not may_exist(folder / INFO):
        raise UserError(f"Expected a model's folder at {folder}. It holds no {INFO}. Make one with `fgmix fit`.")
    try:
        content = read_json(folder / INFO)
    except Damaged as error:
        raise explain_broken(folder, error) from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise UserError(f"Expected a model of schema {SCHEMA} at {folder}. Found {schema}. Make it again.")
    try:
        return ModelInfo.from_dict(content)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise explain_broken(folder, error) from error


def explain_broken(folder: Path, error: Exception) -> UserError:
    reason = str(error).partition("\n")[0].rstrip(".")  # torch's messages may fill a page
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return Damaged(
        f"Expected a whole model at {folder}. Found one that is not ({kind}{reason}). "
        f"Delete its {INFO} and run `fgmix fit` again: its runs are kept."
    )
