"""The section of a model card about trust: the rule, and its results on held-out domains."""

from __future__ import annotations

from fgmix.deploy.card_words import listed, plain
from fgmix.deploy.estimate import Estimate
from fgmix.deploy.info import ModelInfo
from fgmix.deploy.trust import FEWEST, INFORMATIVE, TrustRule
from fgmix.results.rounding import DASH
from fgmix.results.unseen import MOST_ROWS, percent, table


def trust_section(info: ModelInfo, found: Estimate) -> list[str]:
    """The section, for a model with an estimate."""
    return [
        "## When not to trust a prediction",
        _rule(info, found),
        _novelty(info, found),
        _trust_table(found),
        "Each row applies what the other held-out domains chose, so the domain itself had no say. The same by "
        f"predicted class, samples of all held-out domains together{_doubtful(info, found)}; only `trusted from` is "
        "the model's own rule, which all held-out domains chose:",
        _class_table(info, found),
        "By confidence, each held-out domain with equal weight:",
        _level_table(found),
    ]


def _rule(info: ModelInfo, found: Estimate) -> str:
    rule = found.trust
    familiar = " and the sample is not flagged as novel" if rule.uses_novelty or _on_features(info) else ""
    known = [least for least in rule.by_class if least is not None]
    if not known or rule.min_confidence is None:
        of = "all classes together" if rule.min_confidence is None else "one class, above what all classes need,"
        return (
            f"No prediction is marked as trusted: at no confidence do {FEWEST} or more predictions of {of} reach the "
            f"target of {percent(rule.target)} accuracy on held-out domains."
        )
    if rule.target is None:
        least = f"its confidence is at least {known[0]:.3g}{familiar}"
        return f"A prediction is marked as trusted if {least}; the confidence was set by the user."
    target = percent(rule.target)
    never = " A class without one is never trusted." if len(known) < len(rule.by_class) else ""
    return (
        "A prediction is marked as trusted if its confidence is at least what the second table below names for its "
        f"class{familiar}. These confidences were chosen on the held-out domains: from {rule.min_confidence:.3g} on, "
        f"at least {target} of all predictions are correct; that of a class is the lowest, but not below this, from "
        f"which on at least {target} of {FEWEST} or more predictions of the class are.{never}"
        f"{_easily_reached(found, rule.target)}"
    )


def _on_features(info: ModelInfo) -> bool:
    """Whether the network's inputs are features, whose size is part of the novelty."""
    return info.kind == "features" or info.spec.frozen


def _doubtful(info: ModelInfo, found: Estimate) -> str:
    """Classes whose trusted predictions miss the target, with rules chosen on the other domains."""
    target = found.trust.target
    missed = [
        plain(name)
        for name, each in zip(info.classes, found.predicted, strict=True)
        if target and each.trusted_accuracy is not None and each.trusted_accuracy < target
    ]
    return f" (below the target: {listed(missed)})" if missed else ""


def _easily_reached(found: Estimate, target: float) -> str:
    """A sentence for a rule that accepts every held-out prediction, which could be mistaken for a strict one."""
    everything = found.levels[0]
    if everything.confidence or everything.accuracy is None or everything.accuracy < target:
        return ""
    return (
        f" All held-out predictions together reach it ({percent(everything.accuracy)}): raise `--target-accuracy` "
        "for a stricter rule."
    )


def _novelty(info: ModelInfo, found: Estimate) -> str:
    rule = found.trust
    wrong, noise = (DASH if v is None else f"{v:.2f}" for v in (rule.wrong_auroc, rule.noise_auroc))
    measured = (
        f"Novelty, measured on the held-out domains: AUROC {wrong} for wrong against correct predictions, {noise} for "
        "noise against samples (0.5 is chance)"
    )
    far = "its features lie far outside those of the correct predictions"
    if not rule.uses_novelty:
        flagged = f", except that a sample is flagged if {far}" if _on_features(info) else ""
        return f"{measured}: it carries no information here, and `trusted` does not use it{flagged}."
    return (
        f"{measured}. A sample is flagged as novel if it is less familiar than at least 95 % of the correct predictions"
        f"{f', or if {far}' if _on_features(info) else ''}.{_blind_to(rule)}"
    )


def _blind_to(rule: TrustRule) -> str:
    """What novelty does not detect, if it is informative: noise or wrong predictions."""
    if rule.noise_auroc is not None and rule.noise_auroc < INFORMATIVE:
        return " **Noise and plain images or features are not recognised by it** and may be trusted."
    if rule.wrong_auroc is not None and rule.wrong_auroc < INFORMATIVE:
        return " It does not tell wrong predictions from correct ones."
    return ""


def without_estimate(info: ModelInfo) -> str:
    """The trust rule in a sentence, for a model without an estimate."""
    if info.min_confidence[0] is None:
        return "No prediction is marked as trusted."
    return (
        f"A prediction is marked as trusted if its confidence is at least {info.min_confidence[0]:g}, as the user set "
        "it, and the sample is not flagged as novel."
    )


def _trust_table(found: Estimate) -> str:
    rows = [
        [plain(d.domain), *map(percent, (d.trusted, d.trusted_accuracy, d.novel, d.novel_accuracy))]
        for d in found.domains
    ]
    head = ["Held-out domain", "trusted", "accuracy on trusted", "flagged as novel", "accuracy on flagged"]
    return table(head, rows)


def _class_table(info: ModelInfo, found: Estimate) -> str:
    """Trusted predictions by class; of many classes, those with the lowest accuracy on them."""
    classes = list(zip(info.classes, found.trust.by_class, found.predicted, strict=True))
    if len(classes) > MOST_ROWS:
        classes = sorted(classes, key=lambda c: c[2].trusted_accuracy or 0.0)[:MOST_ROWS]
    rows = [
        [
            plain(name),
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
