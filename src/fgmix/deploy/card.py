"""The model card, in Markdown: data and training of a model, its expected accuracy, when not to trust it."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure

from fgmix.data.standardisation import TAIL
from fgmix.deploy.card_trust import trust_section, without_estimate
from fgmix.deploy.card_words import listed, plain
from fgmix.deploy.composition import Composition
from fgmix.deploy.estimate import Estimate
from fgmix.deploy.info import ModelInfo
from fgmix.networks._packaged import PACKAGES
from fgmix.plots.confusion import confusion
from fgmix.plots.reliability import reliability
from fgmix.records.files import write_bytes
from fgmix.records.metrics import NAMES, unbalanced
from fgmix.records.schema import ResolvedSpec
from fgmix.results.unseen import (
    MOST_COLUMNS,
    confusion_table,
    metrics_table,
    percent,
    pooled_confusion,
    recall_table,
    table,
    worst_domain,
)

CARD, CONFUSION, RELIABILITY = "card.md", "confusion.png", "reliability.png"
DPI = 150  # of the figures, for screens
WIDE = 0.8  # width from which an interval is called uninformative


def model_card(info: ModelInfo) -> str:
    """The card of a model."""
    expectation = _expectation_of_runs(info, info.composition) if info.composition else _expectation(info)
    sections = [
        f"# {plain(info.dataset)}: {len(info.classes)} classes",
        *_summary(info),
        *_use(info),
        *expectation,
        *_data(info),
        *_origin(info),
        *_not_tested(info),
    ]
    return "\n\n".join(sections) + "\n"


def write_card(folder: Path, info: ModelInfo) -> None:
    """Write the card and its figures."""
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
        f"Classifies {what} ({size}) as one of: {plain(listed(info.classes))}.",
        f"Trained with the {plain(_methods(info))} on the domains {plain(', '.join(info.domains))}"
        + (f"; {info.date}." if info.date else "."),
    ]


def _methods(info: ModelInfo) -> str:
    """The method, or the methods of the runs that the model is made of."""
    several = info.composition.methods if info.composition else ()
    return f"methods {', '.join(several)}" if len(several) > 1 else f"method {info.spec.algorithm}"


def _use(info: ModelInfo) -> list[str]:
    use = plain(info.terms.intended_use) or "not stated (`--intended-use`)"
    licence = plain(info.terms.licence) or "not stated (`--licence`)"
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
            f"not calibrated. Do not rely on either for data from a new source. {without_estimate(info)}",
        ]
    worst = worst_domain(found.metrics, found.metric)
    return [
        "## What to expect",
        f"{name[0].upper()}{name[1:]} on an unseen domain: **{percent(found.value)}**{_range(found)}. Worst held-out "
        f"domain: {plain(worst)}, {percent(found.metrics[worst].value(found.metric))}. {known}",
        *_meaning(found),
        *_unbalanced(info, found),
        metrics_table(found.metrics, plain),
        "Each row is a model that was trained on the other domains with the same settings and tested on all of this "
        "one. Majority class is the accuracy of always predicting the most frequent class. AUROC is the mean over "
        "classes of one class against the rest.",
        recall_table(info.classes, found.metrics, plain),
        *_confusion(info, found),
        *_unknown(found),
        "## Confidence",
        _confidence_table(found),
        "In-domain accuracy is that of the same model on the domains it was trained on: what an ordinary test set "
        "would have suggested. Confidence (mean) and calibration error use a temperature fitted on the other domains.",
        f"![Accuracy against confidence on held-out domains]({RELIABILITY})",
        *trust_section(info, found),
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
    table = confusion_table(info.classes, pooled, plain)
    figure = f"![Confusion matrix of all held-out domains, and of the worst]({CONFUSION})"
    return [*([table, "Samples of all held-out domains; model.json has each domain's."] if table else []), figure]


def _expectation_of_runs(info: ModelInfo, made_of: Composition) -> list[str]:
    """Results of a model of several runs, and its composition."""
    unseen = [
        f"Accuracy on {plain(name)}, held out by every run: **{percent(a)}**." for name, a in made_of.unseen.items()
    ]
    if unseen:
        unseen.append("Measured on all samples of a domain; `fgmix report` uses its training part, as for every run.")
    rows = [
        [plain(name), percent(value), "yes" if name in made_of.runs else "no"]
        for name, value in made_of.validation.items()
    ]
    return [
        "## What to expect",
        " ".join(unseen or ["Accuracy on an unseen domain: **not measured** (no domain was held out)."]),
        f"In-domain accuracy, on held-out samples of the training domains: {percent(info.in_domain_accuracy)}. They "
        "also selected the model: expect less on other samples of these domains. The confidence is not calibrated, and "
        "no prediction is marked as trusted.",
        "## Composition",
        " ".join(map(plain, made_of.sentences())),
        table(["Run", f"validation {NAMES[made_of.metric]}", "used"], rows),
        "The section Training describes the first run that is used.",
    ]


def _unknown(found: Estimate) -> list[str]:
    return [
        f"{percent(d.unknown)} of {plain(d.domain)} belong to classes that no other domain has. While it is held "
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
        [plain(d.domain), *map(percent, (d.accuracy, d.in_domain_accuracy, d.confidence, d.calibration_error))]
        for d in found.domains
    ]
    return table(["Held-out domain", "accuracy", "in-domain accuracy", "confidence", "calibration error"], rows)


def _data(info: ModelInfo) -> list[str]:
    if not info.counts:
        return []
    totals = [sum(column) for column in zip(*info.counts)]
    shown = sorted(range(len(info.classes)), key=lambda c: -totals[c])[:MOST_COLUMNS]
    shown.sort()
    head = ["Samples", *(plain(info.classes[c]) for c in shown), "all"]
    rows = [
        [plain(name), *(str(row[c]) for c in shown), str(sum(row))]
        for name, row in zip(info.domains, info.counts, strict=True)
    ]
    left_out = len(info.classes) - len(shown)
    more = [f"The table shows the {len(shown)} largest of {len(info.classes)} classes."] if left_out else []
    return ["## Data and notes", table(head, rows), *more, *(plain(note) for note in info.notes)]


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
        *(() if info.counts else (plain(note) for note in info.notes)),
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
    digest = f", digest {spec.weights_digest}" if spec.weights_digest else ""
    matched = f", matched {info.weights_matched}" if info.weights_matched else ""
    if spec.backbone in PACKAGES and not spec.weights:
        return f"the Python package {plain(PACKAGES[spec.backbone])}{digest}{matched}, as is correct for it."
    origin = f"the file {plain(Path(spec.weights).name)}" if spec.weights else f"published as {plain(spec.backbone)}"
    warning = (
        " **Warning:** tensors that are matched by order may be in the wrong place; check the accuracy."
        if info.weights_matched == "by order"
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
    """What the results do not cover."""
    missing = [
        "domains that differ from these more than they differ from each other",
        "classes that are not listed above",
        "inputs that are altered on purpose",
        "fairness between groups of people or other parts of a domain",
        *(() if info.estimate or _was_held_out(info) else ("any domain that was not trained on",)),
    ]
    return ["## Not tested", "\n".join(f"- {each}" for each in missing)]


def _was_held_out(info: ModelInfo) -> bool:
    """Whether a model of several runs was tested on domains that they held out."""
    return bool(info.composition and info.composition.unseen)
