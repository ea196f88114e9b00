"""DANN and CDANN against DomainBed's updates written out: two plain Adams in turn, by DomainBed's count of steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from algorithms.properties import assert_resumes_at
from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.dann import class_weights
from reference.twin import Twin, assert_follows

SETTINGS = {"lam": 0.7, "beta1": 0.3, "lr_d": 2e-3, "weight_decay_d": 1e-2, "weight_decay": 1e-3, "mlp_width": 16}


def start(twin: Twin, conditional: bool) -> None:
    adversary = [*twin.parts.discriminator.parameters()]
    adversary += [*twin.parts.class_embeddings.parameters()] if conditional else []
    twin.kept["adversary"] = Adam(adversary, lr=2e-3, weight_decay=1e-2, betas=(0.3, 0.9))
    twin.restart(weight_decay=1e-3, betas=(0.3, 0.9))


def adversarial_loss(twin: Twin, z: Tensor, y: Tensor, domain: Tensor, penalty: float, conditional: bool) -> Tensor:
    seen = z + twin.parts.class_embeddings(y) if conditional else z
    losses = cross_entropy(twin.parts.discriminator(seen), domain, reduction="none")
    if conditional:
        counts = [int((y == c).sum()) for c in range(int(y.max()) + 1)]
        loss = sum(l_i / (counts[int(c)] * len(counts)) for l_i, c in zip(losses, y))
    else:
        loss = losses.mean()
    (gradient,) = torch.autograd.grad(losses.sum(), seen, create_graph=True)
    return loss + penalty * sum(g_i.norm() ** 2 for g_i in gradient) / len(z)


@pytest.mark.parametrize("name", ["dann", "cdann"])
@pytest.mark.parametrize(("d_steps", "penalty"), [(1, 0.0), (1, 0.8), (3, 0.3)])
def test_steps_are_domainbeds(name: str, d_steps: int, penalty: float) -> None:
    conditional = name == "cdann"

    def step(twin: Twin, batches: Batches, step: int) -> None:
        if step == 0:
            start(twin, conditional)
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        domain = torch.tensor([e for e, (_, y) in enumerate(batches) for _ in y])
        z = twin.g(x)
        told = adversarial_loss(twin, z, y, domain, penalty, conditional)
        if (step + 1) % (1 + d_steps) < d_steps:
            optimizer, loss = twin.kept["adversary"], told
        else:
            optimizer, loss = twin.optimizer, cross_entropy(twin.h(z), y) - 0.7 * told
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    assert_follows(name, step, steps=5, whole=True, d_steps=d_steps, grad_penalty=penalty, **SETTINGS)


def test_the_discriminators_step_leaves_the_model_alone_and_the_other_way_round() -> None:
    dann, batches = toy_algorithm("dann", shape=(6,)), toy_batches(shape=(6,))
    for turn in ("classifier", "discriminator", "classifier", "discriminator"):
        before = {name: p.clone() for name, p in dann.named_parameters()}
        dann.step(batches)
        moved = {name.split(".")[0] for name, p in dann.named_parameters() if not torch.equal(p, before[name])}
        assert turn in moved
        assert ("discriminator" in moved) == (turn == "discriminator")


def test_the_discriminator_learns_where_the_model_stands_still() -> None:
    dann, batches = toy_algorithm("dann", shape=(6,), d_steps=100, lr_d=1e-2), toy_batches(shape=(6,))
    losses = [dann.step(batches)["discriminator"].item() for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


def test_every_class_has_the_same_weight() -> None:
    y = torch.tensor([0, 0, 0, 2, 2, 1])
    w = class_weights(y, n_classes=7)
    assert [round(w[y == c].sum().item(), 6) for c in range(3)] == [round(1 / 3, 6)] * 3


@pytest.mark.parametrize("name", ["dann", "cdann"])
def test_resumes_in_either_turn(name: str) -> None:
    for cut in (2, 3):
        assert_resumes_at(name, cut, mlp_dropout=0.5)


def test_weights_of_classes_under_another_default_type() -> None:
    y, before = torch.tensor([0, 0, 1]), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert class_weights(y, n_classes=2).tolist() == [0.25, 0.25, 0.5]
    finally:
        torch.set_default_dtype(before)
