"""The data that a backbone was pre-trained on, as the tag of its weights names them. No torch.

Images of the test domains may be among images from the web: a table that mixes both kinds of backbones says so.
"""

from __future__ import annotations

from collections.abc import Iterable

IMAGENET = {"in1k": "ImageNet-1k", "in12k": "ImageNet-12k", "in21k": "ImageNet-21k", "in22k": "ImageNet-22k"}
# By words of tags of timm and open_clip, such as laion2b in `laion2b_s34b_b88k`.
WEB = {
    "openai": "OpenAI's 400 M image-text pairs",
    "laion400m": "LAION-400M",
    "laion2b": "LAION-2B",
    "laion5b": "LAION-5B",
    "laion": "LAION",
    "laiona": "LAION",
    "datacomp": "DataComp",
    "datacomp1b": "DataComp-1B",
    "datacompxl": "DataComp-1B",
    "datacompdr": "DataCompDR",
    "mclip": "DataCompDR",
    "commonpool": "CommonPool",
    "dfn2b": "DFN-2B",
    "dfn5b": "DFN-5B",
    "dfndr2b": "DFNDR-2B",
    "metaclip": "MetaCLIP",
    "metaclip2": "MetaCLIP 2",
    "merged2b": "Merged-2B",
    "webli": "WebLI",
    "cc12m": "CC12M",
    "yfcc15m": "YFCC15M",
    "yfcc100m": "YFCC100M",
    "lvd142m": "LVD-142M",
    "lvd1689m": "LVD-1689M",
    "ig1b": "Instagram-1B",
    "seer": "Instagram",
    "swag": "Instagram",
    "jft": "JFT",
}
PACKAGED = {"package": "ImageNet-1k"}  # weights that install as a package


def name_pretraining(backbone: str) -> str:
    """Name the data that the weights of a backbone were trained on, as its tag says; empty if the tag says nothing.

    Data are joined by + in the order of training.

    >>> name_pretraining("vit_base_patch16_224.augreg_in21k_ft_in1k"), name_pretraining("open_clip:ViT-B-16.openai")
    ('ImageNet-21k + ImageNet-1k', "OpenAI's 400 M image-text pairs")
    """
    words = backbone.partition(".")[2].split("_")
    return " + ".join(dict.fromkeys(name for word in words if (name := (IMAGENET | WEB | PACKAGED).get(word))))


def warn_of_mixture(pretrainings: Iterable[str]) -> str:
    """Write the sentence for a table that mixes backbones pre-trained on ImageNet and on the web; empty for others.

    The texts are those of `name_pretraining`; an empty one is ignored.
    """
    named = {text: set(text.split(" + ")) for text in pretrainings if text}
    web = sorted(text for text, names in named.items() if names & set(WEB.values()))
    imagenet = sorted(named.keys() - {*web})
    if not web or not imagenet:
        return ""
    return (
        f"Rows differ in pre-training: {', '.join(imagenet)}; {', '.join(web)}. Images from the web may include those "
        "of the test domains, so that differences between such rows are not differences between methods."
    )
