"""Transfer against DomainBed's update written out."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from algorithms.toys import toy_algorithm, toy_batches
from fgmix.algorithms import Batches
from fgmix.algorithms.transfer import project_
from reference.twin import Twin, assert_follows


def gap(twin: Twin, batches: Batches) -> Tensor:
    risks = [cross_entropy(twin.parts.adversary(twin.g(x)), y) for x, y in batches]
    return max(risks, key=Tensor.item) - min(risks, key=Tensor.item)


def flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize(("delta", "d_steps"), [(2.0, 3), (1e-3, 3), (2.0, 1)])
@pytest.mark.parametrize("gda", [False, True])
def test_steps_are_domainbeds(delta: float, d_steps: int, gda: bool) -> None:
    def step(twin: Twin, batches: Batches, step: int) -> None:
        adversary = twin.parts.adversary
        if step == 0 and gda:  # theirs has the adversary's parameters here: see the docs page
            twin.optimizer = SGD([*twin.g.parameters(), *twin.h.parameters()], lr=twin.lr)
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        twin.descend(cross_entropy(twin.h(twin.g(x)), y))
        twin.descend(0.7 * gap(twin, batches))
        adversary.load_state_dict(twin.h.state_dict())
        ascent = SGD(adversary.parameters(), lr=0.02)
        for _ in range(d_steps):
            ascent.zero_grad()
            (-0.7 * gap(twin, batches)).backward()
            ascent.step()
            distance = (flat(adversary) - flat(twin.h)).norm()
            if distance > delta:
                for p, centre in zip(adversary.parameters(), twin.h.parameters()):
                    p.data = centre.data + delta / distance * (p.data - centre.data)

    settings = {"lam": 0.7, "delta": delta, "d_steps": d_steps, "lr_d": 0.02, "gda": gda}
    assert_follows("transfer", step, steps=5, whole=True, **settings)
    assert_follows("transfer", step, steps=5, whole=True, **settings, batch_norm=True)


def test_the_adversary_stays_within_its_ball_and_widens_the_gap() -> None:
    transfer, batches = toy_algorithm("transfer", shape=(6,), lr_d=1.0, delta=0.5), toy_batches(shape=(6,))
    transfer.step(batches)
    assert (flat(transfer.adversary) - flat(transfer.classifier)).norm().item() == pytest.approx(0.5)
    wide = transfer.weighted_gap(transfer.encode(batches), batches)
    transfer.adversary.load_state_dict(transfer.classifier.state_dict())
    assert wide > transfer.weighted_gap(transfer.encode(batches), batches)


def test_within_the_ball_nothing_is_moved() -> None:
    centre = nn.Linear(3, 2)
    moved = copy.deepcopy(centre)
    with torch.no_grad():
        moved.weight += 0.1
    before = moved.weight.clone()
    project_(moved, centre, delta=1.0)
    assert torch.equal(moved.weight, before)
    project_(centre, centre, delta=0.0)
    assert all(p.isfinite().all() for p in centre.parameters())
