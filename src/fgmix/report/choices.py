"""What a reader of results chooses: the selection rule, what ± is, and whether the paper's numbers are shown."""

from __future__ import annotations

from dataclasses import dataclass

from fgmix.results.selection import Rule
from fgmix.results.tables import Spread


@dataclass(frozen=True)
class Choices:
    """How results are selected and shown."""

    rule: Rule = "training_domain"  # the selection rule
    spread: Spread = "stderr"  # what ± is
    published: bool = False  # whether to show the paper's numbers, too
