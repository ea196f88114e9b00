"""Evaluation protocols by name, and the defaults of a run by the kind of its data. docs/protocol.md has the tables.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", 2021, https://arxiv.org/abs/2007.01434. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fgmix.records.schema import Head, Protocol


@dataclass(frozen=True)
class Rules:
    """Settings of a protocol."""

    about: str  # one line
    commit: str  # DomainBed's commit that it follows; empty for our own
    steps: int  # default number of optimisation steps for image datasets
    tags: Mapping[str, str]  # by backbone, timm's tag of the published weights to use if the name has no tag
    freeze_bn: bool  # whether batch-norm layers of pre-trained networks stay in evaluation mode by default
    augmented_validation: bool  # whether the source domains are augmented when they are evaluated
    backbone: str | None = None  # pre-trained network for images if none is named; None for a ResNet-50
    head: Head = "linear"  # classifier of that network
    mlp: str = "mlp"  # network for arrays of features if none is named
    interpolation: str | None = None  # how images are resized; None for what the backbone's weights expect
    # The first step after which the model is evaluated, then every `eval_every` steps; None for `eval_every`.
    first_evaluation: int | None = None
    # By dataset, its own default number of steps and evaluation interval.
    longer: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Default settings of the optimiser (docs/optimiser.md) and whether others are refused.
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    fixes_optimizer: bool = False

    def evaluations(self, every: int, last: int) -> list[int]:
        """List the steps, counted from 1, after which a run of `last` steps is evaluated.

        >>> PROTOCOLS["clean"].evaluations(every=5, last=12), PROTOCOLS["domainbed-2020"].evaluations(every=5, last=12)
        ([5, 10, 12], [1, 6, 11, 12])
        """
        first = every if self.first_evaluation is None else self.first_evaluation
        return sorted({*range(first, last + 1, every), last})


_TORCHVISION = {"resnet18": "tv_in1k", "resnet50": "tv_in1k"}  # torchvision's IMAGENET1K_V1

_CLEAN = Rules(
    about="DomainBed's published protocol with validation on images that are not augmented",
    commit="",
    steps=5000,
    tags=_TORCHVISION,
    freeze_bn=True,
    augmented_validation=False,
    longer={"DomainNet": (15000, 1000)},  # the FGMix paper's number of steps; DomainBed runs 5,001
)
_DOMAINBED = Rules(
    about="what DomainBed's published tables, and those of the FGMix paper, are made with",
    commit="DomainBed before 3dfdc8e (July 2024)",
    steps=5001,
    tags=_TORCHVISION,
    freeze_bn=True,
    augmented_validation=True,
    mlp="domainbed_mlp",
    interpolation="bilinear",
    first_evaluation=1,  # DomainBed evaluates after its step 0
    longer={"DomainNet": (5001, 1000)},
    fixes_optimizer=True,  # DomainBed has Adam at a constant rate alone
)

PROTOCOLS: dict[Protocol, Rules] = {
    "clean": _CLEAN,
    "domainbed-2020": _DOMAINBED,
    "domainbed-2024": replace(
        _DOMAINBED,
        about="DomainBed since July 2024",
        commit="DomainBed 3dfdc8e and later (b93c22a)",
        tags={"resnet18": "tv_in1k", "resnet50": "ram_in1k"},
        freeze_bn=False,
    ),
    "clip-2024": replace(  # docs/clip.md says which papers agree on what
        _CLEAN,
        about="fine-tuning of CLIP ViT-B/16 against the texts of the classes",
        backbone="open_clip:ViT-B-16.openai",
        head="text-frozen",
        optimizer={"optimizer": "adamw", "schedule": "cosine", "weight_decay": 0.1},
    ),
}


Kind = Literal["images", "small_images", "signals", "features"]  # of a dataset; decides the defaults


@dataclass(frozen=True)
class Defaults:
    """Defaults of a run that depend on the kind of dataset; `steps` is None for the protocol's."""

    backbone: str
    pretrained: bool
    lr: float
    batch_size: int
    steps: int | None
    eval_every: int
    channels_last: bool


# images: DomainBed's. The others are sized for a CPU.
DEFAULTS = {
    "images": Defaults("resnet50", True, 5e-5, 32, None, 300, True),
    "small_images": Defaults("small_cnn", False, 1e-3, 32, 300, 100, False),
    "signals": Defaults("signal_cnn", False, 1e-3, 32, 500, 100, False),
    "features": Defaults("mlp", False, 1e-3, 32, 1000, 100, False),
}
# The features of a frozen backbone are trained on like any others. The default backbone is the one whose weights can be
# installed without a hub.
FROZEN_DEFAULTS = replace(
    DEFAULTS["features"], backbone="tf_efficientnet_lite0.package", pretrained=True, channels_last=True
)
