"""The model card: what a model is, what to expect of it, when to distrust it. Markdown, for people."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fgmix.data.standardisation import TAIL
from fgmix.deploy.composition import Composition
from fgmix.deploy.estimate import Estimate
from fgmix.deploy.info import ModelInfo
from fgmix.deploy.trust import FEWEST
from fgmix.files import write_bytes
from fgmix.metrics import NAMES, unbalanced
from fgmix.plots.confusion import confusion
from fgmix.plots.reliability import reliability
from fgmix.results.rounding import DASH
from fgmix.results.unseen import (
    MOST_COLUMNS,
    MOST_ROWS,
    confusion_table,
    metrics_table,
    percent,
    pooled_confusion,
    recall_table,
    table,
    worst_domain,
)
from fgmix.runs.spec import ResolvedSpec

CARD, CONFUSION, RELIABILITY = "card.md", "confusion.png", "reliability.png"
DPI = 150  # of its figures, for screens
WIDE = 0.8  # width of an interval that excludes little


def model_card(info: ModelInfo) -> str:
    """The card of a model."""
    expectation = _expectation_of_runs(info, info.composition) if info.composition else _expectation(info)
    sections = [
        f"# {_plain(info.dataset)}: {len(info.classes)} classes",
        *_summary(info),
        *_use(info),
        *expectation,
        *_data(info),
        *_origin(info),
        *_not_tested(info),
    ]
    return "\n\n".join(sections) + "\n"


def write_card(folder: Path, info: ModelInfo) -> None:
    """Write the card, and beside it the figures that it shows."""
    if info.estimate:
        for name, figure in _figures(info, info.estimate).items():
            drawn = io.BytesIO()
            figure.savefig(drawn, format="png", dpi=DPI)
            write_bytes(folder / name, drawn.getvalue())
    write_bytes(folder / CARD, model_card(info).encode())


def _figures(info: ModelInfo, found: Estimate) -> dict[str, Figure]:
    figures = {RELIABILITY: reliability(found.reliability)}
    pooled = pooled_confusion(found.metrics)
    if pooled:
        worst = worst_domain(found.metrics, found.metric)
        matrices = {"all held-out domains": pooled, f"worst: {worst}": found.metrics[worst].confusion}
        figures[CONFUSION] = confusion(info.classes, matrices)
    return figures


def _summary(info: ModelInfo) -> list[str]:
    what = {"images": "RGB images", "small_images": "small images", "features": "feature vectors"}[info.kind]
    size = " × ".join(map(str, info.input_shape))
    return [
        f"Classifies {what} ({size}) as one of: {_plain(_listed(info.classes))}.",
        f"Trained by {_plain(_methods(info))} on the domains {_plain(', '.join(info.domains))}"
        + (f"; {info.date}." if info.date else "."),
    ]


def _methods(info: ModelInfo) -> str:
    """The method, or those of the runs that the model is made of."""
    several = info.composition.methods if info.composition else ()
    return ", ".join(several) if len(several) > 1 else info.spec.algorithm


def _use(info: ModelInfo) -> list[str]:
    use = _plain(info.terms.intended_use) or "not stated (`--intended-use`)"
    licence = _plain(info.terms.licence) or "not stated (`--licence`)"
    return [f"Intended use: {use}. Licence: {licence}."]


def _expectation(info: ModelInfo) -> list[str]:
    found = info.estimate
    name = NAMES[found.metric] if found else "accuracy"
    known = (
        f"In-domain {name}, on held-out samples of the training domains (they also selected the step): "
        f"{percent(info.in_domain_value if found else info.in_domain_accuracy)}."
    )
    if found is None:
        return [
            "## What to expect",
            f"{known} Accuracy on an unseen domain: **not measured** (fitted with `--no-estimate`). The confidence is "
            f"not calibrated. Do not rely on either for data from a new source. {_without_estimate(info)}",
        ]
    worst = worst_domain(found.metrics, found.metric)
    return [
        "## What to expect",
        f"{name[0].upper()}{name[1:]} on an unseen domain: **{percent(found.value)}**{_range(found)}. Worst held-out "
        f"domain: {_plain(worst)}, {percent(found.metrics[worst].value(found.metric))}. {known}",
        *_meaning(found),
        *_unbalanced(info, found),
        metrics_table(found.metrics, _plain),
        "Each row is a model that was trained on the other domains with the same settings and tested on all of this "
        "one. Majority class is the accuracy of always predicting the most frequent class. AUROC is the mean over "
        "classes of one class against the rest.",
        recall_table(info.classes, found.metrics, _plain),
        *_confusion(info, found),
        *_unknown(found),
        "## Confidence",
        _confidence_table(found),
        "In-domain accuracy is that of the same model on the domains it was trained on: what an ordinary test set "
        "would have suggested. Confidence (mean) and calibration error use a temperature fitted on the other domains.",
        f"![Accuracy against confidence on held-out domains]({RELIABILITY})",
        *_trust(info, found),
    ]


def _meaning(found: Estimate) -> list[str]:
    if found.interval is None:
        return []
    low, high = found.interval
    wide = (
        " This one excludes little: domains that are so few and differ so much do not determine another one."
        if high - low > WIDE
        else ""
    )
    return [
        f"The interval is where the {NAMES[found.metric]} on one more domain lies in 95 of 100 cases, if that domain "
        f"differs from these as much as they differ from each other; it says nothing about single predictions.{wide}"
    ]


def _unbalanced(info: ModelInfo, found: Estimate) -> list[str]:
    totals = [sum(column) for column in zip(*info.counts)]
    if found.metric != "accuracy" or not totals or not unbalanced(totals):
        return []
    return [
        f"The classes are unbalanced (from {min(t for t in totals if t)} to {max(totals)} samples), so accuracy hides "
        "what happens to rare ones: consider `--metric balanced_accuracy`, and `--class-weight balanced`."
    ]


def _confusion(info: ModelInfo, found: Estimate) -> list[str]:
    pooled = pooled_confusion(found.metrics)
    if not pooled:
        return [f"The confusion matrix is left out: {len(info.classes)} classes are too many for one."]
    table = confusion_table(info.classes, pooled, _plain)
    figure = f"![Confusion matrix of all held-out domains, and of the worst]({CONFUSION})"
    return [*([table, "Samples of all held-out domains; model.json has each domain's."] if table else []), figure]


def _trust(info: ModelInfo, found: Estimate) -> list[str]:
    return [
        "## When not to trust a prediction",
        _rule(found),
        _novelty(found),
        _trust_table(found),
        "Each row applies what the other held-out domains chose, so the domain itself had no say. The same by "
        f"predicted class, samples of all held-out domains together{_doubtful(info, found)}:",
        _class_table(info, found),
        "By confidence, each held-out domain with equal weight:",
        _level_table(found),
    ]


def _rule(found: Estimate) -> str:
    rule = found.trust
    familiar = " and the sample is not flagged as novel" if rule.uses_novelty else ""
    known = [least for least in rule.by_class if least is not None]
    if not known:
        return (
            f"No prediction is marked as trusted: at no confidence do {FEWEST} predictions of a class on held-out "
            f"domains reach the target of {percent(rule.target)} accuracy."
        )
    if rule.target is None:
        least = f"its confidence is at least {known[0]:.3g}{familiar}"
        return f"A prediction is marked as trusted if {least}; the confidence was set by the user."
    never = " A class without one is never trusted." if len(known) < len(rule.by_class) else ""
    return (
        "A prediction is marked as trusted if its confidence is at least what the second table below names for its "
        f"class{familiar}. It was chosen on the held-out domains as the lowest at which at least "
        f"{percent(rule.target)} of {FEWEST} or more trusted predictions of the class are correct, and of all classes "
        f"together.{never}"
        f"{_easily_reached(found, rule.target)}"
    )


def _doubtful(info: ModelInfo, found: Estimate) -> str:
    """Classes of which trusted predictions miss the target, since the domain itself had no say in it."""
    target = found.trust.target
    missed = [
        _plain(name)
        for name, each in zip(info.classes, found.predicted, strict=True)
        if target and each.trusted_accuracy is not None and each.trusted_accuracy < target
    ]
    return f" (below the target: {_listed(missed)})" if missed else ""


def _easily_reached(found: Estimate, target: float) -> str:
    """A rule that lets everything pass should not look like one that was strict."""
    everything = found.levels[0]
    if everything.confidence or everything.accuracy is None or everything.accuracy < target:
        return ""
    return (
        f" Predictions of any confidence reach it here ({percent(everything.accuracy)}): raise `--target-accuracy` for "
        "a stricter rule."
    )


def _novelty(found: Estimate) -> str:
    rule = found.trust
    wrong, noise = (DASH if v is None else f"{v:.2f}" for v in (rule.wrong_auroc, rule.noise_auroc))
    measured = (
        f"Novelty, measured on the held-out domains: AUROC {wrong} for wrong against correct predictions, {noise} for "
        "noise against samples (0.5 is chance)"
    )
    if rule.uses_novelty:
        return f"{measured}. A sample is flagged as novel if it is less familiar than 95 % of the correct predictions."
    return f"{measured}: it carries no information here, and `trusted` does not use it."


def _without_estimate(info: ModelInfo) -> str:
    if info.min_confidence[0] is None:
        return "No prediction is marked as trusted."
    return (
        f"A prediction is marked as trusted if its confidence is at least {info.min_confidence[0]:g}, as the user set "
        "it, and the sample is not flagged as novel."
    )


def _expectation_of_runs(info: ModelInfo, made_of: Composition) -> list[str]:
    """What was measured of a model of several runs, and what selected it."""
    unseen = [
        f"Accuracy on {_plain(name)}, held out by every run: **{percent(a)}**." for name, a in made_of.unseen.items()
    ]
    if unseen:
        unseen.append("Measured on all samples of a domain; `fgmix report` uses its training part, as for every run.")
    rows = [
        [_plain(name), percent(value), "yes" if name in made_of.runs else "no"]
        for name, value in made_of.validation.items()
    ]
    return [
        "## What to expect",
        " ".join(unseen or ["Accuracy on an unseen domain: **not measured** (no domain was held out)."]),
        f"In-domain accuracy, on held-out samples of the training domains: {percent(info.in_domain_accuracy)}. They "
        "also selected the model: expect less on other samples of these domains. The confidence is not calibrated, and "
        "no prediction is marked as trusted.",
        "## Composition",
        " ".join(map(_plain, made_of.sentences())),
        table(["Run", "validation accuracy", "used"], rows),
        "The section Training describes the first run that is used.",
    ]


def _unknown(found: Estimate) -> list[str]:
    return [
        f"{percent(d.unknown)} of {_plain(d.domain)} belong to classes that no other domain has. While it is held "
        "out, they cannot be predicted correctly. The model was trained on them: its accuracy should be higher than "
        "the table's."
        for d in found.domains
        if d.unknown
    ]


def _range(found: Estimate) -> str:
    if found.interval is None:
        return " (mean of two domains: too few for an interval)"
    low, high = map(percent, found.interval)
    return f"; 95 % prediction interval for one more domain: {low} to {high} (from {len(found.domains)} domains)"


def _confidence_table(found: Estimate) -> str:
    rows = [
        [_plain(d.domain), *map(percent, (d.accuracy, d.in_domain_accuracy, d.confidence, d.calibration_error))]
        for d in found.domains
    ]
    return table(["Held-out domain", "accuracy", "in-domain accuracy", "confidence", "calibration error"], rows)


def _trust_table(found: Estimate) -> str:
    rows = [
        [_plain(d.domain), *map(percent, (d.trusted, d.trusted_accuracy, d.novel, d.novel_accuracy))]
        for d in found.domains
    ]
    head = ["Held-out domain", "trusted", "accuracy on trusted", "flagged as novel", "accuracy on flagged"]
    return table(head, rows)


def _class_table(info: ModelInfo, found: Estimate) -> str:
    """Trusted predictions by class; of many classes, those with the lowest accuracy."""
    classes = list(zip(info.classes, found.trust.by_class, found.predicted, strict=True))
    if len(classes) > MOST_ROWS:
        classes = sorted(classes, key=lambda c: c[2].trusted_accuracy or 0.0)[:MOST_ROWS]
    rows = [
        [
            _plain(name),
            "none" if least is None else f"{least:.3g}",
            str(each.predicted),
            percent(each.trusted_share),
            percent(each.trusted_accuracy),
        ]
        for name, least, each in classes
    ]
    return table(["Predicted class", "trusted from", "predictions", "trusted", "accuracy on trusted"], rows)


def _level_table(found: Estimate) -> str:
    rows = [
        [f"≥ {level.confidence:.3g}" if level.confidence else "any", percent(level.coverage), percent(level.accuracy)]
        for level in found.levels
    ]
    first = "Confidence, not flagged as novel" if found.trust.uses_novelty else "Confidence"
    return table([first, "share of samples", "accuracy"], rows)


def _data(info: ModelInfo) -> list[str]:
    if not info.counts:
        return []
    totals = [sum(column) for column in zip(*info.counts)]
    shown = sorted(range(len(info.classes)), key=lambda c: -totals[c])[:MOST_COLUMNS]
    shown.sort()
    head = ["Samples", *(_plain(info.classes[c]) for c in shown), "all"]
    rows = [
        [_plain(name), *(str(row[c]) for c in shown), str(sum(row))]
        for name, row in zip(info.domains, info.counts, strict=True)
    ]
    left_out = len(info.classes) - len(shown)
    more = [f"The table shows the {len(shown)} largest of {len(info.classes)} classes."] if left_out else []
    return ["## Data", table(head, rows), *more, *(_plain(note) for note in info.notes)]


def _origin(info: ModelInfo) -> list[str]:
    spec = info.spec
    settings = ", ".join(f"{name} {value}" for name, value in spec.settings.items())
    return [
        "## Training",
        f"fgmix {info.fgmix_version}; backbone {spec.backbone}{_frozen(spec)}, {spec.steps} steps of {spec.batch_size} "
        f"samples per domain{_balanced(spec)}, averaging {spec.averaging}, selected by {NAMES[spec.metric]}, seed "
        f"{spec.seed}; {settings}. Data fingerprint {info.data_fingerprint}. The full spec is in model.json.",
        f"Initial weights: {_initial(info)}",
        f"Preprocessing: {_preprocessing(info)}",
        *(() if info.counts else (_plain(note) for note in info.notes)),
    ]


def _balanced(spec: ResolvedSpec) -> str:
    return " (all classes drawn equally often)" if spec.class_weight == "balanced" else ""


def _frozen(spec: ResolvedSpec) -> str:
    if not spec.frozen:
        return ""
    views = f" and of {spec.views} augmented views of each" if spec.views else ""
    return f" (frozen: only a small network on its features of the images{views} was trained)"


def _initial(info: ModelInfo) -> str:
    spec = info.spec
    if not spec.weights and not spec.pretrained:
        return "random."
    origin = f"the file {_plain(Path(spec.weights).name)}" if spec.weights else f"published as {_plain(spec.backbone)}"
    digest = f", digest {spec.weights_digest}" if spec.weights_digest else ""
    matched = f", matched {info.weights_matched}" if info.weights_matched else ""
    # Of the packages that we name ourselves the order is known.
    warning = (
        " **Warning:** tensors that are matched by order may be in the wrong place; check the accuracy."
        if spec.weights and info.weights_matched == "by order"
        else ""
    )
    return f"{origin}{digest}{matched}.{warning}"


def _preprocessing(info: ModelInfo) -> str:
    spec = info.spec
    standardised = (
        f"; each feature{' of the backbone' if spec.frozen else ''} standardised over the training samples, and damped "
        f"beyond {TAIL:g} standard deviations"
        if spec.standardize
        else ""
    )
    if info.kind == "images":
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (spec.mean, spec.std))
        return (
            f"EXIF orientation applied, transparent pixels composited, resized to {info.input_shape[-1]} × "
            f"{info.input_shape[-1]} ({spec.interpolation}), scaled to [0, 1], normalised by mean {mean} and standard "
            f"deviation {std}{standardised}."
        )
    scaled = "uint8 scaled to [0, 1]" if info.dtype == "uint8" else "numbers as they are"
    return f"{scaled}{standardised}."


def _not_tested(info: ModelInfo) -> list[str]:
    """What nobody should read into the numbers."""
    missing = [
        "domains that differ from these more than they differ from each other",
        "classes that are not listed above",
        "inputs that are altered on purpose",
        "fairness between groups of people or other parts of a domain",
        *(() if info.estimate or _was_held_out(info) else ("any domain that was not trained on",)),
    ]
    return ["## Not tested", "\n".join(f"- {each}" for each in missing)]


def _was_held_out(info: ModelInfo) -> bool:
    """Whether a model of several runs was tested on a domain that they held out."""
    return bool(info.composition and info.composition.unseen)


def _plain(text: str) -> str:
    """Names are the user's: none may break out of a table, become markup or command a terminal."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


def _listed(classes: Sequence[str], most: int = 12) -> str:
    """Class names for a sentence."""
    more = f" and {len(classes) - most} more" if len(classes) > most else ""
    return ", ".join(classes[:most]) + more
