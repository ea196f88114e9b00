"""The columns of a table of features, and how their values become numbers. Stored with a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:  # `fgmix --help` reads the declarations here, and numpy would take a third of its time
    import numpy as np
    import numpy.typing as npt

ColumnKind = Literal["number", "category"]
# Of a column: floats with NaN for missing ones, or texts with "" for missing ones.
Values: TypeAlias = "npt.NDArray[Any]"


class Column(Struct, frozen=True, forbid_unknown_fields=True):
    """A column of features.

    Args:
        name: its name.
        kind: numbers, or categories.
        categories: the distinct texts of categories, sorted; "" where some are missing.
        marks_missing: of numbers: whether a second feature tells missing values (1) from others (0).

    Example:
        >>> import numpy as np
        >>> Column("sex", "category", ("f", "m")).encode(np.array(["m", "x"]))
        array([[0., 1.],
               [0., 0.]])
    """

    name: str
    kind: ColumnKind
    categories: tuple[str, ...] = ()
    marks_missing: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        if self.kind == "category":
            return tuple(f"{self.name}={category or '(missing)'}" for category in self.categories)
        return (self.name, f"{self.name} (missing)") if self.marks_missing else (self.name,)

    def encode(self, values: Values) -> npt.NDArray[np.float64]:
        """Encode n values as features (n, f): an unknown category is none of the known, a missing number NaN."""
        import numpy as np

        if self.kind == "category":
            return np.stack([values == category for category in self.categories], axis=1).astype(np.float64)
        numbers = values.astype(np.float64)[:, None]
        return np.hstack([numbers, np.isnan(numbers)]) if self.marks_missing else numbers


def encode_columns(columns: Sequence[Column], values: Mapping[str, Values]) -> npt.NDArray[np.float64]:
    """Encode the values of columns, by name, as features (n, f)."""
    import numpy as np

    return np.hstack([column.encode(values[column.name]) for column in columns])
