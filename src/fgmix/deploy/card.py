"""The model card: what a model is, what to expect of it, when to distrust it. Markdown, for people."""

from __future__ import annotations

from collections.abc import Sequence

from fgmix.deploy.estimate import Estimate
from fgmix.deploy.model import ModelInfo


def model_card(info: ModelInfo) -> str:
    """The card of a model."""
    return (
        "\n\n".join(
            [
                f"# {_plain(info.dataset)}: {len(info.classes)} classes",
                *_summary(info),
                *_expectation(info),
                *_origin(info),
            ]
        )
        + "\n"
    )


def _summary(info: ModelInfo) -> list[str]:
    what = {"images": "RGB images", "small_images": "small images", "features": "feature vectors"}[info.kind]
    size = " × ".join(map(str, info.input_shape))
    return [
        f"Classifies {what} ({size}) as one of: {_plain(_listed(info.classes))}.",
        f"Trained by {info.spec.algorithm} on the domains {_plain(', '.join(info.domains))}.",
    ]


def _expectation(info: ModelInfo) -> list[str]:
    known = (
        f"In-domain accuracy, on held-out samples of the training domains (they also selected the step): "
        f"{_percent(info.in_domain_accuracy)}."
    )
    found = info.estimate
    if found is None:
        return [
            "## What to expect",
            f"{known} Accuracy on an unseen domain: **not measured** (fitted with `--no-estimate`). The confidence is "
            "not calibrated. Do not rely on either for data from a new source.",
        ]
    return [
        "## What to expect",
        f"Accuracy on an unseen domain: **{_percent(found.accuracy)}**{_range(found)}. {known}",
        _domain_table(found),
        "Each row is a model that was trained on the other domains with the same settings and tested on all of this "
        "one. In-domain accuracy is that of the same model on the domains it was trained on: what an ordinary test set "
        "would have suggested. Confidence and calibration error use a temperature fitted on the other domains. Flagged "
        "as novel is the share of samples that are unlike the training data, followed by the accuracy on them.",
        *_unknown(found),
        "## When not to trust a prediction",
        f"A prediction is marked as trusted if its confidence is at least {info.min_confidence:g} and the sample is "
        "not flagged as novel. On unseen domains, each with equal weight:",
        _level_table(found),
    ]


def _unknown(found: Estimate) -> list[str]:
    return [
        f"{_percent(d.unknown)} of {_plain(d.domain)} belong to classes that no other domain has. While it is held "
        "out, they cannot be predicted correctly. The model was trained on them: its accuracy should be higher than "
        "the table's."
        for d in found.domains
        if d.unknown
    ]


def _range(found: Estimate) -> str:
    if found.interval is None:
        return " (mean of two domains: too few for an interval)"
    low, high = map(_percent, found.interval)
    return f"; 95 % prediction interval for one more domain: {low} to {high} (from {len(found.domains)} domains)"


def _domain_table(found: Estimate) -> str:
    head = [
        "Held-out domain",
        "samples",
        "accuracy",
        "in-domain accuracy",
        "confidence",
        "calibration error",
        "flagged as novel",
        "accuracy on flagged",
    ]
    rows = []
    for d in found.domains:
        shares = (d.accuracy, d.in_domain_accuracy, d.confidence, d.calibration_error, d.novel, d.novel_accuracy)
        rows.append([_plain(d.domain), str(d.samples), *map(_percent, shares)])
    return _table(head, rows)


def _level_table(found: Estimate) -> str:
    rows = [
        [f"≥ {level.confidence:g}" if level.confidence else "any", _percent(level.coverage), _percent(level.accuracy)]
        for level in found.levels
    ]
    return _table(["Confidence, not flagged as novel", "share of samples", "accuracy"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _origin(info: ModelInfo) -> list[str]:
    spec = info.spec
    settings = ", ".join(f"{name} {value}" for name, value in spec.settings.items())
    return [
        "## Training",
        f"fgmix {info.fgmix_version}; backbone {spec.backbone}, {spec.steps} steps of {spec.batch_size} samples per "
        f"domain, averaging {spec.averaging}, seed {spec.seed}; {settings}. Data fingerprint {info.data_fingerprint}. "
        "The full spec is in model.json.",
        *(_plain(note) for note in info.notes),
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _plain(text: str) -> str:
    """Names are the user's: none may break out of a table, become markup or command a terminal."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


def _listed(classes: Sequence[str], most: int = 12) -> str:
    """Class names for a sentence."""
    more = f" and {len(classes) - most} more" if len(classes) > most else ""
    return ", ".join(classes[:most]) + more
