"""DPL: prompts that depend on the images of a domain."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from fgmix.algorithms._base import batch_of
from fgmix.deploy.network import check_alone
from fgmix.errors import UserError
from fgmix.networks.clip import build_text_tower
from fgmix.networks.text import ConditionalPromptHead
from fgmix.testing.toys import toy_algorithm, toy_batches

NAMES = ("alarm clock", "dog")


def test_prompts_of_a_domain_are_the_mean_over_its_images(clip_name: str) -> None:
    head = ConditionalPromptHead(build_text_tower(clip_name), NAMES, length=3, code_size=16)
    z = torch.randn(5, 16)
    vectors = torch.stack([head.generator(z_i) for z_i in z]).mean(0).view(3, 16)
    torch.testing.assert_close(head(z), head.compare(z, vectors))


def test_dpl_has_one_prompt_per_domain() -> None:
    algorithm, batches = toy_algorithm("dpl"), toy_batches(b=4)
    head = algorithm.classifier
    losses = [cross_entropy(head(algorithm.featurizer(x)), y, reduction="sum") for x, y in batches]
    expected = torch.stack(losses).sum() / len(batch_of(batches)[1])
    torch.testing.assert_close(algorithm.step(batches)["loss"], expected.detach())


def test_a_prediction_depends_on_its_batch_so_that_no_model_is_made() -> None:
    algorithm, (x, _) = toy_algorithm("dpl").eval(), toy_batches(b=4)[0]
    with torch.no_grad():
        assert not torch.allclose(algorithm.start_test()(x)[:1], algorithm.start_test()(x[:1]))
    with pytest.raises(UserError, match="alone"):
        check_alone("dpl")
