"""Models of open_clip: both towers, weights from a file, texts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fgmix.errors import UserError
from fgmix.networks import build_featurizer, clip
from fgmix.networks.clip import TextTower, build_clip, build_text_tower, load_open_clip, split_clip_name
from fgmix.networks.names import backbones, full_name, is_vision_transformer
from fgmix.networks.preprocessing import normalisation_of
from fgmix.networks.stages import sections
from fgmix.networks.text import TEMPLATES, TextHead, embed_classes

NAMES = ["alarm clock", "dog", "guitar"]
X = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def build(name: str, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return build_clip(name).eval()


@pytest.mark.parametrize("templates", TEMPLATES.values(), ids=TEMPLATES)
def test_embeddings_are_those_of_open_clips_zero_shot_classifier(clip_name: str, templates: tuple[str, ...]) -> None:
    open_clip, model = load_open_clip(), build(clip_name)
    expected = open_clip.build_zero_shot_classifier(model, open_clip.get_tokenizer("tiny-clip"), NAMES, templates)
    torch.manual_seed(0)
    torch.testing.assert_close(embed_classes(build_text_tower(clip_name), NAMES, templates), expected.T)


def test_logits_are_those_of_open_clip(clip_name: str) -> None:
    model = build(clip_name)
    torch.manual_seed(0)
    g = build_featurizer(clip_name, (3, 32, 32)).eval()
    torch.manual_seed(0)
    tower = build_text_tower(clip_name)
    head = TextHead(embed_classes(tower, NAMES, TEMPLATES["name"]), tower.scale)
    expected, _ = model.get_logits(X, tower.tokenize(NAMES))
    torch.testing.assert_close(head(g(X)), expected)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_weights_of_both_towers_from_a_file(clip_name: str, tmp_path: Path, suffix: str) -> None:
    from safetensors.torch import save_file

    model, file = build(clip_name, seed=5), tmp_path / f"weights.{suffix}"
    (save_file if suffix == "safetensors" else torch.save)(model.state_dict(), file)
    g = build_featurizer(clip_name, (3, 32, 32), weights=str(file)).eval()
    assert torch.equal(g(X), model.encode_image(X))
    assert g.weights_matched == "by name"
    tower = build_text_tower(clip_name, weights=str(file))
    tokens = tower.tokenize(NAMES)
    torch.testing.assert_close(tower(tokens), model.encode_text(tokens, normalize=True).detach())


def test_another_image_size_interpolates_the_positions(clip_name: str, tmp_path: Path) -> None:
    torch.save(build(clip_name).state_dict(), tmp_path / "weights.pt")
    g = build_featurizer(clip_name, (3, 48, 48), weights=str(tmp_path / "weights.pt"))
    assert g(torch.rand(2, 3, 48, 48)).shape == (2, 16)


def test_file_of_another_model_and_unknown_names_are_user_errors(clip_name: str, tmp_path: Path) -> None:
    torch.save({"visual.proj": torch.ones(2, 2)}, tmp_path / "weights.pt")
    with pytest.raises(UserError, match="both towers"):
        build_featurizer(clip_name, (3, 32, 32), weights=str(tmp_path / "weights.pt"))
    with pytest.raises(UserError, match="tiny-clip"):
        build_featurizer("open_clip:tiny-clop", (3, 32, 32))
    with pytest.raises(UserError, match="openai"):
        build_featurizer("open_clip:ViT-B-16.openia", (3, 32, 32))
    with pytest.raises(UserError, match="3 channels"):
        build_featurizer(clip_name, (1, 32, 32))


def test_names() -> None:
    assert split_clip_name("open_clip:ViT-B-16") == ("ViT-B-16", "")
    assert full_name("open_clip:ViT-B-16.openai") == "open_clip:ViT-B-16.openai"
    assert is_vision_transformer("open_clip:ViT-B-16.openai")
    assert normalisation_of("open_clip:ViT-B-16-SigLIP.webli").mean == (0.5, 0.5, 0.5)
    assert normalisation_of("open_clip:ViT-B-16.openai") == normalisation_of("vit_base_patch16_clip_224.openai")


def test_names_are_listed() -> None:
    names = backbones("open_clip:ViT-B-16*")
    assert {"open_clip:ViT-B-16", "open_clip:ViT-B-16.openai"} <= {*names}
    assert all(name.startswith("open_clip:ViT-B-16") for name in names)


def test_activation_function_follows_the_tag(clip_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_clip = load_open_clip()
    monkeypatch.setattr(open_clip, "list_pretrained_tags_by_model", lambda _: ["quick"])
    monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda *_: {"quick_gelu": True})
    layers = {type(module).__name__ for module in build(f"{clip_name}.quick").modules()}
    assert "QuickGELU" in layers
    assert "GELU" not in layers


def test_published_weights_of_the_cache_need_no_connection(
    clip_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_clip, model = load_open_clip(), build(clip_name, seed=5)
    file = tmp_path / "open_clip_pytorch_model.bin"
    torch.save(model.state_dict(), file)
    asked = []
    monkeypatch.setattr(open_clip, "list_pretrained_tags_by_model", lambda _: ["published"])
    monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda *_: {"hf_hub": "any/repository/"})
    monkeypatch.setattr(clip, "find_cached_file", lambda *names: asked.append(names) or file)
    g = build_featurizer(f"{clip_name}.published", (3, 32, 32), pretrained=True).eval()
    assert torch.equal(g(X), model.encode_image(X))
    assert asked == [("any/repository", clip.HUB_FILES)]


def test_sections_of_the_image_tower(clip_name: str) -> None:
    g = build_featurizer(clip_name, (3, 32, 32))
    assert [stage.end.name for stage in sections(g)] == [f"net.transformer.resblocks.{i}" for i in range(4)]


def test_text_tower_is_frozen_and_has_no_image_tower(clip_name: str) -> None:
    tower = build_text_tower(clip_name)
    assert isinstance(tower, TextTower)
    assert not any(p.requires_grad for p in tower.parameters())
    assert not any("visual" in name for name, _ in tower.named_modules())


@pytest.mark.parametrize("frozen", [False, True])
def test_text_head(frozen: bool) -> None:
    w, z = torch.randn(3, 4), torch.randn(5, 4)
    head = TextHead(w, scale=20.0, frozen=frozen)
    torch.testing.assert_close(head(z), 20 * torch.nn.functional.cosine_similarity(z[:, None], w[None], dim=2))
    assert head.weight.requires_grad != frozen
    assert head.out_features == 3
