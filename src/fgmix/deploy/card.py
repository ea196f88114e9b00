"""The model card, in Markdown: data and training of a model, its expected accuracy, when not to trust it.

`templates/card.md` has its text; this module computes the values and tables in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from statistics import stdev
from typing import Any

import jinja2
import numpy as np
from markdown_it import MarkdownIt

from fgmix.data.standardisation import TAIL
from fgmix.deploy.estimate import count_domains
from fgmix.deploy.overlap import describe_question
from fgmix.deploy.summary import summarize_model
from fgmix.deploy.trust import FEWEST, INFORMATIVE
from fgmix.escape import escape_markdown
from fgmix.figures.card import describe_confusion, describe_reliability
from fgmix.figures.description import Chart
from fgmix.figures.draw import draw, render
from fgmix.networks.names import PACKAGES
from fgmix.progress import format_duration
from fgmix.records.evaluations import METRIC_NAMES
from fgmix.records.files import write_bytes
from fgmix.records.metrics import is_unbalanced, pooled_confusion
from fgmix.records.model import Estimate, ModelInfo
from fgmix.results.other_metrics import (
    MOST_COLUMNS,
    MOST_ROWS,
    metrics_table,
    percent,
    recall_table,
    table,
    worst_domain,
)
from fgmix.results.rounding import DASH

CARD, PAGE, CONFUSION, RELIABILITY = "card.md", "card.html", "confusion.png", "reliability.png"
STYLE = """
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 sans-serif; color-scheme: light dark; }
blockquote { margin: 1rem 0; padding: 0.3rem 1rem; border-left: 5px solid #0072b2; font-size: 1.1em; }
table { margin: 1rem 0; border-collapse: collapse; display: block; overflow-x: auto; font-size: 0.9em; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #8885; text-align: left; white-space: nowrap; }
img { max-width: 100%; }
"""
DPI = 150  # of the figures, for screens
SENSITIVITIES = (0.9, 0.95, 0.99)  # of the table of thresholds; of many classes, the second
FEW_CLASSES = 3
USEFUL = 0.4  # width of an interval that tells a good domain from a bad one
INPUTS = {"images": "RGB images", "small_images": "small images", "signals": "signals", "features": "feature vectors"}


def model_card(info: ModelInfo) -> str:
    """Render the card of a model."""
    paragraphs = re.split(r"\n\s*\n", _load_template().render(**_values(info)).strip())
    return "\n\n".join(map(_join_lines, paragraphs)) + "\n"


@cache
def _load_template() -> jinja2.Template:
    # Markdown, not HTML: `escape_markdown` escapes what a user wrote.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fgmix.deploy"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters |= {
        "plain": escape_markdown,
        "percent": percent,
        "shorten": shorten,
        "decimals": lambda value: DASH if value is None else f"{value:.2f}",
        "duration": format_duration,
        "numbers": lambda values: ", ".join(f"{value:g}" for value in values),
    }
    return environment.get_template(CARD)


def write_card(folder: Path, info: ModelInfo) -> None:
    """Write the card and its figures."""
    if info.estimate:
        for name, chart in _describe_figures(info, info.estimate).items():
            write_bytes(folder / name, render(draw(chart), "png", dpi=DPI))
    text = model_card(info)
    write_bytes(folder / CARD, text.encode())
    write_bytes(folder / PAGE, render_html(text, info).encode())


def render_html(card: str, info: ModelInfo) -> str:
    """Render the card as a page; HTML in it is shown as text."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(card)
    body = re.sub(r"<h2>(.*?)</h2>", lambda head: f'<h2 id="{_name_anchor(head[1])}">{head[1]}</h2>', body)
    title = escape(f"{info.dataset}: model card")
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{STYLE}</style>\n{body}</html>\n'
    )


def _name_anchor(heading: str) -> str:
    """Name the anchor of a heading as viewers of Markdown do."""
    return re.sub(r"[^\w\s-]", "", heading).lower().replace(" ", "-")


def shorten(classes: Sequence[str], most: int = 12) -> str:
    """List class names in a sentence: the first ones, and the number of the others."""
    more = f" and {len(classes) - most} more" if len(classes) > most else ""
    return ", ".join(classes[:most]) + more


def _join_lines(paragraph: str) -> str:
    """Join the lines of a paragraph; those of a table or a list stay."""
    return paragraph if paragraph.startswith(("| ", "- ", "> ")) else " ".join(paragraph.split("\n"))


def _describe_figures(info: ModelInfo, estimate: Estimate) -> dict[str, Chart]:
    figures = {RELIABILITY: describe_reliability(estimate.reliability)}
    pooled = pooled_confusion(estimate.metrics)
    if pooled:
        worst = worst_domain(estimate.metrics, estimate.metric)
        matrices = {"all held-out domains": pooled, f"worst: {worst}": estimate.metrics[worst].confusion}
        figures[CONFUSION] = describe_confusion(info.classes, matrices)
    return figures


def _values(info: ModelInfo) -> dict[str, Any]:
    """Compute what the template names."""
    spec, several = info.spec, info.composition.methods if info.composition else ()
    values: dict[str, Any] = {
        "info": info,
        "box": summarize_model(info) if info.estimate else [],
        "spec": spec,
        "estimate": info.estimate,
        "inputs": INPUTS[info.kind],
        "methods": ", ".join(several or (spec.algorithm,)),
        "settings": ", ".join(f"{name} {value}" for name, value in sorted(spec.settings.items())),
        "selected_by": METRIC_NAMES[spec.metric],
        "packages": PACKAGES,
        "file": Path(spec.weights).name,
        "tail": TAIL,
        "most_columns": MOST_COLUMNS,
        "recipe": _name_recipe(info),
        "choice": info.choice,
        "adaptation": info.adaptation,
        "by_domain": info.choice is not None and any(t.by_domain and t.values for t in info.choice.trials),
        "tables": {
            "counts": _table_counts(info),
            "runs": _table_runs(info),
            "trials": _table_trials(info),
            "heatmaps": _table_heat_maps(info),
            "sizes": _table_sizes(info),
        },
    }
    return values if info.estimate is None else {**values, **_estimated_values(info, info.estimate, values["tables"])}


def _estimated_values(info: ModelInfo, estimate: Estimate, tables: dict[str, str]) -> dict[str, Any]:
    """Compute what the sections about unseen domains, confidence and trust name."""
    rule, pooled, everything = estimate.trust, pooled_confusion(estimate.metrics), estimate.levels[0]
    totals = [sum(column) for column in zip(*info.counts)]
    hidden = estimate.metric == "accuracy" and bool(totals) and is_unbalanced(totals)
    predicted = zip(info.classes, estimate.predicted, strict=True)
    seen = [metrics.value(estimate.metric) for metrics in estimate.metrics.values()]
    spread = max(stdev(seen), estimate.floor)
    return {
        "metric": METRIC_NAMES[estimate.metric],
        "question": describe_question(info.overlap, estimate.new_objects) if info.overlap else "",
        "worst": worst_domain(estimate.metrics, estimate.metric),
        "seen": seen,
        "spread": spread,
        "few_samples": estimate.has_few_samples,
        "needed": count_domains(spread, USEFUL),
        "useful": USEFUL,
        "unbalanced": (min(total for total in totals if total), max(totals)) if hidden else None,
        "has_confusion": bool(pooled),
        "rule": rule,
        "never": [name for name, least in zip(info.classes, rule.by_class) if least is None],
        "least": [least for least in rule.by_class if least is not None],
        "fewest": FEWEST,
        "informative": INFORMATIVE,
        # The size of features, and of other standardised inputs, is part of the novelty.
        "on_features": info.kind == "features" or info.spec.frozen or info.spec.standardize,
        # A rule that accepts every held-out prediction could be mistaken for a strict one.
        "easily_reached": not everything.confidence and (everything.accuracy or 0.0) >= (rule.target or 2.0),
        # Classes whose trusted predictions miss the target, with rules chosen on the other domains.
        "missed": [
            name
            for name, each in predicted
            if rule.target and each.trusted_accuracy is not None and each.trusted_accuracy < rule.target
        ],
        "tables": {
            **tables,
            "metrics": metrics_table(estimate.metrics, escape_markdown),
            "rates": _table_rates(info, estimate),
            "recall": recall_table(info.classes, estimate.metrics, escape_markdown),
            "confidence": _table_confidence(estimate),
            "trust": _table_trust(estimate),
            "classes": _table_classes(info, estimate),
            "levels": _table_levels(estimate),
            "operating": _table_operating(info, estimate),
        },
    }


def _table_rates(info: ModelInfo, estimate: Estimate) -> str:
    """Tabulate sensitivity and specificity of each class; of many classes, those that are recognised least."""
    confusion = np.array(pooled_confusion(estimate.metrics), dtype=float)
    if not confusion.size:
        return ""
    hits, true, predicted = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    others = confusion.sum() - true
    rows = []
    for c, name in enumerate(info.classes):
        recalls = {d: m.recall[c] for d, m in estimate.metrics.items()}
        known = {d: value for d, value in recalls.items() if value is not None}
        worst = min(known, key=known.__getitem__, default="")
        rows.append(
            [
                escape_markdown(name),
                percent(hits[c] / true[c] if true[c] else None),
                percent(1 - (predicted[c] - hits[c]) / others[c] if others[c] else None),
                f"{percent(known[worst])} ({escape_markdown(worst)})" if worst else DASH,
            ]
        )
    kept = sorted(range(len(rows)), key=lambda c: hits[c] / max(true[c], 1))[:MOST_ROWS]
    return table(["Class", "sensitivity", "specificity", "lowest sensitivity"], [rows[c] for c in sorted(kept)])


def _table_counts(info: ModelInfo) -> str:
    """Tabulate the samples by domain and class; of many classes, the largest."""
    totals = [sum(column) for column in zip(*info.counts)]
    shown = sorted(sorted(range(len(totals)), key=lambda c: -totals[c])[:MOST_COLUMNS])
    counts = zip(map(escape_markdown, info.domains), info.counts)
    rows = [[name, *(str(row[c]) for c in shown), str(sum(row))] for name, row in counts]
    return table(["Samples", *(escape_markdown(info.classes[c]) for c in shown), "all"], rows)


def _table_runs(info: ModelInfo) -> str:
    """Tabulate the runs that a model is made of; empty for a model of one run."""
    if info.composition is None:
        return ""
    rows = [
        [escape_markdown(name), percent(value), "yes" if name in info.composition.runs else "no"]
        for name, value in info.composition.validation.items()
    ]
    return table(["Run", f"validation {METRIC_NAMES[info.composition.metric]}", "used"], rows)


def _name_recipe(info: ModelInfo) -> str:
    """Describe the recipe that was chosen; empty if the user named the method."""
    return next((t.about for t in info.choice.trials if t.recipe == info.choice.recipe), "") if info.choice else ""


def _table_trials(info: ModelInfo) -> str:
    """Tabulate the recipes that were tried, the best first, and those that were skipped; of many domains, the means."""
    if info.choice is None:
        return ""
    shown = info.domains if len(info.domains) <= MOST_COLUMNS else ()
    head = ["Recipe", *map(escape_markdown, shown), "mean", "worst", "CPU-seconds"]
    rows = []
    for trial in sorted(info.choice.trials, key=lambda trial: -trial.mean):
        name = f"`{trial.recipe}`: {trial.about}{', each domain standardised by itself' if trial.by_domain else ''}"
        if trial.recipe == info.choice.recipe and not trial.by_domain:
            name = f"**{name}**"
        seconds = f"{trial.cpu_seconds:.1f}"
        if trial.skipped:
            rows.append([name, *[DASH] * len(shown), DASH, f"skipped: {trial.skipped}", seconds])
            continue
        shares = (*(trial.values[domain] for domain in shown), trial.mean, min(trial.values.values()))
        rows.append([name, *map(percent, shares), seconds])
    return table(head, rows)


def _table_sizes(info: ModelInfo) -> str:
    """Tabulate what adaptation changes by the size of a batch, and where one class dominates it."""
    about, plain = info.adaptation, info.estimate
    if about is None or plain is None:
        return ""
    rows = [[str(gain.samples), percent(gain.adapted), percent(gain.plain)] for gain in about.sizes]
    each, skewed = about.estimate, about.skewed
    rows.append(["a whole domain, as estimated above", percent(each.accuracy), percent(plain.accuracy)])
    rows.append([f"{skewed.samples}, 3 in 4 of one class", percent(skewed.adapted), percent(skewed.plain)])
    return table(["Samples of a batch", "accuracy, adapted", "not adapted"], rows)


def _table_confidence(estimate: Estimate) -> str:
    rows = [
        [
            escape_markdown(d.domain),
            *map(percent, (d.accuracy, d.in_domain_accuracy, d.confidence, d.calibration_error)),
        ]
        for d in estimate.domains
    ]
    return table(["Held-out domain", "accuracy", "in-domain accuracy", "confidence", "calibration error"], rows)


def _table_trust(estimate: Estimate) -> str:
    rows = [
        [escape_markdown(d.domain), *map(percent, (d.trusted, d.trusted_accuracy, d.novel, d.novel_accuracy))]
        for d in estimate.domains
    ]
    head = ["Held-out domain", "trusted", "accuracy on trusted", "flagged as novel", "accuracy on flagged"]
    return table(head, rows)


def _table_classes(info: ModelInfo, estimate: Estimate) -> str:
    """Tabulate trusted predictions by class; of many classes, those with the lowest accuracy on them."""
    classes = list(zip(info.classes, estimate.trust.by_class, estimate.predicted, strict=True))
    if len(classes) > MOST_ROWS:
        classes = sorted(classes, key=lambda c: c[2].trusted_accuracy or 0.0)[:MOST_ROWS]
    rows = [
        [
            escape_markdown(name),
            "none" if least is None else f"{least:.3g}",
            str(each.predicted),
            percent(each.trusted_share),
            percent(each.trusted_accuracy),
        ]
        for name, least, each in classes
    ]
    return table(["Predicted class", "trusted from", "predictions", "trusted", "accuracy on trusted"], rows)


def _table_levels(estimate: Estimate) -> str:
    rows = [
        [f"≥ {level.confidence:.3g}" if level.confidence else "any", percent(level.coverage), percent(level.accuracy)]
        for level in estimate.levels
    ]
    first = "Confidence, not flagged as novel" if estimate.trust.uses_novelty else "Confidence"
    distinct = [list(row) for row in dict.fromkeys(map(tuple, rows))]
    return table([first, "share of samples", "accuracy"], distinct)


def _table_operating(info: ModelInfo, estimate: Estimate) -> str:
    """Tabulate thresholds for a wanted sensitivity; empty without any, and for many classes."""
    if not 0 < len(estimate.operating) <= MOST_ROWS:
        return ""
    shown = SENSITIVITIES if len(info.classes) <= FEW_CLASSES else SENSITIVITIES[1:2]
    rows = [
        [
            escape_markdown(name),
            percent(point.wanted),
            DASH if point.threshold is None else f"{point.threshold:.3g}",
            *map(percent, (point.sensitivity, point.lowest, point.specificity)),
        ]
        for name, points in zip(info.classes, estimate.operating, strict=True)
        for point in points
        if point.wanted in shown
    ]
    return table(["Class", "wanted", "flagged from", "sensitivity", "lowest of a domain", "specificity"], rows)


def _table_heat_maps(info: ModelInfo) -> str:
    """Tabulate heat maps; empty without any."""
    rows = [
        [
            f"![{each.file}]({each.file})",
            *map(escape_markdown, (each.domain, each.label, each.predicted)),
            f"{each.confidence:.2f}",
        ]
        for each in info.heatmaps
    ]
    return table(["Image and heat", "domain", "class", "predicted", "confidence"], rows) if rows else ""
