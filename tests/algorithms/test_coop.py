"""Learned prompts: CoOp's and DPL's, on a CLIP model of toy size and on toys."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity

from fgmix.algorithms import create
from fgmix.errors import UserError
from fgmix.networks.clip import build_text_tower
from fgmix.networks.text import PromptHead, embed_classes
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


@pytest.mark.parametrize("name", ["coop", "dpl"])
def test_only_the_prompt_learns(name: str) -> None:
    algorithm = toy_algorithm(name)
    before = {key: value.clone() for key, value in algorithm.state_dict().items() if isinstance(value, torch.Tensor)}
    run_steps(algorithm, toy_batches(b=4), 0, 3)
    moved = {key for key, value in before.items() if not torch.equal(value, algorithm.state_dict()[key])}
    assert moved
    assert all(key.startswith(("classifier.vectors", "classifier.generator.")) for key in moved)


def test_a_backbone_without_texts_and_no_task_are_refused() -> None:
    parts = {"featurizer": torch.nn.Linear(6, 8), "classifier": build_toy_head("text-frozen", 8), "n_domains": 2}
    with pytest.raises(UserError, match="task"):
        create("coop", **parts)
    from fgmix.algorithms import Task

    with pytest.raises(UserError, match="text tower"):
        create("coop", **parts, task=Task(("a", "b"), ("c", "d")))
