"""Learned prompts: CoOp's and DPL's, on a CLIP model of toy size and on toys."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy

from fgmix.algorithms import create
from fgmix.algorithms._base import batch_of
from fgmix.errors import UserError
from fgmix.networks.clip import build_text_tower
from fgmix.networks.prompts import ConditionalPromptHead, PromptHead
from fgmix.networks.text import embed_classes
from fgmix.testing.toys import build_toy_head, run_steps, toy_algorithm, toy_batches

NAMES = ("alarm clock", "dog")


def test_a_prompt_of_words_is_their_text(clip_name: str) -> None:
    """Vectors that are those of "a photo of a" give the embedding of the text."""
    tower = build_text_tower(clip_name)
    head = PromptHead(tower, NAMES, length=4)
    words = tower.tokenize(["a photo of a"])[0, 1:5]
    with torch.no_grad():
        head.vectors.copy_(tower.embedding(words))
        z = torch.randn(3, 16)
        expected = tower.scale * cosine_similarity(
            z[:, None], embed_classes(tower, NAMES, ["a photo of a {}."])[None], dim=2
        )
        torch.testing.assert_close(head(z), expected, rtol=1e-4, atol=1e-5)
    assert head.out_features == 2


def test_prompts_of_a_domain_are_the_mean_over_its_images(clip_name: str) -> None:
    head = ConditionalPromptHead(build_text_tower(clip_name), NAMES, length=3, code_size=16)
    z = torch.randn(5, 16)
    vectors = torch.stack([head.generator(z_i) for z_i in z]).mean(0).view(3, 16)
    torch.testing.assert_close(head(z), head.compare(z, vectors))


@pytest.mark.parametrize("name", ["coop", "dpl"])
def test_only_the_prompt_learns(name: str) -> None:
    algorithm = toy_algorithm(name)
    before = {key: value.clone() for key, value in algorithm.state_dict().items() if isinstance(value, torch.Tensor)}
    run_steps(algorithm, toy_batches(b=4), 0, 3)
    moved = {key for key, value in before.items() if not torch.equal(value, algorithm.state_dict()[key])}
    assert moved
    assert all(key.startswith(("classifier.vectors", "classifier.generator.")) for key in moved)


def test_dpl_has_one_prompt_per_domain() -> None:
    algorithm, batches = toy_algorithm("dpl"), toy_batches(b=4)
    head = algorithm.classifier
    losses = [cross_entropy(head(algorithm.featurizer(x)), y, reduction="sum") for x, y in batches]
    expected = torch.stack(losses).sum() / len(batch_of(batches)[1])
    torch.testing.assert_close(algorithm.step(batches)["loss"], expected.detach())


def test_a_backbone_without_texts_and_no_task_are_refused() -> None:
    parts = {"featurizer": torch.nn.Linear(6, 8), "classifier": build_toy_head("text-frozen", 8), "n_domains": 2}
    with pytest.raises(UserError, match="task"):
        create("coop", **parts)
    from fgmix.algorithms import Task

    with pytest.raises(UserError, match="text tower"):
        create("coop", **parts, task=Task(("a", "b"), ("c", "d")))
