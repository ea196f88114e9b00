"""`fgmix fit --add-domain NEW --from MODEL`: train a model again with a new domain, and show what changed.

The new model has the settings of the old one. Of the new domain, the old model gives a true test of its own estimate:
it has not seen it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec import structs

from fgmix.data import DomainDataset
from fgmix.data.dataset import join_datasets
from fgmix.data.tables import is_table, load_table
from fgmix.deploy.fit import fit
from fgmix.deploy.labelled import load_for, predict_labelled
from fgmix.deploy.model import Model
from fgmix.deploy.summary import describe_interval, warn_of_known
from fgmix.errors import UserError
from fgmix.escape import escape_markdown
from fgmix.records.evaluations import METRIC_NAMES
from fgmix.records.files import as_path
from fgmix.records.model import ModelInfo, write_info
from fgmix.records.protocols import DEFAULTS
from fgmix.records.schema import RunSpec
from fgmix.results.other_metrics import percent, table
from fgmix.results.rounding import DASH, difference_text
from fgmix.terminal import print_notes

# Options of a model that was chosen among recipes which the choice keeps; the recipes decide on the others.
KEPT = (
    *("data_root", "image_size", "holdout_fraction", "trial_seed", "class_weight", "skip_unreadable", "window"),
    *("backbone", "pretrained", "weights", "frozen", "views", "seed", "metric"),
)


@dataclass(frozen=True)
class Change:
    """A model before and after a domain was added."""

    before: ModelInfo
    model: Model  # after
    accuracy: dict[str, float]  # of the model before on each new domain, which it had not seen

    def lines(self) -> list[str]:
        """Write a table of the estimates by held-out domain, before and after, and how the old model did."""
        old, new = self.before.estimate, self.model.info.estimate
        if old is None or new is None:
            raise UserError("Expected models with estimates. Found one without.")
        metric = METRIC_NAMES[new.metric]
        values = {name: each.value(new.metric) for name, each in old.metrics.items()}
        rows = [
            _row(escape_markdown(name), values.get(name), each.value(new.metric)) for name, each in new.metrics.items()
        ]
        rows.append(_row("mean", old.value, new.value))
        return [
            *table([f"Held-out domain, {metric}", "before", "after", "change in points"], rows).splitlines(),
            "",
            *(
                f"Accuracy of the model before on {escape_markdown(name)}, which it had not seen: {percent(value)} "
                f"(estimate {percent(old.accuracy)}, {describe_interval(old)})."
                for name, value in self.accuracy.items()
            ),
            *warn_of_known(self.model.info),
        ]


def _row(name: str, before: float | None, after: float) -> list[str]:
    change = DASH if before is None else difference_text(100 * (after - before))
    return [name, percent(before), percent(after), change]


def add_domain(
    model: Model, new: str | Path, out: Path, *, data: str | None = None, device: str = "auto", progress: bool = True
) -> Change:
    """Train a model again with a new domain; if interrupted, the same call resumes.

    Args:
        model: the model before.
        new: labelled data of the new domain, or of several: a folder `domain/class/image`, a manifest, a table, ….
        out: the folder of the new model.
        data: the data of the old model, if they have moved.
        device, progress: as in `fit`.
    """
    info = model.info
    if info.estimate is None or info.composition:
        raise UserError("Expected a model of `fgmix fit` with an estimate. Found another. Fit one with all domains.")
    sources = (data,) if data else info.sources or (info.spec.dataset,)
    dataset, added = _load(model, sources, str(new), progress)
    scores = predict_labelled(model, load_for(model, new, progress=False))
    accuracy = {each.name: float(each.correct.mean()) for each in scores}
    fitted = fit(dataset, out, terms=info.terms, device=device, progress=progress, **_list_options(info))
    fitted = replace(fitted, info=structs.replace(fitted.info, sources=(*map(str, sources), str(new))))
    write_info(out, fitted.info)
    return Change(info, fitted, {name: accuracy[name] for name in added})


def _load(model: Model, sources: Sequence[str], new: str, progress: bool) -> tuple[DomainDataset, list[str]]:
    """Load the data of a model together with a new domain; return also the names of what is new."""
    if model.info.columns and is_table(as_path(new)):  # encoded together: a category may be new
        paths = list(map(as_path, (*sources, new)))
        before, joined = load_table(*paths[:-1]), load_table(*paths)
    else:
        *known, last = (load_for(model, each, progress=progress) for each in (*sources, new))
        before = reduce(join_datasets, known)
        joined = join_datasets(before, last)
    if before.fingerprint != model.info.data_fingerprint:
        print_notes("The data of the model have changed since it was trained: more than the new domain differs.")
    return joined, [name for name in joined.domain_names if name not in before.domain_names]


def _list_options(info: ModelInfo) -> dict[str, Any]:
    """List the arguments of `fit` that made a model, except its data."""
    spec = {name: getattr(info.spec, name) for name in RunSpec.__struct_fields__}
    if info.choice is None:
        return {name: value for name, value in spec.items() if name not in ("dataset", "test_domains")}
    recipes = [each.recipe for each in info.choice.trials]
    kept = {name: spec[name] for name in KEPT}
    if info.kind != "images" and kept["backbone"] == DEFAULTS[info.kind].backbone:
        del kept["backbone"]  # one that is named leaves classifiers out
    return {"recipes": list(dict.fromkeys(recipes)), "budget": info.choice.budget, **kept}
