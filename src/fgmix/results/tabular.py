"""What a notebook and a spreadsheet can show: one row per run, per number, or per comparison. No torch."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgmix.errors import UserError
from fgmix.escape import escape_csv
from fgmix.records.files import write_bytes

if TYPE_CHECKING:
    import pandas


class Tabular(ABC):
    """Rows of plain values, as a pandas DataFrame or as CSV."""

    @abstractmethod
    def to_dicts(self) -> list[dict[str, Any]]:
        """Describe each row in a dictionary, all with the same keys."""

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a DataFrame; pandas, which fgmix does not need otherwise, must be installed."""
        if find_spec("pandas") is None:
            raise UserError(
                "Expected the library pandas. It is not installed. Run `pip install pandas`, or use to_csv."
            )
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """Write the rows as CSV, to a file if a path is given; return the text."""
        rows = self.to_dicts()
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(map(escape_csv, rows[0] if rows else ()))
        writer.writerows([escape_csv(v) if isinstance(v, str) else v for v in row.values()] for row in rows)
        if path is not None:
            write_bytes(Path(path), out.getvalue().encode(errors="backslashreplace"))
        return out.getvalue()
