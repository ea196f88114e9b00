"""The paper's tables as sweeps, and the same designs at sizes for two cores: "small" in an hour, "cpu" overnight.

`quick` is not of the paper: it compares any methods on `typefaces` within ten minutes.

Choices where the paper gives no value: 20 hyper-parameter samples per cell, which is DomainBed's number; m = 8 classes
per batch for FGMix on DomainNet ("m ≪ batch size"); in the sensitivity table every setting except α and λ₀ is searched,
as elsewhere. τ = 0.6·T (the paper's 3,000 of 5,000 and 9,000 of 15,000 steps), n = 32 and the backbone are the defaults
of FGMix and of image datasets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from fgmix.algorithms import get
from fgmix.algorithms.ddg import PAPER_STAGE0
from fgmix.errors import UserError, unknown
from fgmix.networks.names import full_name
from fgmix.records.options import options_of
from fgmix.records.schema import RunSpec
from fgmix.sweeps.design import Setting, Sweep

Scale = Literal["paper", "small", "cpu"]
ALGORITHMS = (
    *("erm", "mixup", "manifold_mixup", "mixstyle", "metamixup", "pcgrad", "andmask", "fish", "fishr"),
    *("l2a_ot", "cnsn", "ddg", "selfreg", "sagnet", "coral", "fgmix"),
)
VARIANTS = (*(f"fgmix_{variant}" for variant in "abcdef"), "fgmix")
FOUR = ("PACS", "VLCS", "OfficeHome", "TerraIncognita")
GRID = {"lam": (1.0, 3.0, 5.0, 8.0), "alpha": (0.01, 0.03, 0.1, 0.3)}

# The paper's protocol is DomainBed's published one with the paper's numbers of steps T, of which τ is a fraction.
_DOMAINBED = {"protocol": "domainbed-2020", "steps": 5000}
# The papers' sizes of methods whose defaults are sized for a CPU; docs/sweeps.md lists the remaining differences.
_METAMIXUP = {"look_ahead": "network"}
_L2A_OT = {"critics": "backbone", "lr_critics": 1e-4, "width": 64, "lr_generator": 1e-4}
_DDG = {"stage0": PAPER_STAGE0, "pairs": 2, "downs": 4}
_DDG_RUN = {**_DOMAINBED, "steps": 35_000, "batch_size": 8}  # the authors' 2: two a, two b, and a positive of each


@dataclass(frozen=True)
class Preset:
    """Sweeps, such as those behind a table of the paper, described in one line."""

    about: str
    sweeps: tuple[Sweep, ...] = ()
    any_algorithms: bool = False  # whether the user may choose the algorithms


def _build_paper(datasets: tuple[str, ...], algorithms: tuple[str, ...], **fields: Any) -> Sweep:
    shared: dict[str, Any] = {"trials": 5, "hparams": 20, "space": "paper", "common": _DOMAINBED}
    return Sweep(datasets=datasets, algorithms=algorithms, **{**shared, **fields})


def _build_small(algorithms: tuple[str, ...], trials: int, **fields: Any) -> Sweep:
    return Sweep(datasets=("digits",), algorithms=algorithms, trials=trials, hparams=1, space="paper", **fields)


def _build_five(
    algorithms: tuple[str, ...], domainnet: Mapping[str, Any] | None = None, **fields: Any
) -> tuple[Sweep, ...]:
    """Build the sweeps on all five datasets; DomainNet has its own number of steps, and the options in `domainnet`."""
    longer = {"common": {**_DOMAINBED, "steps": 15_000, **(domainnet or {})}}
    return _build_paper(FOUR, algorithms, **fields), _build_paper(("DomainNet",), algorithms, **{**longer, **fields})


# The replication on two cores (docs/replication/protocols.md explains each number). Settings that test why the policy
# has an effect or not are separate arms.
_NETWORK = {"backbone": "tf_efficientnet_lite0.package", "pretrained": True, "image_size": 64}
_CPU = {**_NETWORK, "steps": 800, "eval_every": 50, "batch_size": 32}
CPU_RATE = 5e-4  # chosen by validation: docs/replication/protocols.md
ARMS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "λ = 3": ("fgmix_a", {"lam": 3.0}),
    "η₂ = 1e-2": ("fgmix", {"eta2": 1e-2}),
    "scale = rms": ("fgmix", {"scale": "rms"}),
    "γ = 10": ("fgmix", {"gamma": 10.0}),
}


def _build_replication(algorithms: tuple[str, ...], arm: str = "", **settings: Any) -> Sweep:
    common, fixed = {**_CPU, "arm": arm}, {"lr": CPU_RATE, **settings}
    return Sweep(datasets=("PACS",), algorithms=algorithms, trials=3, hparams=1, common=common, settings=fixed)


# The second part of the replication: the last stage at 224 px, on cached activations of the others.
_LAST_STAGE = {**_NETWORK, "image_size": 224, "freeze": "blocks.5", "views": 8} | {
    "precision": "bf16",  # half the time of a step on a CPU that multiplies in bfloat16; the policy stays in float32
    "steps": 1000,
    "eval_every": 80,
    "batch_size": 32,
    "averaging_start": 600,
}
LAST_STAGE_RATE = 1e-4  # by the spread of checkpoints on a separate trial, see docs/replication/protocols.md
LAST_STAGE_ARMS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "λ = 3": ("fgmix_a", {"lam": 3.0}),
    "rms, η₂ = 1e-2": ("fgmix", {"scale": "rms", "eta2": 1e-2}),
    "at φ′": ("fgmix", {"flat_base": True}),
    "φ′ without mixing": ("fgmix", {"flat_base": True, "n": 0}),
}


def _build_last_stage(algorithms: tuple[str, ...], arm: str = "", **settings: Any) -> Sweep:
    common, fixed = {**_LAST_STAGE, "arm": arm}, {"lr": LAST_STAGE_RATE, **settings}
    return Sweep(datasets=("PACS",), algorithms=algorithms, trials=9, hparams=1, common=common, settings=fixed)


# With 29 source domains, four images of each are 116 per step. Classes that all 29 share are rare in such a batch, so
# methods that mix codes take three domains at a time, as many as the paper's benchmarks have: every step then mixes.
_TYPEFACES = {"steps": 200, "eval_every": 50, "batch_size": 4, "averaging": "none"}
_TYPEFACES_SETTINGS: dict[str, Setting] = {"lr": 3e-3, "domains_per_tuple": 3}

_AS_THEY_ARE = tuple(name for name in ALGORITHMS if name not in ("metamixup", "l2a_ot", "ddg", "fgmix"))


def _build_clip(algorithms: tuple[str, ...], arm: str = "", **options: Any) -> Sweep:
    common = {"protocol": "clip-2024", "arm": arm, **options}
    return Sweep(datasets=(*FOUR, "DomainNet"), algorithms=algorithms, trials=3, hparams=1, common=common)


PRESETS: dict[str, dict[Scale, Preset]] = {
    "clip-2024": {
        "paper": Preset(
            "CLIP ViT-B/16 on five datasets: zero-shot, prompts, fine-tuning with texts, a linear head or adapters",
            (
                _build_clip(("clip_zeroshot", "coop", "dpl", "erm", "coral", "miro", "fgmix", "clipood")),
                _build_clip(("erm",), "linear probe", head="linear", freeze="all"),
                _build_clip(("erm",), "LP-FT", head="linear", warmup_head=500),
                _build_clip(("erm",), "LoRA", lora=8),
            ),
        ),
    },
    "paper-overall": {
        "paper": Preset(
            "all methods on five datasets; SWA rows come from the same runs",
            (
                *_build_five(_AS_THEY_ARE),
                *_build_five(("fgmix",), domainnet={"classes_per_batch": 8}),
                *_build_five(("metamixup",), settings=_METAMIXUP),
                *_build_five(("l2a_ot",), settings=_L2A_OT),
                *_build_five(("ddg",), common=_DDG_RUN, settings=_DDG),
            ),
        ),
        # 13 methods at one to two times ERM's time; l2a_ot and ddg at three to five times: one trial.
        "small": Preset("all methods on digits, default hyper-parameters, one trial", (_build_small(ALGORITHMS, 1),)),
    },
    "paper-ablation": {
        "paper": Preset("variants A to F and FGMix", (_build_paper(("PACS", "TerraIncognita"), VARIANTS),)),
        "small": Preset(
            "variants A to F, FGMix and, to compare with, ERM on digits, default hyper-parameters, three trials",
            (_build_small(("erm", *VARIANTS), 3),),
        ),
        "cpu": Preset(
            "ERM, A, C to F, FGMix and FGMix at other settings on PACS at 64 px, three trials: overnight on two cores",
            (
                _build_replication(("erm", *(name for name in VARIANTS if name != "fgmix_b"))),
                *(_build_replication((algorithm,), arm, **settings) for arm, (algorithm, settings) in ARMS.items()),
            ),
        ),
    },
    "replication": {
        "cpu": Preset(
            "ERM, A, U, FGMix and other settings on PACS at 224 px, last stage trained, nine trials: 7 CPU-hours",
            (
                _build_last_stage(("erm", "fgmix_a", "fgmix_u", "fgmix")),
                *(_build_last_stage((name,), arm, **settings) for arm, (name, settings) in LAST_STAGE_ARMS.items()),
            ),
        ),
    },
    "paper-sensitivity": {
        "paper": Preset("FGMix by λ₀ and α", (_build_paper(("TerraIncognita",), ("fgmix",), grid=GRID),)),
        "small": Preset("FGMix by λ₀ and α on digits, two trials", (_build_small(("fgmix",), 2, grid=GRID),)),
    },
    "quick": {
        "cpu": Preset(
            "ERM and FGMix, or other methods, on 30 typefaces, one trial: minutes on two cores",
            (
                Sweep(
                    datasets=("typefaces",),
                    algorithms=("erm", "fgmix"),
                    trials=1,
                    hparams=1,
                    common=_TYPEFACES,
                    settings=_TYPEFACES_SETTINGS,
                ),
            ),
            any_algorithms=True,
        ),
    },
}


def get_preset(name: str, scale: str = "", algorithms: tuple[str, ...] = ()) -> Preset:
    """Return a preset by name, at its first scale unless another one is named, of other algorithms where it allows it.

    >>> get_preset("paper-sensitivity", "small").sweeps[0].trials
    2
    """
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    by_scale = {str(size): each for size, each in PRESETS[name].items()}
    if scale and scale not in by_scale:
        raise unknown(f"scale of {name}", scale, by_scale)
    preset = by_scale[scale or next(iter(by_scale))]
    if not algorithms:
        return preset
    if not preset.any_algorithms:
        raise UserError(f"Expected --preset {name} or --algorithms. Found both; this preset names its own.")
    return replace(preset, sweeps=tuple(replace(sweep, algorithms=algorithms) for sweep in preset.sweeps))


def apply_changes(sweep: Sweep, changes: Mapping[str, Any]) -> Sweep:
    """Apply the user's changes to a sweep: `common`, `settings` and `grid` are merged, other fields replaced.

    >>> apply_changes(get_preset("paper-ablation").sweeps[0], {"trials": 1, "common": {"compile": True}}).common
    {'protocol': 'domainbed-2020', 'steps': 5000, 'compile': True}
    """
    added = {
        name: {**getattr(sweep, name), **changes[name]} for name in ("common", "settings", "grid") if name in changes
    }
    return replace(sweep, **{**changes, **added})


def change_sweeps(
    sweeps: tuple[Sweep, ...],
    *,
    common: Mapping[str, Any],
    settings: Mapping[str, Any],
    grid: Mapping[str, Any],
    **fields: Any,
) -> tuple[Sweep, ...]:
    """Check the user's changes before any run starts, and apply them to every sweep; texts of settings are parsed."""
    if twice := sorted(settings.keys() & grid.keys()):
        raise UserError(f"Expected {twice[0]} in --set or in --grid. Found it in both. Remove one of them.")
    declared = options_of(RunSpec)
    for name in common:
        if name not in declared:
            raise unknown("option of a run", name, declared)
    changes = {
        **fields,
        "common": {name: declared[name].check(value) for name, value in common.items()},
        "settings": {name: _check_setting(sweeps, name, value) for name, value in settings.items()},
        "grid": {name: _check_values(sweeps, name, values) for name, values in grid.items()},
    }
    if changes["common"].get("backbone"):
        full_name(changes["common"]["backbone"])  # raises an error for an unknown name
    return tuple(apply_changes(sweep, changes) for sweep in sweeps)


def _check_values(sweeps: tuple[Sweep, ...], name: str, values: Any) -> tuple[Any, ...]:
    """Check the values of a grid's setting."""
    values = values if isinstance(values, list | tuple) else [values]
    texts = [value.strip() if isinstance(value, str) else value for value in values]
    if not texts or texts == [""]:
        raise UserError(f"Expected --grid {name}=value,value,… Found no value. Name at least one.")
    if "" in texts:
        raise UserError(f"Expected --grid {name}=value,value,… Found an empty value. Remove a comma, or fill it.")
    return tuple(_check_setting(sweeps, name, value) for value in texts)


def _check_setting(sweeps: tuple[Sweep, ...], name: str, value: Any) -> Any:
    """Check a setting, and parse a text, as the first method that has it declares; raise an error if none has it."""
    configs = [get(algorithm).Config for algorithm in sorted({each for sweep in sweeps for each in sweep.algorithms})]
    having = [config for config in configs if name in config.names()]
    if not having:
        raise unknown("setting of these algorithms", name, {known for config in configs for known in config.names()})
    declared = options_of(having[0])[name]
    return declared.parse(value) if isinstance(value, str) else declared.check(value)
