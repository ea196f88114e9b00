"""Names of the methods' training metrics in figures. No torch."""

from __future__ import annotations

# Names by key; a key that is not listed is printed as words: "critic_class" as "Critic class".
_NAMES = {
    "loss": "Training loss",
    "risk": "Risk (cross-entropy)",
    "flat": "L_flat",
    "adv": "L_adv of the policy",
    "disc": "L_adv of the discriminator",
    "lam": "λ",
    "extrapolated": "Extrapolated share",
    "entropy": "Entropy of the weights a",
    "mixed": "Mixed codes per step",
    "skipped": "Share of steps skipped",
    "noise_to_margin": "Noise ÷ margin",
    "input_norm": "Norm of A_ω's inputs",
    "gap": "Distance between domains",
    "penalty": "Penalty",
    "variance": "Variance of the risks",
    "worst": "Risk of the worst domain",
    "passed": "Share of gradient components kept",
    "kept": "Share of features kept",
    "conflicts": "Share of conflicting gradients",
    "individual": "Individual loss",
    "hybrid": "Hybrid loss",
    "style": "Loss of the style network",
    "adversary": "Adversarial loss",
}
MIXING = ("flat", "adv", "disc", "lam", "extrapolated", "entropy", "noise_to_margin", "input_norm")
_APART = ("flat", "lam", "extrapolated", "entropy", "noise_to_margin", "input_norm", "passed", "kept", "conflicts")
COUNT = "mixed"  # mixed codes per step: 0 before mixing starts


def metric_name(key: str) -> str:
    """The name of a metric in figures.

    >>> metric_name("lam"), metric_name("critic_class")
    ('λ', 'Critic class')
    """
    return _NAMES.get(key, key.replace("_", " ").capitalize())


def is_loss(name: str) -> bool:
    """Whether a metric, by its name in figures, has the scale of a loss; others get their own panels.

    >>> is_loss("Training loss"), is_loss("λ")
    (True, False)
    """
    return name not in {metric_name(key) for key in _APART}
