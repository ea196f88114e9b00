"""The runs that a soup or an ensemble is made of, and how they were selected."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from fgmix.records.metrics import NAMES, Metric

Kind = Literal["uniform", "greedy", "ensemble"]

_KINDS = {
    "uniform": "Uniform soup: the mean of the weights of {n} runs.",
    "greedy": "Greedy soup: the mean of the weights of {n} of {all} runs.",
    "ensemble": "Ensemble: the mean of the logits of {n} models, one of each run.",
}
_SELECTED_BY = {
    "uniform": "All runs given were used: nothing selected among them.",
    "greedy": "In the order of their validation {metric}, a run was added if the validation {metric} of the mean did "
    "not fall.",
    "ensemble": "All runs given were used: nothing selected among them.",
}


@dataclass(frozen=True)
class Composition:
    """The runs that a model is made of.

    Args:
        kind: how they are combined.
        weights: which weights of each run: raw or swa, at the step that its validation selects, or swad.
        runs: names of the runs used.
        left_out: names of the runs that were given and not used.
        validation: value of the metric of each run's own weights on the holdout parts of the training domains.
        unseen: accuracy of the model on all samples of each domain that the runs held out.
        methods: labels of the methods of the runs given, sorted.
        metric: what the runs are selected by.
    """

    kind: Kind
    weights: str
    runs: tuple[str, ...]
    left_out: tuple[str, ...]
    validation: dict[str, float]
    unseen: dict[str, float]
    methods: tuple[str, ...] = ()
    metric: Metric = "accuracy"

    @property
    def members(self) -> int:
        """Number of networks in the model."""
        return len(self.runs) if self.kind == "ensemble" else 1

    @property
    def title(self) -> str:
        """Name in tables, without the number of runs, which may differ between test domains.

        >>> Composition("greedy", "raw", ("a", "b"), ("c",), {}, {}).title
        'greedy soup'
        >>> Composition("ensemble", "raw", ("a", "b"), (), {}, {}, ("CORAL", "ERM")).title
        'ensemble of CORAL and ERM'
        """
        title = "ensemble" if self.kind == "ensemble" else f"{self.kind} soup"
        return f"{title} of {_join(self.methods)}" if len(self.methods) > 1 else title

    def sentences(self) -> list[str]:
        """Describe composition and selection, in sentences."""
        metric = NAMES[self.metric]
        steps = "" if self.weights == "swad" else f" at the step that the validation {metric} of the run selects"
        return [
            _KINDS[self.kind].format(n=len(self.runs), all=len(self.runs) + len(self.left_out)),
            *(
                [f"The runs given are of {len(self.methods)} methods: {_join(self.methods)}."]
                if len(self.methods) > 1
                else []
            ),
            f"Of each run, its {self.weights} weights{steps}.",
            _SELECTED_BY[self.kind].format(metric=metric),
            f"Validation {metric} is the mean over the training domains of the {metric} on their holdout parts."
            + (f" No sample of {', '.join(self.unseen)} was used for training or selection." if self.unseen else ""),
        ]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Composition:
        """Invert `as_dict`, also through JSON."""
        lists = {name: tuple(content.get(name, ())) for name in ("runs", "left_out", "methods")}
        return cls(**{**content, **lists})


def _join(names: tuple[str, ...]) -> str:
    """Join names for a sentence."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
