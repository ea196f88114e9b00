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
        f"On held-out instances of the domains that it knows, by which its step was selected: "
        f"{_percent(info.known_accuracy)} right."
    )
    found = info.estimate
    if found is None:
        return [
            "## What to expect",
            f"{known} On a domain that it does not know: **not measured** (fitted with `--no-estimate`). "
            "Its confidence is not calibrated. Do not rely on either figure for a new source of data.",
        ]
    return [
        "## What to expect",
        f"On a domain that it has never seen: **{_percent(found.accuracy)}** right{_range(found)}. {known}",
        _domain_table(found),
        "Each row: a model trained on the other domains, with the same settings, and tested on all of this one. "
        "Known: the same model on the domains it was trained on, which is what a usual test set would have promised. "
        "Confidence and calibration error: with a temperature fitted on the other domains. Novel: share of instances "
        "that look unlike all of the training data, and how many of those were right.",
        *_unknown(found),
        "## When to distrust it",
        f"A prediction is marked as trusted if its confidence is at least {info.min_confidence:g} and the instance "
        "does not look novel. On unseen domains, each weighing the same:",
        _level_table(found),
    ]


def _unknown(found: Estimate) -> list[str]:
    return [
        f"Of {_plain(d.domain)}, {_percent(d.unknown)} belong to classes that no other domain has. Held out, these "
        "cannot be right. The model itself has seen them: expect more of it than the table says."
        for d in found.domains
        if d.unknown
    ]


def _range(found: Estimate) -> str:
    if found.interval is None:
        return " (mean of two domains: too few for an interval)"
    low, high = map(_percent, found.interval)
    return f", with one more domain expected between {low} and {high} (95 %, from {len(found.domains)} domains)"


def _domain_table(found: Estimate) -> str:
    head = ["Held out", "instances", "right", "known", "confidence", "calibration error", "novel", "right of those"]
    rows = []
    for d in found.domains:
        shares = (d.accuracy, d.known_accuracy, d.confidence, d.calibration_error, d.novel, d.novel_accuracy)
        rows.append([_plain(d.domain), str(d.instances), *map(_percent, shares)])
    return _table(head, rows)


def _level_table(found: Estimate) -> str:
    rows = [
        [f"≥ {level.confidence:g}" if level.confidence else "any", _percent(level.coverage), _percent(level.accuracy)]
        for level in found.levels
    ]
    return _table(["Confidence, and not novel", "share", "right"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _origin(info: ModelInfo) -> list[str]:
    spec = info.spec
    settings = ", ".join(f"{name} {value}" for name, value in spec.settings.items())
    return [
        "## Where it comes from",
        f"fgmix {info.fgmix_version}; backbone {spec.backbone}, {spec.steps} steps of {spec.batch_size} instances per "
        f"domain, averaging {spec.averaging}, seed {spec.seed}; {settings}. Data fingerprint {info.data_fingerprint}. "
        "The whole spec is in model.json.",
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
