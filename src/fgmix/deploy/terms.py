"""Options of a model in addition to those of its run: trust, licence, intended use."""

from __future__ import annotations

from dataclasses import dataclass

from fgmix.records.options import check_options, declare

TARGET = 0.9  # accuracy of trusted predictions
_GROUP = "Model"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """When to trust a model, and its licence and use for the card; each option is declared once.

    Example:
        >>> Terms(target_accuracy=0.99).min_confidence is None
        True
    """

    min_confidence: float | None = declare(
        None,
        help="predictions below this confidence are not trusted; chosen for --target-accuracy by default",
        ge=0,
        le=1,
        group=_GROUP,
    )
    target_accuracy: float = declare(
        TARGET, help="accuracy among trusted predictions for unseen domains", gt=0, le=1, group=_GROUP
    )
    licence: str = declare("", help="licence of the model, for its card", group=_GROUP)
    intended_use: str = declare("", help="intended use of the model, for its card", group=_GROUP)

    def __post_init__(self) -> None:
        check_options(self)
