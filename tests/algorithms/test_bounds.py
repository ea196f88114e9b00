"""Settings out of their bounds are refused, with the bounds in the sentence."""

from __future__ import annotations

import pytest

from fgmix import algorithms
from fgmix.errors import UserError

SHARE = "a number between 0 and 1"
PROPER_SHARE = "a number at least 0 and below 1"
POSITIVE = "a positive number"
WEIGHT = "zero or a positive number"
COUNT = "a positive integer"
STEP = "zero or a positive integer"

BAD: list[tuple[str, str, object, str]] = [
    ("adrmx", "d_steps", 0, COUNT),
    ("adrmx", "mlp_depth", 1, "an integer between 2 and 100"),
    ("andmask", "tau", -0.1, SHARE),
    ("andmask", "tau", 1.1, SHARE),
    ("cad", "temperature", 0.0, POSITIVE),
    ("causirl_mmd", "gamma", -1.0, WEIGHT),
    ("cnsn", "p", 1.5, SHARE),
    ("cnsn", "active", 0, COUNT),
    ("coral", "gamma", -1.0, WEIGHT),
    ("dann", "d_steps", 0, COUNT),
    ("dann", "beta1", 1.0, PROPER_SHARE),
    ("cdann", "lr_d", 0.0, "a positive number or none"),
    ("ddg", "stage0", 1.0, PROPER_SHARE),
    ("ddg", "stage0", -0.1, PROPER_SHARE),
    ("ddg", "pairs", 0, "a positive integer or none"),
    ("ddg", "width", 0, COUNT),
    ("ddg", "downs", 0, COUNT),
    ("ddg", "margin", -0.1, WEIGHT),
    ("ddg", "lr_generator", 0.0, POSITIVE),
    ("eqrm", "quantile", 1.0, "a number greater than 0 and below 1"),
    ("eqrm", "burn_in", -1.0, WEIGHT),
    ("ermplusplus", "average_start", -1, STEP),
    ("fgmix", "n", 0, "positive unless flat_base is true"),
    ("fgmix", "tau", 1.5, SHARE),
    ("fgmix", "domains_per_tuple", 1, "an integer at least 2 or none"),
    ("fgmix", "lam", 0.0, POSITIVE),
    ("fgmix", "gamma", 0.0, "a positive number or none"),
    ("fgmix", "eta2", 0.0, POSITIVE),
    ("fgmix", "directions", 0, COUNT),
    ("fgmix", "alpha", 1.5, SHARE),
    ("fgmix_d", "lam", -3.0, POSITIVE),
    ("fish", "eta", 1.5, SHARE),
    ("fishr", "lam", -1.0, WEIGHT),
    ("fishr", "anneal", -1, STEP),
    ("fishr", "gamma", 1.0, PROPER_SHARE),
    ("groupdro", "eta", -1.0, WEIGHT),
    ("ib_irm", "ib_anneal", -1, STEP),
    ("iga", "lam", -1.0, WEIGHT),
    ("irm", "anneal", -1, STEP),
    ("l2a_ot", "pretrain", 1.0, PROPER_SHARE),
    ("l2a_ot", "generated", 0, "a positive integer or none"),
    ("l2a_ot", "width", 0, COUNT),
    ("l2a_ot", "lambda_cycle", -1.0, WEIGHT),
    ("manifold_mixup", "alpha", -1.0, "a number at least 1e-06"),
    ("metamixup", "lam", 1.5, SHARE),
    ("metamixup", "lam_lr", 0.0, POSITIVE),
    ("mixstyle", "alpha", 0.0, "a number at least 1e-06"),
    ("mixstyle", "p", -0.1, SHARE),
    ("mixstyle", "first_stages", 0, COUNT),
    ("mixup", "alpha", 0.0, "a number at least 1e-06"),
    ("mldg", "beta", -1.0, WEIGHT),
    ("mldg", "meta_test", 0, COUNT),
    ("mmd", "gamma", float("inf"), "finite"),
    ("mtl", "ema", 1.5, SHARE),
    ("rdm", "lr_after", 0.0, POSITIVE),
    ("rsc", "f", 1.5, SHARE),
    ("rsc", "b", float("nan"), "finite"),
    ("sagnet", "w_adv", -1.0, WEIGHT),
    ("sandmask", "tau", 1.5, SHARE),
    ("sandmask", "kappa", 0.0, POSITIVE),
    ("sd", "lam", -1.0, WEIGHT),
    ("transfer", "delta", -1.0, WEIGHT),
    ("transfer", "d_steps", 0, COUNT),
    ("trm", "eta", -1.0, WEIGHT),
    ("urm", "hidden_layers", -1, "an integer between 0 and 100"),
    ("vrex", "lam", -1.0, WEIGHT),
    ("erm", "lr", 0.0, POSITIVE),
    ("erm", "weight_decay", -1.0, WEIGHT),
    ("erm", "steps", 0, COUNT),
]


@pytest.mark.parametrize(("method", "setting", "value", "expected"), BAD)
def test_out_of_bounds_is_refused(method: str, setting: str, value: object, expected: str) -> None:
    with pytest.raises(UserError, match=f"`{setting}` should be {expected}. Found {value}"):
        algorithms.get(method).Config.of(**{setting: value})


@pytest.mark.parametrize(
    ("method", "setting", "value"),
    [
        ("cnsn", "crop", "all"),
        ("ddg", "swap_label", "both"),
        ("fgmix", "scale", "max"),
        ("l2a_ot", "critics", "large"),
        ("manifold_mixup", "layers", "last"),
        ("metamixup", "look_ahead", "exact"),
        ("mixstyle", "mix", "sideways"),
        ("urm", "activation", "sigmoid"),
    ],
)
def test_unknown_choices_are_refused(method: str, setting: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"Unknown `{setting}` '{value}'.*Known: "):
        algorithms.get(method).Config.of(**{setting: value})
