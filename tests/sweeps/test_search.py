"""The draws, against DomainBed's rule written out by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from fgmix import algorithms
from fgmix.algorithms._config import Distribution
from fgmix.errors import UserError
from fgmix.sweeps.search import HparamSample, Space, sample_hparams, search_space

Sample = Callable[[np.random.RandomState], object]


def md5_seed(*key: object) -> int:
    return int(hashlib.md5(str(key).encode()).hexdigest(), 16) % 2**31


def by_hand(name: str, sample: Sample, hparams_seed: int, trial_seed: int) -> object:
    return sample(np.random.RandomState(md5_seed(md5_seed(hparams_seed, trial_seed), name)))


ADVERSARIAL: dict[str, tuple[object, Sample]] = {
    "lambda": (1.0, lambda r: 10 ** r.uniform(-2, 2)),
    "weight_decay_d": (0.0, lambda r: 10 ** r.uniform(-6, -2)),
    "d_steps_per_g_step": (1, lambda r: int(2 ** r.uniform(0, 3))),
    "grad_penalty": (0.0, lambda r: 10 ** r.uniform(-2, 1)),
    "beta1": (0.5, lambda r: r.choice([0.0, 0.5])),
    "mlp_width": (256, lambda r: int(2 ** r.uniform(6, 10))),
    "mlp_depth": (3, lambda r: int(r.choice([3, 4, 5]))),
    "mlp_dropout": (0.0, lambda r: r.choice([0.0, 0.1, 0.5])),
    "lr_g": (5e-5, lambda r: 10 ** r.uniform(-5, -3.5)),
    "lr_d": (5e-5, lambda r: 10 ** r.uniform(-5, -3.5)),
    "weight_decay_g": (0.0, lambda r: 10 ** r.uniform(-6, -2)),
}
CONTRASTIVE: dict[str, tuple[object, Sample]] = {
    "lmbda": (1e-1, lambda r: r.choice([1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2])),
    "temperature": (0.1, lambda r: r.choice([0.05, 0.1])),
}

# What every method has, which a row below may replace; DANN and CDANN have these two under other names.
EVERY: dict[str, tuple[object, Sample]] = {
    "lr": (5e-5, lambda r: 10 ** r.uniform(-5, -3.5)),
    "weight_decay": (0.0, lambda r: 10 ** r.uniform(-6, -2)),
    "batch_size": (32, lambda r: int(2 ** r.uniform(3, 5.5))),
    "resnet_dropout": (0.0, lambda r: r.choice([0.0, 0.1, 0.5])),
}
RENAMED = {"lr_g": "lr", "weight_decay_g": "weight_decay"}

# DomainBed's own hyper-parameters of its methods, by its names: default and distribution. Those that are drawn there
# and used nowhere, or that have one value, are left out.
DOMAINBED: dict[str, dict[str, tuple[object, Sample]]] = {
    "ERM": {},
    "Mixup": {"mixup_alpha": (0.2, lambda r: 10 ** r.uniform(-1, 1))},
    "CORAL": {"mmd_gamma": (1.0, lambda r: 10 ** r.uniform(-1, 1))},
    "MMD": {"mmd_gamma": (1.0, lambda r: 10 ** r.uniform(-1, 1))},
    "ANDMask": {"tau": (1.0, lambda r: r.uniform(0.5, 1.0))},
    "SANDMask": {"tau": (1.0, lambda r: r.uniform(0.0, 1.0)), "k": (10.0, lambda r: 10 ** r.uniform(-3, 5))},
    "Fish": {"meta_lr": (0.5, lambda r: r.choice([0.05, 0.1, 0.5]))},
    "Fishr": {
        "lambda": (1000.0, lambda r: 10 ** r.uniform(1.0, 4.0)),
        "penalty_anneal_iters": (1500, lambda r: int(r.uniform(0.0, 5000.0))),
        "ema": (0.95, lambda r: r.uniform(0.90, 0.99)),
    },
    "GroupDRO": {"groupdro_eta": (1e-2, lambda r: 10 ** r.uniform(-3, -1))},
    "IRM": {
        "irm_lambda": (1e2, lambda r: 10 ** r.uniform(-1, 5)),
        "irm_penalty_anneal_iters": (500, lambda r: int(10 ** r.uniform(0, 4))),
    },
    "VREx": {
        "vrex_lambda": (1e1, lambda r: 10 ** r.uniform(-1, 5)),
        "vrex_penalty_anneal_iters": (500, lambda r: int(10 ** r.uniform(0, 4))),
    },
    "MLDG": {
        "mldg_beta": (1.0, lambda r: 10 ** r.uniform(-1, 1)),
        "n_meta_test": (2, lambda r: r.choice([1, 2])),
    },
    "RSC": {
        "rsc_f_drop_factor": (1 / 3, lambda r: r.uniform(0, 0.5)),
        "rsc_b_drop_factor": (1 / 3, lambda r: r.uniform(0, 0.5)),
    },
    "SagNet": {"sag_w_adv": (0.1, lambda r: 10 ** r.uniform(-2, 1))},
    "SelfReg": {},
    "SD": {"sd_reg": (0.1, lambda r: 10 ** r.uniform(-5, -1))},
    "IGA": {"penalty": (1000, lambda r: 10 ** r.uniform(1, 5))},
    "IB_ERM": {
        "ib_lambda": (1e2, lambda r: 10 ** r.uniform(-1, 5)),
        "ib_penalty_anneal_iters": (500, lambda r: int(10 ** r.uniform(0, 4))),
    },
    "IB_IRM": {
        "irm_lambda": (1e2, lambda r: 10 ** r.uniform(-1, 5)),
        "irm_penalty_anneal_iters": (500, lambda r: int(10 ** r.uniform(0, 4))),
        "ib_lambda": (1e2, lambda r: 10 ** r.uniform(-1, 5)),
        "ib_penalty_anneal_iters": (500, lambda r: int(10 ** r.uniform(0, 4))),
    },
    "CausIRL_CORAL": {"mmd_gamma": (1.0, lambda r: 10 ** r.uniform(-1, 1))},
    "CausIRL_MMD": {"mmd_gamma": (1.0, lambda r: 10 ** r.uniform(-1, 1))},
    "DANN": ADVERSARIAL,
    "CDANN": ADVERSARIAL,
    "MTL": {"mtl_ema": (0.99, lambda r: r.choice([0.5, 0.9, 0.99, 1.0]))},
    "ARM": {"batch_size": (8, lambda _: 8)},
    "TRM": {
        "cos_lambda": (1e-4, lambda r: 10 ** r.uniform(-5, 0)),
        "iters": (200, lambda r: int(10 ** r.uniform(0, 4))),
        "groupdro_eta": (1e-2, lambda r: 10 ** r.uniform(-3, -1)),
    },
    "CAD": CONTRASTIVE,
    "CondCAD": CONTRASTIVE,
    "Transfer": {
        "t_lambda": (1.0, lambda r: 10 ** r.uniform(-2, 1)),
        "delta": (2.0, lambda r: r.uniform(0.1, 3.0)),
        "d_steps_per_g": (10, lambda r: int(r.choice([1, 2, 5]))),
        "gda": (False, lambda _: True),
        "lr_d": (1e-3, lambda r: 10 ** r.uniform(-4.5, -2.5)),
    },
    "EQRM": {
        "eqrm_quantile": (0.75, lambda r: r.uniform(0.5, 0.99)),
        "eqrm_burnin_iters": (2500, lambda r: 10 ** r.uniform(2.5, 3.5)),
        "eqrm_lr": (1e-6, lambda r: 10 ** r.uniform(-7, -5)),
    },
    "RDM": {  # on PACS and, for the defaults, on OfficeHome; other datasets below
        "rdm_lambda": (5.0, lambda r: r.uniform(1.0, 10.0)),
        "rdm_penalty_anneal_iters": (1500, lambda r: int(r.uniform(800, 2700))),
        "variance_weight": (0.0, lambda r: r.uniform(0.001, 0.007)),
        "rdm_lr": (1.5e-5, lambda r: r.uniform(8e-6, 2e-5)),
        "batch_size": (88, lambda r: int(r.uniform(70, 100))),
    },
    "ERMPlusPlus": {"linear_lr": (5e-5, lambda r: 10 ** r.uniform(-5, -3.5))},
    "URM": {
        "urm_adv_lambda": (0.1, lambda r: r.uniform(0, 0.2)),
        "urm_discriminator_hidden_layers": (1, lambda r: int(r.choice([1, 2, 3]))),
        "urm_generator_output": ("tanh", lambda r: str(r.choice(["tanh", "relu"]))),
        "urm_discriminator_lr": (5e-5, lambda r: 10 ** r.uniform(-6, -4.5)),
    },
    "ADRMX": {
        "lr": (3e-5, lambda r: r.choice([2e-5, 3e-5, 4e-5, 5e-5])),
        "weight_decay": (0.0, lambda _: 0.0),  # drawn there, and given to no optimiser
        "mlp_depth": (9, lambda r: int(r.choice([8, 9, 10]))),
    },
}
OUR_DEFAULTS = {"SANDMask": {"tau": 0.5}}  # at DomainBed's τ = 1 nothing is ever updated

SHARED = [name for name in algorithms.names() if algorithms.get(name).domainbed_name is not None]


def domainbeds(method: str) -> dict[str, tuple[object, Sample]]:
    """The row of a method in the table above, with what every method has."""
    theirs = algorithms.get(method).domainbed_name
    assert theirs in DOMAINBED, (
        f"{method} declares domainbed_name = {theirs!r}: add its own hyper-parameters to DOMAINBED in this file, with "
        "the names, defaults and distributions of DomainBed's hparams_registry.py."
    )
    row = DOMAINBED[theirs]
    return {name: each for name, each in EVERY.items() if name not in {RENAMED.get(n) for n in row}} | row


def in_their_names(method: str, drawn: HparamSample) -> dict[str, object]:
    space = search_space(method, "PACS", "images")
    values = {**drawn["settings"], "batch_size": drawn["batch_size"], "dropout": drawn["dropout"]}
    return {space[field].seed_name: value for field, value in values.items()}


@pytest.mark.parametrize("method", SHARED)
def test_draws_are_domainbeds(method: str) -> None:
    for h, t in [(1, 0), (2, 0), (7, 2), (19, 1)]:
        expected = {name: by_hand(name, sample, h, t) for name, (_, sample) in domainbeds(method).items()}
        assert in_their_names(method, sample_hparams(method, "PACS", "images", h, t)) == expected


@pytest.mark.parametrize("method", SHARED)
def test_a_thousand_samples_of_every_hyper_parameter_are_domainbeds(method: str) -> None:
    rows = domainbeds(method)
    for searched in search_space(method, "PACS", "images").values():
        name, sample = searched.seed_name, rows[searched.seed_name][1]
        if searched.distribution is None:
            assert {*thousand(name, sample)} == {searched.default}
        else:
            assert thousand(name, searched.distribution) == thousand(name, sample)


SEEDS = [md5_seed(hparams_seed, 0) for hparams_seed in range(1, 1001)]


@cache  # methods share most of what they search
def thousand(name: str, drawn_from: Distribution | Sample) -> list[object]:
    """Samples by the rule of `by_hand`, from one generator that is seeded again for each: a new one takes longer."""
    sample = drawn_from if callable(drawn_from) else drawn_from.draw
    rng = np.random.RandomState()
    return [(rng.seed(md5_seed(seed, name)), sample(rng))[1] for seed in SEEDS]


@pytest.mark.parametrize("method", SHARED)
def test_draw_zero_is_domainbeds_defaults(method: str) -> None:
    expected = {name: default for name, (default, _) in domainbeds(method).items()}
    expected |= OUR_DEFAULTS.get(algorithms.get(method).domainbed_name or "", {})
    for trial in (0, 4):
        assert in_their_names(method, sample_hparams(method, "OfficeHome", "images", 0, trial)) == expected


def test_a_method_that_declares_domainbeds_name_is_compared_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"coral", "sandmask", "selfreg"} <= set(SHARED)
    monkeypatch.setattr(algorithms.get("erm"), "domainbed_name", "NotYet")
    with pytest.raises(AssertionError, match="erm declares domainbed_name = 'NotYet': add its own hyper-param"):
        domainbeds("erm")


def test_small_images_have_their_own_space() -> None:
    assert sample_hparams("erm", "rotated_mnist", "small_images", 0, 0) == {
        "settings": {"lr": 1e-3, "weight_decay": 0.0},
        "batch_size": 64,
        "dropout": 0.0,
    }
    for h in (1, 2, 3):
        assert sample_hparams("erm", "rotated_mnist", "small_images", h, 1) == {
            "settings": {"lr": by_hand("lr", lambda r: 10 ** r.uniform(-4.5, -2.5), h, 1), "weight_decay": 0.0},
            "batch_size": by_hand("batch_size", lambda r: int(2 ** r.uniform(3, 9)), h, 1),
            "dropout": 0.0,
        }


def test_domainnet_has_smaller_batches() -> None:
    sizes = [sample_hparams("erm", "DomainNet", "images", h, 0)["batch_size"] for h in range(1, 30)]
    assert sizes == [by_hand("batch_size", lambda r: int(2 ** r.uniform(3, 5)), h, 0) for h in range(1, 30)]
    assert max(sizes) < 32


def test_the_papers_space() -> None:
    drawn = [sample_hparams("fgmix", "PACS", "images", h, 0, "paper") for h in range(60)]
    assert {d["settings"]["lr"] for d in drawn} == {1e-5, 3e-5, 5e-5}
    assert {d["settings"]["weight_decay"] for d in drawn} == {0.0, 1e-4, 1e-6}  # 0 in draw 0 alone
    assert {d["settings"]["lam"] for d in drawn} == {1.0, 3.0, 5.0, 8.0}
    assert {d["settings"]["alpha"] for d in drawn} == {0.01, 0.03, 0.1, 0.3}
    assert {d["settings"]["eta2"] for d in drawn} == {1e-4, 1e-3, 1e-2}
    assert {d["dropout"] for d in drawn} == {0.0, 0.1, 0.5}
    assert {d["batch_size"] for d in drawn} == {32}
    assert drawn[0]["settings"]["gamma"] is None  # set by the run itself
    assert all(1 <= d["settings"]["gamma"] <= 100 for d in drawn[1:])
    assert drawn[0]["settings"]["lr"] == 5e-5


@pytest.mark.parametrize(
    ("method", "own"), [("fgmix", {"eta2", "lam", "gamma", "alpha"}), ("l2a_ot", {"lambda_domain", "lambda_cycle"})]
)
def test_methods_that_domainbed_lacks_search_their_settings_as_in_the_paper(method: str, own: set[str]) -> None:
    for h in range(4):
        shared = sample_hparams("erm", "PACS", "images", h, 1)
        theirs, ours = (sample_hparams(method, "PACS", "images", h, 1, space) for space in ("paper", "domainbed"))
        assert ours["settings"] == {**shared["settings"], **{name: theirs["settings"][name] for name in own}}
        assert (ours["batch_size"], ours["dropout"]) == (shared["batch_size"], shared["dropout"])


def test_the_papers_rates_scale_with_the_default() -> None:
    rates = {sample_hparams("erm", "digits", "small_images", h, 0, "paper")["settings"]["lr"] for h in range(30)}
    assert rates == {2e-4, 6e-4, 1e-3}


@pytest.mark.parametrize("space", ["domainbed", "paper"])
@pytest.mark.parametrize("kind", ["images", "small_images", "features"])
def test_every_algorithm_accepts_its_draws_as_plain_values(space: Space, kind: str) -> None:
    for name in algorithms.names():
        for h in (0, 1):  # the defaults and a sample: types do not depend on which
            drawn = sample_hparams(name, "any", kind, h, 0, space)
            algorithms.get(name).Config.of(**drawn["settings"])
            values = [*drawn["settings"].values(), drawn["batch_size"], drawn["dropout"]]
            assert {type(value) for value in values} <= {int, float, bool, str, type(None)}


def test_one_more_hyperparameter_shifts_no_other() -> None:
    plain, richer = (sample_hparams(name, "PACS", "images", 5, 2) for name in ("erm", "fishr"))
    assert richer["settings"].items() >= plain["settings"].items()
    assert (richer["batch_size"], richer["dropout"]) == (plain["batch_size"], plain["dropout"])


def test_unknown_names_are_named() -> None:
    with pytest.raises(UserError, match=r"search space 'papers'.*'paper'"):
        search_space("erm", "PACS", "images", "papers")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"kind of dataset 'image'.*'images'"):
        search_space("erm", "PACS", "image")


@pytest.mark.parametrize("backbone", ["vit_base_patch16_clip_224.openai", "vit_small_patch14_dinov2"])
def test_vision_transformers_are_searched_a_decade_lower(backbone: str) -> None:
    """With the same draws: only the range is another."""
    assert sample_hparams("erm", "PACS", "images", 0, 0, backbone=backbone)["settings"]["lr"] == 5e-6
    for h in range(1, 20):
        slow, usual = (
            sample_hparams("coral", "PACS", "images", h, 1, backbone=name) for name in (backbone, "resnet50")
        )
        assert slow["settings"]["lr"] == pytest.approx(usual["settings"]["lr"] / 10)
        assert {**slow["settings"], "lr": 0} == {**usual["settings"], "lr": 0}
    assert {
        sample_hparams("erm", "PACS", "images", h, 0, "paper", backbone)["settings"]["lr"] for h in range(1, 30)
    } == {
        1e-6,
        3e-6,
        5e-6,
    }


@pytest.mark.parametrize(("algorithm", "default"), [("adrmx", 3e-6), ("dann", 5e-6), ("ermplusplus", 5e-6)])
def test_learning_rates_that_a_method_has_of_its_own_are_a_tenth_for_transformers_too(
    algorithm: str, default: float
) -> None:
    vit = "vit_base_patch16_224"
    assert sample_hparams(algorithm, "PACS", "images", 0, 0, backbone=vit)["settings"]["lr"] == default
    for h in range(1, 10):
        slow, usual = (sample_hparams(algorithm, "PACS", "images", h, 1, backbone=name) for name in (vit, "resnet50"))
        assert slow["settings"]["lr"] == pytest.approx(usual["settings"]["lr"] / 10)
        assert {**slow["settings"], "lr": 0} == {**usual["settings"], "lr": 0}


def test_only_images_slow_transformers_down() -> None:
    assert (
        sample_hparams("erm", "digits", "small_images", 0, 0, backbone="vit_tiny_patch16_224")["settings"]["lr"] == 1e-3
    )
