"""Times per step: read from a folder, and beside those of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fgmix.errors import UserError
from fgmix.records.files import write_json
from fgmix.records.rows import Row
from fgmix.records.status import COST_FILE
from fgmix.results.costs import Costs, cost_table
from fgmix.results.read import read_runs
from fgmix.results.report import tabulate


@pytest.mark.parametrize("content", [{"other": 1}, {"milliseconds": 1}, {"milliseconds": [["erm", "fast"]]}])
def test_other_content_is_an_error(content: dict[str, Any], tmp_path: Path) -> None:
    write_json(tmp_path / COST_FILE, content)
    with pytest.raises(UserError, match="Expected times per step"):
        read_runs(tmp_path)


def test_averaged_times_have_their_row(tmp_path: Path) -> None:
    times = {"milliseconds": [["erm", 10.0], ["fgmix", 11.0]], "averaged_milliseconds": [["fgmix", 12.0]]}
    write_json(tmp_path / COST_FILE, {**times, "labels": {"fgmix": "FGMix"}})
    assert "| FGMix + SWA |" in tabulate(read_runs(tmp_path)).to_text()


def test_times_per_step_stand_beside_the_papers(tmp_path: Path) -> None:
    write_json(tmp_path / COST_FILE, {"milliseconds": [["erm", 10.0], ["fgmix", 12.0]]})
    text = tabulate(read_runs(tmp_path)).to_text()
    assert "| FGMix | 12.0 | 1.20 | 312.7 | 1.10 |" in text  # without labels, as the paper calls them


def test_cost_table() -> None:
    table = cost_table(Costs({Row("erm"): 20.0, Row("fgmix"): 25.0, Row("mine"): 30.0}))
    shown = [[entry.shown for entry in row.entries] for row in table.rows]
    assert shown[1] == ["25.0", "1.25", "312.7", "1.10"]
    assert shown[2] == ["30.0", "1.50", "–", "–"]
    alone = cost_table(Costs({Row("fgmix"): 25.0})).rows[0].entries[1]
    assert (alone.value, alone.note) == (None, "ERM was not measured")
