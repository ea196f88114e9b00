"""`fgmix fit --add-domain NEW --from MODEL`: train a model again with a new domain, and show what changed.

The new model has the settings of the old one. Of the new domain, the old model gives a true test of its own estimate:
it has not seen it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import structs

from fgmix.data import DomainDataset
from fgmix.data.dataset import check_new_domains, join_datasets
from fgmix.data.tables import is_table, load_table
from fgmix.deploy.fit import fit
from fgmix.deploy.labelled import count_lost, load_for, predict_labelled
from fgmix.deploy.model import Model
from fgmix.deploy.summary import describe_interval, warn_of_known
from fgmix.errors import UserError
from fgmix.escape import escape_markdown
from fgmix.records.evaluations import METRIC_NAMES
from fgmix.records.files import as_path
from fgmix.records.model import ModelInfo, write_info
from fgmix.records.schema import RunSpec
from fgmix.results.other_metrics import percent, table
from fgmix.results.rounding import DASH, difference_text
from fgmix.terminal import print_notes


@dataclass(frozen=True)
class Change:
    """A model before and after a domain was added."""

    before: ModelInfo
    model: Model  # after
    unseen: dict[str, float]  # the metric of the model before on each new domain, which it had not seen

    def lines(self) -> list[str]:
        """Write a table of the estimates by held-out domain, before and after, and how the old model did."""
        old, new = self.before.estimate, self.model.info.estimate
        if old is None or new is None:
            raise UserError("Expected models with estimates. Found one without.")
        metric = METRIC_NAMES[new.metric]
        before, after = ({name: m.value(new.metric) for name, m in each.metrics.items()} for each in (old, new))
        rows = [_row(escape_markdown(name), before.get(name), value) for name, value in after.items()]
        both = [name for name in after if name in before]
        title = f"{metric[0].upper()}{metric[1:]} of the model before on"
        if both:
            means = (fmean(each[name] for name in both) for each in (before, after))
            rows.append(_row("mean of those in both", *means))
        return [
            *table([f"Held-out domain, {metric}", "before", "after", "change in points"], rows).splitlines(),
            "",
            *(
                f"{title} {escape_markdown(name)}, which it had not seen: {percent(value)} "
                f"(estimate {percent(old.value)}, {describe_interval(old)})."
                for name, value in self.unseen.items()
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
    labelled = load_for(model, new, progress=progress)
    if 2 * (lost := count_lost(labelled)) > sum(map(len, labelled.domains)):
        raise UserError(
            f"Expected grey images within the window {labelled.window} of the model. Found {lost} outside of it, black "
            "or white throughout. Fit all domains anew, which chooses another window."
        )
    if progress:
        print_notes(*labelled.notes)
    dataset = _load(model, sources, str(new), labelled, progress)
    unseen = {each.name: each.measure(info.estimate.metric) for each in predict_labelled(model, labelled)}
    fitted = fit(dataset, out, terms=info.terms, device=device, progress=progress, **_list_options(info))
    fitted = replace(fitted, info=structs.replace(fitted.info, sources=(*map(str, sources), str(new))))
    write_info(out, fitted.info)
    return Change(info, fitted, unseen)


def _load(model: Model, sources: Sequence[str], path: str, new: DomainDataset, progress: bool) -> DomainDataset:
    """Load the data of a model together with new ones from a path, which were loaded for the model."""
    if model.info.columns and is_table(as_path(path)):  # encoded together: a category may be new
        paths = list(map(as_path, (*sources, path)))
        before, joined = load_table(*paths[:-1]), load_table(*paths)
        check_new_domains(before, new)
    else:
        before = reduce(join_datasets, (load_for(model, each, progress=progress) for each in sources))
        joined = join_datasets(before, new)
    if before.fingerprint != model.info.data_fingerprint:
        print_notes("The data of the model have changed since it was trained: more than the new domain differs.")
    return joined


def _list_options(info: ModelInfo) -> dict[str, Any]:
    """List the arguments of `fit` that made a model, except its data."""
    if info.choice is None:
        names = (name for name in RunSpec.__struct_fields__ if name not in ("dataset", "test_domains"))
        return {name: getattr(info.spec, name) for name in names}
    if info.choice.given is None:
        raise UserError(
            "Expected a model that stores the options it was fitted with. Found an older one. Fit it again."
        )
    recipes = [each.recipe for each in info.choice.trials]
    return {"recipes": list(dict.fromkeys(recipes)), "budget": info.choice.budget, **info.choice.given}
