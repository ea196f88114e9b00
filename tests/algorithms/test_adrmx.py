"""ADRMX against DomainBed's update written out, sample by sample where it loops over samples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from algorithms.properties import assert_resumes_at
from algorithms.toys import toy_algorithm
from fgmix.algorithms import Batches
from fgmix.algorithms.adrmx import remix_pairs
from fgmix.functional.losses import supervised_contrast
from reference.twin import Twin, assert_follows

SMALL = {"mlp_width": 8, "mlp_depth": 3}


def contrast_by_hand(z: Tensor, y: Tensor, e: Tensor) -> Tensor:
    """A weight of ½ for partners of the own domain and for others; samples without a partner are left out."""
    z = z / z.norm(dim=1, keepdim=True).clamp(min=1e-12)
    total, left_out = 0.0, 0
    for i in range(len(y)):
        weights = [0.5 if e[j] == e[i] else 1 - 0.5 for j in range(len(y))]
        s = {j: weights[j] * torch.exp(z[i] @ z[j] / 0.07) for j in range(len(y)) if j != i}
        partners = [j for j in s if y[j] == y[i]]
        if not partners:
            left_out += 1
            continue
        whole = sum(s.values()) + 1e-5
        total = total - sum(torch.log(s[j] / whole + 1e-5) for j in partners) / len(partners)
    return total / (len(y) - left_out + 1)


def remixed_by_hand(twin: Twin, u: Tensor, d: Tensor, y: Tensor) -> Tensor:
    loss = 0.0
    for c in range(4):
        order = torch.randperm(int((y == c).sum()))
        if len(order) >= 2:
            i, j = order[:2]
            loss = loss + cross_entropy(twin.h((u[i] + d[j])[None]), y[i][None])
    return loss / 4


def domainbed_step(twin: Twin, batches: Batches, step: int, d_steps: int) -> None:
    parts = twin.parts
    if step == 0:
        model = [parts.featurizer, parts.domain_featurizer, parts.classifier, parts.invariant_head, parts.domain_head]
        weights = [p for part in model for p in part.parameters()]
        twin.kept["model"] = Adam(weights, lr=twin.lr, betas=(0.5, 0.9))
        twin.kept["discriminator"] = Adam(parts.discriminator.parameters(), lr=twin.lr, betas=(0.5, 0.9))
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    e = torch.tensor([e for e, (_, y_e) in enumerate(batches) for _ in y_e])
    z, d = parts.featurizer(x), parts.domain_featurizer(x)
    u = z - d
    loss = told = cross_entropy(parts.discriminator(u), e)
    optimizer = twin.kept["discriminator"]
    if (step + 1) % (1 + d_steps) >= d_steps:
        optimizer = twin.kept["model"]
        loss = cross_entropy(twin.h(z), y) + cross_entropy(parts.invariant_head(u), y)
        loss = loss + 0.6 * cross_entropy(parts.domain_head(d), e) + 0.7 * remixed_by_hand(twin, u, d, y)
        loss = loss + 0.8 * (contrast_by_hand(z, y, e) + contrast_by_hand(u, y, e)) - 0.9 * told
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@pytest.mark.parametrize("d_steps", [1, 2])
def test_steps_are_domainbeds(d_steps: int) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        domainbed_step(twin, batches, step, d_steps)

    weights = {"dclf_lam": 0.6, "rmxd_lam": 0.7, "cnt_lam": 0.8, "disc_lam": 0.9}
    assert_follows("adrmx", step, steps=5, per_domain=5, whole=True, d_steps=d_steps, **weights, **SMALL)


def test_contrast_leaves_out_samples_without_a_partner() -> None:
    z, y = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 0, 1, 2, 2, 2])
    torch.testing.assert_close(supervised_contrast(z, y), contrast_by_hand(z, y, torch.arange(6) % 2))


def test_pairs_are_different_samples_as_many_as_classes_have_two() -> None:
    torch.manual_seed(0)
    y = torch.tensor([3, 0, 0, 0, 1, 3])  # classes 0 and 3 have two samples or more, 1 and 2 have not
    for _ in range(20):
        i, j = remix_pairs(y, n_classes=4)
        assert len(i) == 2
        assert (i != j).all()
        assert max(i[0], j[0]) < 3
        assert max(i[1], j[1]) < 2
    assert [len(part) for part in remix_pairs(torch.tensor([0, 1]), n_classes=2)] == [0, 0]


def test_resumes_in_every_turn() -> None:
    for cut in (2, 3, 4):
        assert_resumes_at("adrmx", cut, **SMALL)


def test_both_featurizers_start_from_the_same_weights() -> None:
    adrmx = toy_algorithm("adrmx", shape=(6,), **SMALL)
    for ours, theirs in zip(adrmx.featurizer.parameters(), adrmx.domain_featurizer.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours is not theirs
