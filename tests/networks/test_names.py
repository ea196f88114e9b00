"""Names with the tag of their weights, and how those weights expect images. timm knows both without a hub."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fgmix.errors import UserError
from fgmix.networks import backbones, full_name
from fgmix.networks.names import RECOMMENDED
from fgmix.networks.preprocessing import IMAGENET, Normalisation, normalisation_of


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("resnet50", "resnet50.a1_in1k"),
        ("resnet50.tv_in1k", "resnet50.tv_in1k"),
        ("small_cnn", "small_cnn"),
        ("mlp", "mlp"),
        ("coatnet_0_224", "coatnet_0_224"),  # timm has no weights of it
        ("tf_efficientnet_lite0.package", "tf_efficientnet_lite0.package"),
    ],
)
def test_full_names(name: str, full: str) -> None:
    assert full_name(name) == full
    assert full_name(full) == full


@pytest.mark.parametrize("name", RECOMMENDED)
def test_a_recommended_backbone_is_named_with_the_tag_of_weights_that_exist(name: str) -> None:
    assert full_name(name) == name


@pytest.mark.parametrize("call", [full_name, normalisation_of])
def test_unknown_names_and_tags(call: Callable[[str], object]) -> None:
    with pytest.raises(UserError, match=r"Unknown tag of resnet50 'tv_in2k'\. Did you mean 'tv_in1k'\?"):
        call("resnet50.tv_in2k")
    with pytest.raises(UserError, match=r"Unknown backbone 'smal_cnn'\. Did you mean 'small_cnn'"):
        call("smal_cnn")
    with pytest.raises(UserError, match=r"Unknown backbone 'small_cnn\.tag'"):
        call("small_cnn.tag")


@pytest.mark.parametrize(
    ("backbone", "expected"),
    [
        ("small_cnn", Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bilinear")),
        ("resnet50.tv_in1k", IMAGENET),
        ("resnet50", Normalisation(IMAGENET.mean, IMAGENET.std, "bicubic")),
        ("vit_tiny_patch16_224.augreg_in21k_ft_in1k", Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "bicubic")),
        (
            "vit_base_patch16_clip_224.openai",
            Normalisation((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711), "bicubic"),
        ),
        ("tf_efficientnet_lite0.package", Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "bicubic")),
    ],
)
def test_normalisation(backbone: str, expected: Normalisation) -> None:
    assert normalisation_of(backbone) == expected


def test_listing() -> None:
    assert backbones("*_cnn") == ["mnist_cnn", "signal_cnn", "small_cnn"]
    assert "tf_efficientnet_lite0.package" in backbones("tf_efficientnet_lite0*")
    assert {"mlp", "resnet18"} <= set(backbones())
