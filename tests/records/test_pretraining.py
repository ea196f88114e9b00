"""The pre-training data of a backbone, and tables that mix them."""

from __future__ import annotations

import pytest

from copying import replace
from fgmix.networks.clip import load_open_clip
from fgmix.networks.names import load_timm
from fgmix.records.pretraining import IMAGENET, PACKAGED, WEB, name_pretraining, warn_of_mixture
from fgmix.results.selection import select
from fgmix.results.tables import dataset_table
from results.made import finished


@pytest.mark.parametrize(
    ("backbone", "data"),
    [
        ("resnet50.tv_in1k", "ImageNet-1k"),
        ("tf_efficientnet_lite0.package", "ImageNet-1k"),
        ("vit_base_patch16_clip_224.laion2b_ft_in12k_in1k", "LAION-2B + ImageNet-12k + ImageNet-1k"),
        ("open_clip:ViT-B-16.datacomp_xl_s13b_b90k", "DataComp"),
        ("vit_small_patch14_dinov2.lvd142m", "LVD-142M"),
        ("small_cnn", ""),
    ],
)
def test_data_of_a_tag(backbone: str, data: str) -> None:
    assert name_pretraining(backbone) == data


def test_every_word_occurs_in_a_tag() -> None:
    tags = {name.partition(".")[2] for name in load_timm().list_pretrained()}
    tags |= {tag for _, tag in load_open_clip().list_pretrained()}
    words = {word for tag in tags for word in tag.split("_")}
    assert (IMAGENET | WEB).keys() <= words
    assert not PACKAGED.keys() & words
    unnamed = [tag for tag in tags if not name_pretraining(f"any.{tag}")]
    assert len(unnamed) < 0.15 * len(tags)


def test_random_weights_have_no_pretraining() -> None:
    spec = finished("a", 0.5).spec
    pretrained = replace(spec, backbone="resnet50.tv_in1k", pretrained=True)
    assert (spec.pretraining, pretrained.pretraining) == ("", "ImageNet-1k")
    assert replace(pretrained, pretrained=False).pretraining == ""
    assert replace(pretrained, pretrained=False, weights_digest="d").pretraining == "ImageNet-1k"


def test_a_mixture_is_named_in_the_caption() -> None:
    def run(algorithm: str, backbone: str):  # type: ignore[no-untyped-def]
        record = finished("a", 0.5, algorithm=algorithm)
        return replace(record, spec=replace(record.spec, backbone=backbone, pretrained=True))

    imagenet, web = run("erm", "resnet50.tv_in1k"), run("clipood", "open_clip:ViT-B-16.openai")
    caption = dataset_table(select([imagenet, web]), imagenet.dataset).caption
    assert "Rows differ in pre-training: ImageNet-1k; OpenAI" in caption
    for records in ([imagenet], [web]):
        assert "pre-training" not in dataset_table(select(records), imagenet.dataset).caption
    assert warn_of_mixture(["", "LAION-2B + ImageNet-1k"]) == ""
