"""A run over its steps."""

from __future__ import annotations

import numpy as np

from fgmix.analysis import arrays as kinds
from fgmix.analysis.arrays import Floats
from fgmix.plots.looks import domain_looks
from fgmix.report.charts import Axis, Chart, Mark, Panel
from fgmix.report.figures.shared import INK, ink, with_points


def curves(id: str, arrays: kinds.Curves, command: str) -> Chart:
    """Accuracy, loss and the metrics of the method."""
    step = Axis("Step")
    panels = [Panel("Holdout accuracy", step, Axis("%"), _by_domain(arrays, arrays.accuracy))]
    if np.isfinite(arrays.loss).any():  # records of DomainBed hold none
        panels.append(Panel("Holdout loss", step, Axis(""), _by_domain(arrays, arrays.loss)))
    known = [
        (str(name), values) for name, values in zip(arrays.metrics, arrays.metric_values) if np.isfinite(values).any()
    ]
    for name, values in known:
        panels.append(Panel(name, step, Axis(""), with_points(name, arrays.steps, values, INK, "o", legend=False)))
    caption = [
        "Thick lines: test domain." if arrays.is_test.any() else "",
        "Dashed lines: averaged weights." if len(arrays.models) > 1 else "",
        "Metrics of the method are means over the steps since the previous evaluation." if known else "",
        "What mixing measures begins where mixing does." if any(np.isnan(values).any() for _, values in known) else "",
    ]
    return Chart(id, arrays.title, " ".join(filter(None, caption)), panels, command=command)


def _by_domain(arrays: kinds.Curves, values: Floats) -> list[Mark]:
    marks: list[Mark] = []
    for d, (domain, look) in enumerate(domain_looks(arrays.domains.tolist()).items()):
        for m, model in enumerate(map(str, arrays.models)):
            test = bool(arrays.is_test[d])
            name = domain + (" (test)" if test else "") + ("" if model == "raw" else f", {model.upper()}")
            width = 2.5 if test else 1.2
            marks += with_points(name, arrays.steps, values[m, d], ink(look.colour), look.marker, model != "raw", width)
    return marks
