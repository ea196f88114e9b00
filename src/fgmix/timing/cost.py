"""The preset paper-cost: times per step of every method, saved for `fgmix report`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fgmix.algorithms import get, names
from fgmix.records.files import make_folder, write_json
from fgmix.results.costs import COST_FILE
from fgmix.timing.step import SWA, measure_steps


def measure_cost(bench: Mapping[str, Any], out: Path) -> None:
    """Time a step of every method and save the times in the folder, for `report`; replaces earlier times."""
    costs = list(measure_steps(**bench))
    erm = next(each.milliseconds for each in costs if each.name == "erm")
    # A ratio is of alternating steps; milliseconds of different methods were measured minutes apart.
    milliseconds = [(each.name, erm * each.ratio) for each in costs]
    content = {
        "bench": dict(bench),
        "labels": {name: get(name).label for name, _ in milliseconds if name in names()},
        "milliseconds": [(name, time) for name, time in milliseconds if not name.endswith(SWA)],
        "averaged_milliseconds": [(name.removesuffix(SWA), time) for name, time in milliseconds if name.endswith(SWA)],
    }
    write_json(make_folder(out) / COST_FILE, content)
